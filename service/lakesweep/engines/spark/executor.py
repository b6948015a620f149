"""What runs in a Spark worker: our own storage and decoding code. It reads; it never deletes, writes or decides.

A worker opens storage for one task and closes it again. Credentials come from the AWS chain where it runs. Errors
leave as faults.WorkerFault, so that the driver knows them again.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa

import lakesweep
from lakesweep.cleanup import addresses, classify
from lakesweep.cleanup.addresses import PLACED_SCHEMA
from lakesweep.engines import common
from lakesweep.engines.listing import Shard
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spark.errors import carried
from lakesweep.model.errors import EngineFailed, LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Layout, MatchBy

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
"""What `mapInArrow` takes. Each row that comes in is the number of a piece of work."""
OpenStorage = Callable[[], Storage]
Decoder = Callable[[FormatName], Decode]

SKIPPED = "skipped"
"""The role of a row that stands for a source of the expired side that could not be read."""

_BATCHES_AHEAD = 4
_CONCURRENCY = 16
_DECODERS = 2


def listing(open_storage: OpenStorage, shards: Sequence[Shard], match_by: MatchBy, *, keys_only: bool) -> Work:
    """Everything in shard number n: rows of what is stored, or the match keys alone."""
    expected = lakesweep.__version__

    async def list_shard(number: int) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(open_storage()) as storage, aclosing(shards[number].rows(storage)) as pages:
            async for page in pages:
                if keys_only:
                    yield pa.record_batch({"match_key": addresses.match_keys(page.column("path"), match_by)})
                else:
                    yield for_spark(addresses.inventory(page, match_by))

    def work(numbers: Batches) -> Batches:
        check_version(expected)
        for number in numbers_in(numbers):
            yield from streamed(partial(list_shard, number))

    return work


def looking(open_storage: OpenStorage, cutoff: datetime) -> Work:
    """Of the suspects that come in, what `steps.there_after_all` says of those that storage does have."""
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


def reading(
    open_storage: OpenStorage, decoder: Decoder, pieces: str, match_by: MatchBy, roots: Sequence[Location]
) -> Work:
    """What the sources of piece number n name, ready for the join."""
    expected = lakesweep.__version__

    async def read_piece(number: int) -> AsyncGenerator[pa.RecordBatch, None]:
        with ThreadPoolExecutor(_DECODERS) as threads:
            async with aclosing(open_storage()) as storage:
                reader = SourceReader(
                    storage=storage, decoder=decoder, cache=None, concurrency=_CONCURRENCY, threads=threads
                )
                found = reader.read(load_piece(pieces, number), common.placing(match_by, roots))
                async with aclosing(found) as placed:
                    async for _, batch in placed:
                        yield batch if batch is not None else _skipped()

    def work(numbers: Batches) -> Batches:
        check_version(expected)
        for number in numbers_in(numbers):
            yield from streamed(partial(read_piece, number))

    return work


def judging(layout: Layout, cutoff: datetime) -> Work:
    """The verdict on every unreferenced row."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        for batch in rows:
            yield for_spark(classify.judge_batch(batch.cast(classify.UNREFERENCED_SCHEMA), layout, cutoff))

    return work


def save_piece(directory: Path, number: int, sources: Sequence[ReferenceSource]) -> None:
    """Write down the sources of one task, and first of all how many there are."""
    lines = (json.dumps(asdict(source) | {"location": source.location.raw}) for source in sources)
    _piece(str(directory), number).write_text("\n".join([str(len(sources)), *lines]), encoding="utf-8")


def load_piece(directory: str, number: int) -> list[ReferenceSource]:
    """The sources of one task. What is missing here would look unreferenced."""
    count, *lines = _piece(directory, number).read_text(encoding="utf-8").split("\n")
    if count != str(len(lines)):
        raise EngineFailed(f"{_piece(directory, number)} was cut: it holds {len(lines)} sources of {count or 'some'}")
    return [_source(json.loads(line)) for line in lines]


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark knows microseconds only."""
    at = batch.schema.get_field_index("modified_at")
    return batch.set_column(at, "modified_at", batch.column(at).cast(pa.timestamp("us", tz="UTC")))


def numbers_in(batches: Batches) -> Iterator[int]:
    """The pieces of work that this task was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def check_version(expected: str) -> None:
    """Another version may decode or judge another way."""
    if lakesweep.__version__ != expected:
        found = f"lakesweep {lakesweep.__version__}, this service is {expected}"
        raise carried(EngineFailed(f"the Spark executors have {found}: install the same version where they run"))


def streamed(produce: Callable[[], AsyncGenerator[pa.RecordBatch, None]]) -> Batches:
    """Run an async generator in a thread of its own and hand its batches on, a few ahead of the consumer."""
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

    # A consumer that goes away ends with its whole process, so nobody waits for this thread.
    threading.Thread(target=run, name="lakesweep-task", daemon=True).start()
    while (item := ready.get()) is not None:
        if isinstance(item, LakesweepError):
            raise carried(item) from item
        if isinstance(item, BaseException):
            raise item
        yield item


def _skipped() -> pa.RecordBatch:
    row = dict.fromkeys(PLACED_SCHEMA.names) | {"role": SKIPPED, "inside": False, "outside": False}
    return pa.RecordBatch.from_pylist([row], schema=PLACED_SCHEMA)


def _piece(directory: str, number: int) -> Path:
    return Path(directory) / f"{number}.jsonl"


def _source(fields: dict[str, object]) -> ReferenceSource:
    changes = {
        "location": Location.parse(str(fields["location"])),
        "format": FormatName(str(fields["format"])),
        "context": tuple(tuple(pair) for pair in fields["context"]),  # type: ignore[attr-defined]  # from save_piece
    }
    return ReferenceSource(**{**fields, **changes})  # type: ignore[arg-type]  # the same fields, read back
