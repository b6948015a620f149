"""One plan's intermediate rows as objects in a store that Lakesweep supports, written and read by Spark's Python
workers.

No Hadoop connector is needed: workers use the same storage code as everything else. Every object is written once, under
a name that is unique to the attempt, and the task that finished returns a receipt for it. Only objects with a receipt
are read, and they must match it: a missing or different object fails the plan, because with fewer references live files
would look unreferenced.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import xxhash

import lakesweep
from lakesweep.engines.spark.errors import carried
from lakesweep.engines.spark.executor import Batches, Choosing, Work, check_version, numbers_in, streamed
from lakesweep.engines.spark.worker_rows import packed, stands_in, unpacked
from lakesweep.model.errors import EngineFailed, LakesweepError, NotFound, StorageError
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer
from lakesweep.storage.registry import open_storage, open_writer
from lakesweep.storage.spec import StorageSpec

_OBJECT_ROWS = 262_144
_OBJECT_BYTES = 64 * 1024 * 1024
"""Of rows in memory; packed they take a fifth of it."""
_SUFFIX = ".arrow"

RECEIPT = "name STRING, rows BIGINT, size BIGINT, digest STRING"
_RECEIPT_SCHEMA = pa.schema(
    [("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64()), ("digest", pa.string())]
)


class Receipt(NamedTuple):
    """What a task wrote."""

    name: str
    rows: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class ScratchStore:
    """The two ports that scratch needs. Deleting is not one of them."""

    storage: Storage
    writer: Writer

    async def aclose(self) -> None:
        """Close connections."""
        await self.writer.aclose()
        await self.storage.aclose()


OpenScratch = Callable[[], ScratchStore]


def open_scratch(spec: StorageSpec) -> ScratchStore:
    """Opens the store on any machine. `spec` is confined to the scratch location."""
    return ScratchStore(open_storage(spec), open_writer(spec))


def storing(open_store: OpenScratch, below: Location, made_by: Work | None = None) -> Work:
    """Write all rows that come in, or what some work makes of them; what goes out are receipts."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        store: ScratchStore | None = None
        with asyncio.Runner() as runner:
            try:
                for chunk in _chunks(made_by(rows) if made_by else rows):
                    if store is None:  # many tasks have no rows at all
                        store = runner.run(_opened(open_store))
                    receipt = runner.run(_store(store, below, chunk))
                    yield pa.RecordBatch.from_pylist([receipt._asdict()], schema=_RECEIPT_SCHEMA)
            except LakesweepError as exc:
                raise carried(EngineFailed(f"scratch cannot be written: {exc}")) from exc
            finally:
                if store is not None:
                    runner.run(store.aclose())

    return work


def fetching(
    open_store: OpenScratch, below: Location, receipts: Sequence[Receipt], *, standing: bool | None = None
) -> Work:
    """The rows of receipt number n. With `standing` only fingerprints, or only what is none."""
    expected = lakesweep.__version__

    async def fetch(numbers: Sequence[int]) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(open_store()) as store:
            for number in numbers:
                for batch in await load(store.storage, below, receipts[number]):
                    if standing is None or stands_in(batch) == standing:
                        yield batch

    def work(numbers: Batches) -> Batches:
        check_version(expected)
        wanted = list(numbers_in(numbers))
        if wanted:
            yield from streamed(partial(fetch, wanted))

    return work


def loaded(open_store: OpenScratch, below: Location, receipts: Sequence[Receipt]) -> Batches:
    """The rows of all these receipts, in their order, in this process."""
    with asyncio.Runner() as runner:
        store = runner.run(_opened(open_store))
        try:
            for receipt in receipts:
                yield from runner.run(load(store.storage, below, receipt))
        finally:
            runner.run(store.aclose())


def selecting(columns: Sequence[str], choosing: Choosing | None = None) -> Work:
    """These columns of all rows, or of those that are chosen by their fingerprints."""

    def work(rows: Batches) -> Batches:
        choose = choosing() if choosing else None
        for batch in rows:
            chosen = batch if choose is None else batch.filter(choose(batch.column("print")))
            yield chosen.select(list(columns))

    return work


def columns_of(
    open_store: OpenScratch, below: Location, receipts: Sequence[Receipt], columns: Sequence[str]
) -> Batches:
    """Some columns of the rows of all these receipts, in a worker."""
    try:
        yield from selecting(columns)(loaded(open_store, below, receipts))
    except LakesweepError as exc:
        raise carried(exc) from exc


async def load(storage: Storage, below: Location, receipt: Receipt) -> list[pa.RecordBatch]:
    """Exactly the rows that the receipt is for."""
    place = below.join(receipt.name)
    try:
        data = await storage.read(place, receipt.size)
    except NotFound as exc:
        raise EngineFailed(
            f"{place} was deleted while the plan needed it: let nothing else clean engine.spark.scratch"
        ) from exc
    except StorageError as exc:
        raise EngineFailed(f"scratch cannot be read: {exc}") from exc
    if (len(data), xxhash.xxh3_128_hexdigest(data)) != (receipt.size, receipt.digest):
        raise EngineFailed(f"{place} was modified after it was written")
    batches = unpacked(data)
    found = sum(batch.num_rows for batch in batches)
    if found != receipt.rows:
        raise EngineFailed(f"{place} has {found} rows, but {receipt.rows} were written")
    return batches


async def _store(store: ScratchStore, below: Location, chunk: Sequence[pa.RecordBatch]) -> Receipt:
    data = packed(chunk)
    name = f"{uuid.uuid4().hex}{_SUFFIX}"
    # No name has two writers: an attempt that Spark repeats uses another name.
    await store.writer.put(below.join(name), data, create_only=False)
    rows = sum(batch.num_rows for batch in chunk)
    return Receipt(name=name, rows=rows, size=len(data), digest=xxhash.xxh3_128_hexdigest(data))


async def _opened(open_store: OpenScratch) -> ScratchStore:
    """Clients belong to the event loop that opens them."""
    return open_store()


def _chunks(rows: Batches) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    for batch in rows:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= _OBJECT_ROWS or sum(one.nbytes for one in held) >= _OBJECT_BYTES:
            yield held
            held = []
    if held:
        yield held
