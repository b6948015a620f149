"""The code that runs in a Spark worker: our own storage and decoding code. It reads the table's storage; it never
deletes, writes there or decides.

A worker opens storage for one task and closes it again. Credentials come from the AWS chain of its machine. Errors
leave as errors.WorkerFault, so that the driver can restore them.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import lakesweep
from lakesweep.cleanup import addresses, classify
from lakesweep.cleanup.addresses import Role
from lakesweep.engines import common, fingerprints, manifest_cache
from lakesweep.engines.listing import Shard
from lakesweep.engines.manifest_fingerprints import SourceFingerprints
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spark import worker_rows, worker_setup
from lakesweep.engines.spark.errors import carried
from lakesweep.engines.spark.worker_rows import OTHER_CODE, SKIPPED, packed, unpacked
from lakesweep.model.errors import EngineFailed, LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Layout, MatchBy

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
"""A function for `mapInArrow`. Each input row is the number of a piece of work."""
Choose = Callable[[pa.Array], pa.BooleanArray]
"""Which rows are wanted, by their fingerprints."""
Choosing = Callable[[], Choose]
"""Called once in every task."""
OpenStorage = Callable[[], Storage]
Decoder = Callable[[FormatName], Decode]

PACKED = "packed"
"""The single column of rows that are packed as bytes."""

_BATCHES_AHEAD = 2
_CONCURRENCY = 16
_DECODERS = 2
_CHUNK_ROWS = 65_536


def listing(open_storage: OpenStorage, shards: Sequence[Shard], match_by: MatchBy, *, keys_only: bool) -> Work:
    """Everything in shard number n: rows of what is stored, or the match keys alone."""
    expected, identity = lakesweep.__version__, fingerprints.shared().identity

    async def list_shard(number: int) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(open_storage()) as storage, aclosing(_larger(shards[number].rows(storage))) as chunks:
            async for chunk in chunks:
                if keys_only:
                    yield pa.record_batch({"match_key": addresses.match_keys(chunk.column("path"), match_by)})
                else:
                    yield worker_rows.listed(addresses.inventory(chunk, match_by))

    def work(numbers: Batches) -> Batches:
        check_version(expected, identity)
        for number in numbers_in(numbers):
            yield from streamed(partial(list_shard, number))

    return work


def looking(open_storage: OpenStorage, cutoff: datetime) -> Work:
    """The result of `common.there_after_all` for the incoming suspects."""
    expected = lakesweep.__version__

    async def look(suspects: pa.RecordBatch) -> AsyncGenerator[pa.RecordBatch, None]:
        pairs = list(zip(*(suspects.column(name).to_pylist() for name in ("match_key", "path")), strict=True))
        async with aclosing(open_storage()) as storage:
            seen = await common.there_after_all(storage, pairs, _CONCURRENCY, cutoff)
        yield pa.record_batch({"match_key": pa.array(seen, pa.string())})

    def work(suspects: Batches) -> Batches:
        check_version(expected)
        for batch in suspects:
            yield from streamed(partial(look, batch))

    return work


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """All that one job reads. It travels with the job: some hundred bytes for a source, a third of that packed."""

    sources: Sequence[bytes]
    """See `save_piece`."""
    named: Sequence[bytes] = ()
    """What metadata names itself, packed; see `worker_rows.in_full`."""
    released: Sequence[int] = ()
    """Which of `named` have something that the format has released."""
    cached_by: str | None = None
    """The code whose fingerprints the service keeps; see `manifest_cache.code_identity`."""
    firsts: Sequence[int] = ()
    """The number of each piece's first source among all. Without them every reference is passed on in full."""

    def released_keys(self) -> pa.Array:
        """The match keys of what the format has released."""
        found = [batch for number in self.released for batch in unpacked(self.named[number])]
        released = [batch.filter(pc.equal(batch.column("role"), Role.RELEASED)) for batch in found]
        return pa.concat_arrays([pa.array([], pa.string()), *map(addresses.placed_keys, released)])


