"""Where one plan's relations are between two steps of Spark: files that Spark writes, or objects that our workers
write.

Rows are counted when they are read back. Blocking: it runs in a thread of the session.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.engines.spark import backends, scratch_files, scratch_objects
from lakesweep.engines.spark.executor import PACKED, Batches, Choosing, Work, chained, packing, unchanged
from lakesweep.engines.spark.scratch_files import PRINTS, Filed
from lakesweep.engines.spark.scratch_objects import OpenScratch, Receipt
from lakesweep.engines.spark.worker_rows import STAND_IN, unpacked
from lakesweep.model.errors import EngineFailed
from lakesweep.model.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTINGS = ("listing", "seen")
"""The relation that cannot be computed again, because storage changes."""
_PART_BYTES = 32 * 1024 * 1024
"""The least packed bytes that one task reads back."""


class Step(NamedTuple):
    """How Python processes a relation's rows before they are written."""

    work: Work
    schema: str


class Wanted(NamedTuple):
    """Some columns of a relation; with `standing` only the fingerprints among references, or only the others."""

    name: str
    schema: str
    columns: Sequence[str]
    standing: bool | None = None
    choosing: Choosing | None = None
    """If workers can read it: only rows with such fingerprints."""


class Relations(Protocol):
    """The relations of one plan, by name."""

    where: str
    """For messages."""
    tag: str
    """Unique to this plan."""
    in_order: bool
    """Does `stream` give the rows of a task as they were written, and none of another task between them?"""

    def write(self, spark: SparkSession, relation: DataFrame, name: str, step: Step | None = None) -> int:
        """Compute it and keep it. Returns how many rows it has."""
        ...

    def put(self, spark: SparkSession, batches: Iterable[pa.RecordBatch], name: str) -> int:
        """Keep rows that this process has. Returns how many there are."""
        ...

    def read(self, spark: SparkSession, name: str, schema: Any, *, standing: bool | None = None) -> DataFrame:
        """Read the relation of this name, all of it or as in `Wanted`."""
        ...

    def through(self, spark: SparkSession, wanted: Wanted, step: Step) -> DataFrame:
        """Process some columns of a relation in Python. If workers can read the relation, no row passes through the
        JVM."""
        ...

    def loader(self, name: str, columns: Sequence[str]) -> Callable[[], Batches] | None:
        """What loads some columns of a relation in a worker, if workers can read it."""
        ...

    def stream(self, spark: SparkSession, name: str, schema: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The same into this process, in bounded batches: some of its columns."""
        ...


def streamed_back(relation: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a relation in this process, one partition after the other."""
    for piece in relation.mapInArrow(packing(), f"{PACKED} BINARY").toLocalIterator():
        yield from unpacked(bytes(piece[0]))


class SparkFiles:
    """Parquet files that Spark writes and reads itself, in any file system that it knows."""

    in_order = False

    def __init__(self, address: str, tag: str) -> None:
        self.where = address
        self.tag = tag

    def write(self, spark: SparkSession, relation: DataFrame, name: str, step: Step | None = None) -> int:
        """Make sure that every row is there which the executors say they wrote."""
        if step is not None:
            relation = relation.mapInArrow(*step)
        counted, count = backends.counted(relation)
        counted.write.mode("overwrite").parquet(self._address(name))  # replaces what an earlier attempt left
        written, found = count(), self._found(spark, relation, name)
        if written is None:
            # A listing cannot be repeated, and missing rows only shrink the work; all else can be computed again.
            written = found if name in LISTINGS else relation.count()
        self._check_found(written, found)
        return found

    def put(self, spark: SparkSession, batches: Iterable[pa.RecordBatch], name: str) -> int:
        """Only Spark can write here."""
        written = 0
        for batch in batches:
            if batch.num_rows:
                rows = spark.createDataFrame(pa.Table.from_batches([batch]))
                rows.write.mode("append").parquet(self._address(name))
                written += batch.num_rows
        if written:
            self._check_found(written, self._found(spark, rows, name))
        return written

    def stream(self, spark: SparkSession, name: str, schema: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return streamed_back(self.read(spark, name, schema).select(*columns))

    def read(self, spark: SparkSession, name: str, schema: Any, *, standing: bool | None = None) -> DataFrame:
        rows = _verified(spark, schema, [self._address(name)])
        return rows if standing is None else rows.where(f"(role = '{STAND_IN}') = {standing}")

    def through(self, spark: SparkSession, wanted: Wanted, step: Step) -> DataFrame:
        rows = self.read(spark, wanted.name, wanted.schema, standing=wanted.standing)
        return rows.select(*wanted.columns).mapInArrow(*step)

    def loader(self, name: str, columns: Sequence[str]) -> Callable[[], Batches] | None:  # noqa: ARG002  # there is none
        return None

    def _address(self, name: str) -> str:
        return f"{self.where}/{name}"

    def _check_found(self, written: int, found: int) -> None:
        if written != found:
            raise EngineFailed(
                f"the executors wrote {written} rows to {self.where} and {found} are there: "
                "set engine.spark.scratch to a place that this service and all executors share"
            )

    def _found(self, spark: SparkSession, relation: DataFrame, name: str) -> int:
        return int(self.read(spark, name, relation.schema).count())


class LocalFiles(SparkFiles):
    """Parquet files in a local or mounted directory that this process sees too."""

    in_order = True

    def __init__(self, directory: Path) -> None:
        super().__init__(f"file://{directory}", directory.name.replace("-", "_"))  # else the default file system
        self.directory = directory

    def write(self, spark: SparkSession, relation: DataFrame, name: str, step: Step | None = None) -> int:
        """What Python makes, Python writes; all else is written by Spark."""
        if step is None:
            return super().write(spark, relation, name)
        new = self._address(f"{name}.new")
        for left in (name, f"{name}.new"):  # by a try before this one
            shutil.rmtree(self.directory / left, ignore_errors=True)
        work = scratch_files.filing(new.removeprefix("file://"), step.work)
        receipts = [Filed(*row) for row in relation.mapInArrow(work, scratch_files.FILED).collect()]
        return self._accept(receipts, name)

    def put(self, spark: SparkSession, batches: Iterable[pa.RecordBatch], name: str) -> int:  # noqa: ARG002  # needs none
        """Written as a worker writes."""
        filed = scratch_files.filing(str(self.directory / f"{name}.new"), lambda _: iter(batches))(iter(()))
        return self._accept([Filed(**row) for batch in filed for row in batch.to_pylist()], name)

    def stream(self, spark: SparkSession, name: str, schema: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # the files have one
        yield from self.rows(name, columns)

    def rows(self, name: str, columns: Sequence[str], *, standing: bool | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns into this process, of all rows or as in `Wanted`."""
        for part in _of_kind(self.part_files(name), standing):
            with pq.ParquetFile(part, page_checksum_verification=True) as file:
                yield from file.iter_batches(columns=list(columns))

    def choose(self, spark: SparkSession, name: str, columns: Sequence[str], choosing: Choosing, into: str) -> int:
        """Keep the rows of a relation with such fingerprints as another one. Returns how many there are."""
        parts = self._parts(name)
        numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
        return self.write(spark, numbers, into, Step(scratch_files.fetching(parts, columns, choosing), ""))

    def _accept(self, receipts: Sequence[Filed], name: str) -> int:
        found = scratch_files.accept(receipts, self.directory / f"{name}.new", self.directory / name)
        self._check_found(sum(receipt.rows for receipt in receipts), found)
        return found

    def read(self, spark: SparkSession, name: str, schema: Any, *, standing: bool | None = None) -> DataFrame:
        """Nothing at all was written where there were no rows."""
        parts = self._parts(name, standing)
        return _verified(spark, schema, [f"file://{part}" for part in parts]) if parts else _none(spark, schema)

    def through(self, spark: SparkSession, wanted: Wanted, step: Step) -> DataFrame:
        parts = self._parts(wanted.name, wanted.standing)
        if not parts:
            return _none(spark, step.schema)
        work = chained(scratch_files.fetching(parts, wanted.columns, wanted.choosing), step.work)
        return spark.range(0, len(parts), 1, len(parts)).mapInArrow(work, step.schema)

    def loader(self, name: str, columns: Sequence[str]) -> Callable[[], Batches]:
        return partial(scratch_files.loaded, self._parts(name), columns)

    def _parts(self, name: str, standing: bool | None = None) -> list[Path]:
        """Those files that the executors see."""
        directory = Path(self._address(name).removeprefix("file://"))
        parts = [directory / part.name for part in self.part_files(name)]
        return _of_kind(parts, standing)

    def _found(self, spark: SparkSession, relation: DataFrame, name: str) -> int:  # noqa: ARG002  # asked here
        return sum(pq.read_metadata(part).num_rows for part in self.part_files(name))

    def part_files(self, name: str) -> list[Path]:
        """The number of rows that this process sees."""
        return sorted((self.directory / name).glob("part-*.parquet"))


class StoredObjects:
    """Objects in a store that Lakesweep supports; see `scratch_objects`."""

    in_order = True

    def __init__(self, place: Location, open_store: OpenScratch, tag: str) -> None:
        self.where = place.raw
        self.tag = tag
        self._place = place
        self._open_store = open_store
        self._receipts: dict[str, list[Receipt]] = {}

    def write(self, spark: SparkSession, relation: DataFrame, name: str, step: Step | None = None) -> int:  # noqa: ARG002  # the relation has it
        """The receipts come back to this process, the rows do not."""
        work = scratch_objects.storing(self._open_store, self._place.join(name), step and step.work)
        found = relation.mapInArrow(work, scratch_objects.RECEIPT).collect()
        return self._accept([Receipt(*row) for row in found], name)

    def put(self, spark: SparkSession, batches: Iterable[pa.RecordBatch], name: str) -> int:  # noqa: ARG002  # needs none
        """Written as a worker writes."""
        stored = scratch_objects.storing(self._open_store, self._place.join(name), lambda _: iter(batches))(iter(()))
        return self._accept([Receipt(**row) for batch in stored for row in batch.to_pylist()], name)

    def stream(self, spark: SparkSession, name: str, schema: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # the objects have one
        for batch in scratch_objects.loaded(self._open_store, self._place.join(name), self._receipts[name]):
            yield batch.select(list(columns))

    def _accept(self, receipts: list[Receipt], name: str) -> int:
        self._receipts[name] = receipts
        return sum(receipt.rows for receipt in receipts)

    def read(self, spark: SparkSession, name: str, schema: Any, *, standing: bool | None = None) -> DataFrame:
        """Read every object that has a receipt, and no other."""
        return self._fetched(spark, name, Step(unchanged, schema), standing)

    def through(self, spark: SparkSession, wanted: Wanted, step: Step) -> DataFrame:
        work = chained(scratch_objects.selecting(wanted.columns, wanted.choosing), step.work)
        return self._fetched(spark, wanted.name, Step(work, step.schema), wanted.standing)

    def loader(self, name: str, columns: Sequence[str]) -> Callable[[], Batches] | None:
        return partial(
            scratch_objects.columns_of, self._open_store, self._place.join(name), self._receipts[name], columns
        )

    def _fetched(self, spark: SparkSession, name: str, step: Step, standing: bool | None) -> DataFrame:
        receipts = self._receipts[name]
        if not receipts:
            return _none(spark, step.schema)
        fetching = scratch_objects.fetching(self._open_store, self._place.join(name), receipts, standing=standing)
        tasks = self._tasks(spark, receipts)
        return spark.range(0, len(receipts), 1, tasks).mapInArrow(chained(fetching, step.work), step.schema)

    def _tasks(self, spark: SparkSession, receipts: Sequence[Receipt]) -> int:
        packed = sum(receipt.size for receipt in receipts)
        return min(len(receipts), max(backends.parallelism(spark), math.ceil(packed / _PART_BYTES)))


def _of_kind(parts: Sequence[Path], standing: bool | None) -> list[Path]:
    return [part for part in parts if standing is None or (PRINTS in part.name) == standing]


def _verified(spark: SparkSession, schema: Any, addresses: Sequence[str]) -> DataFrame:
    """A place may have any name; no pattern is meant."""
    reader = spark.read.schema(schema).options(**scratch_files.VERIFIED)
    return reader.parquet(*(re.sub(r"([*?\[\]{}\\])", r"\\\1", address) for address in addresses))


def _none(spark: SparkSession, schema: Any) -> DataFrame:
    return spark.createDataFrame([], schema)