def reading(
    open_storage: OpenStorage, decoder: Decoder, pieces: Pieces, match_by: MatchBy, roots: Sequence[Location]
) -> Work:
    """What the sources of piece number n name, ready for the join; after the last piece, what metadata names itself.
    Fingerprints stand in for references wherever the plan would look at nothing else, as in-process."""
    expected, identity = lakesweep.__version__, fingerprints.shared().identity

    async def read_piece(number: int) -> AsyncGenerator[pa.RecordBatch, None]:
        sources, place = load_piece(pieces.sources[number]), common.placing(match_by, roots)
        released = pieces.released_keys() if pieces.firsts else pa.array([], pa.string())
        source_fingerprints = SourceFingerprints(None, sources, match_by=match_by, roots=roots, released=released)

        def use(source: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
            placed = place(source, batch)
            if not pieces.firsts:
                return worker_rows.in_full(placed)
            full, stand_ins = source_fingerprints.add(source, placed)
            return worker_rows.in_full(full) if full is not None else stood_in(stand_ins)

        def stood_in(rows: pa.RecordBatch) -> pa.RecordBatch:
            return worker_rows.stood_in(rows, pieces.firsts[number])

        with ThreadPoolExecutor(_DECODERS) as threads:
            async with aclosing(open_storage()) as storage:
                reader = SourceReader(
                    storage=storage, decoder=decoder, cache=None, concurrency=_CONCURRENCY, threads=threads
                )
                async with aclosing(reader.read(sources, use)) as found:
                    async for _, batch in found:
                        yield batch if batch is not None else worker_rows.remark(SKIPPED)
        if pieces.firsts:
            yield stood_in(source_fingerprints.flush())

    def work(numbers: Batches) -> Batches:
        check_version(expected, identity)
        if pieces.cached_by is not None and pieces.cached_by != manifest_cache.code_identity():
            yield worker_rows.remark(OTHER_CODE)
        for number in numbers_in(numbers):
            if number < len(pieces.sources):
                yield from streamed(partial(read_piece, number))
            else:
                yield from unpacked(pieces.named[number - len(pieces.sources)])

    return work


def judging(layout: Layout, cutoff: datetime) -> Work:
    """The verdict on every unreferenced row."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        for batch in rows:
            yield worker_rows.for_spark(classify.judge_batch(batch.cast(classify.UNREFERENCED_SCHEMA), layout, cutoff))

    return work


def given(pieces: Sequence[bytes]) -> Work:
    """The rows of piece number n, which the driver made."""
    expected = lakesweep.__version__

    def work(numbers: Batches) -> Batches:
        check_version(expected)
        for number in numbers_in(numbers):
            yield from unpacked(pieces[number])

    return work


def packing() -> Work:
    """Rows packed as bytes, in the same order: streaming those back costs the driver almost nothing."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        for batch in rows:
            yield pa.record_batch({PACKED: pa.array([packed([batch])], pa.binary())})

    return work


def save_piece(sources: Sequence[ReferenceSource]) -> bytes:
    """The sources of one task as text, their number first."""
    lines = (json.dumps(asdict(source) | {"location": source.location.raw}) for source in sources)
    return zlib.compress("\n".join([str(len(sources)), *lines]).encode())


def load_piece(piece: bytes) -> list[ReferenceSource]:
    """Read the sources back. The files of a missing source would look unreferenced."""
    count, *lines = zlib.decompress(piece).decode().split("\n")
    if count != str(len(lines)):
        raise EngineFailed(f"the sources of a task were truncated: it has {len(lines)} of {count or 'some'}")
    return [_source(json.loads(line)) for line in lines]


def unchanged(rows: Batches) -> Batches:
    """The rows as they are."""
    return rows


def chained(first: Work, then: Work) -> Work:
    """Both in one task: what the first makes is not moved."""
    return lambda rows: then(first(rows))


def numbers_in(batches: Batches) -> Iterator[int]:
    """The numbers of the pieces that this task was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def check_version(expected: str, identity: str | None = None) -> None:
    """Called at the start of every task. Another version may decode or judge another way. `identity` is that of the
    fingerprints, where they are made."""
    worker_setup.lighten()
    if lakesweep.__version__ != expected:
        found = f"lakesweep {lakesweep.__version__}, this service is {expected}"
        raise carried(EngineFailed(f"the Spark executors have {found}: install the same version where they run"))
    if identity is not None and fingerprints.shared().identity != identity:
        found = f"a DuckDB ({duckdb.__version__}) with another hash function than this service's"
        raise carried(EngineFailed(f"the Spark executors have {found}: install the same version where they run"))


async def _larger(pages: AsyncGenerator[pa.RecordBatch, None]) -> AsyncGenerator[pa.RecordBatch, None]:
    """The same rows in fewer batches: a page of S3 has a thousand."""
    held: list[pa.RecordBatch] = []
    async with aclosing(pages):
        async for page in pages:
            held.append(page)
            if sum(one.num_rows for one in held) >= _CHUNK_ROWS:
                yield pa.concat_batches(held)
                held = []
    if held:
        yield pa.concat_batches(held)


def streamed(produce: Callable[[], AsyncGenerator[pa.RecordBatch, None]]) -> Batches:
    """Run an async generator in its own thread and pass its batches on, a few ahead of the consumer."""
    ready: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_BATCHES_AHEAD)

    async def pump() -> None:
        async with aclosing(produce()) as batches:
            async for batch in batches:
                await asyncio.to_thread(ready.put, batch)

    def run() -> None:
        try:
            asyncio.run(pump())
        except BaseException as exc:  # noqa: BLE001  # handed over whole: the consumer raises it
            ready.put(exc)
        else:
            ready.put(None)

    # A consumer that goes away ends together with its process, so nothing waits for this thread.
    threading.Thread(target=run, name="lakesweep-task", daemon=True).start()
    while (item := ready.get()) is not None:
        if isinstance(item, LakesweepError):
            raise carried(item) from item
        if isinstance(item, BaseException):
            raise item
        yield item


def _source(fields: dict[str, object]) -> ReferenceSource:
    changes = {
        "location": Location.parse(str(fields["location"])),
        "format": FormatName(str(fields["format"])),
        "context": tuple(tuple(pair) for pair in fields["context"]),  # type: ignore[attr-defined]  # from save_piece
    }
    return ReferenceSource(**{**fields, **changes})  # type: ignore[arg-type]  # the same fields, read back
