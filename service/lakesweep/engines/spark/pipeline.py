"""The plan as DataFrames: `plan.sql` through Spark SQL over relations that are Parquet files in a shared directory.

What must not be computed twice is written before anything reads it: the listing above all, because a listing that
Spark repeats after the table was read would no longer be the older of the two. Every file that was written is
counted when it is read back: references that went to a disk which only one executor sees would free live files.
Nothing that grows with the table comes into this process, except as a stream. Blocking: it runs in a thread of the
session.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.cleanup import plan_file
from lakesweep.engines.duckdb_plan import Findings
from lakesweep.engines.plan_sql import statements
from lakesweep.engines.spark import backends
from lakesweep.engines.spark.executor import SKIPPED, Work
from lakesweep.model.errors import EngineFailed
from lakesweep.model.files import Reason, Tally, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINGERPRINT = "xxhash64"
"""Spark's own 64-bit hash."""

_LISTED = "path STRING, size_bytes BIGINT, modified_at TIMESTAMP, etag STRING"
INVENTORY = f"{_LISTED}, match_key STRING"
PLACED = "role STRING, address STRING, match_key STRING, inside BOOLEAN, outside BOOLEAN, guarded_name STRING"
JUDGED = f"{_LISTED}, verdict STRING, kind STRING, reason STRING, stage INT"
SEEN = "match_key STRING"

_INVENTORY = "SELECT path, coalesce(match_key, path) AS match_key, size_bytes, modified_at, etag FROM {raw}"
_REFS = """
SELECT role, address, CASE WHEN address IS NULL THEN match_key END AS bare, coalesce(match_key, address) AS match_key,
       inside, outside, guarded_name
FROM {raw}
"""
_TAKEN = f"SELECT count(*), count_if(role = '{SKIPPED}') FROM refs"  # noqa: S608  # a constant of ours

_RELATION = re.compile(r"\b(FROM|JOIN) ([a-z_]+)\b")
_ROWS_AT_ONCE = 65_536
_LISTINGS = ("listing", "seen")


class Pipeline:
    """One table's relations. Call in this order: `write_listing`, `read_sources` and `take_references`, `judge`,
    `find_suspects`, then `write_seen` or `ask_for_suspects`, `confirm`, `write_rows`; and `close` in the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._prefix = f"lakesweep_{directory.name.replace('-', '_')}_"
        self._views: list[str] = []
        self._rows: dict[str, int] = {}
        """How many each relation had when it was written."""

    def path(self, name: str) -> Path:
        """Where a relation or a file of this run is."""
        return self._directory / name

    def write_listing(self, spark: SparkSession, work: Work, shards: int) -> int:
        """List every shard, each in a task of its own. Complete and on disk when this returns how many rows it has."""
        self._compute(spark, work, INVENTORY, pieces=shards, name="listing")
        self._read(spark, "listing", INVENTORY).createOrReplaceTempView(self._view("listing"))
        self._sql(spark, _INVENTORY.format(raw="listing")).createOrReplaceTempView(self._view("inventory"))
        return self._rows["listing"]

    def read_sources(self, spark: SparkSession, work: Work, pieces: int) -> None:
        """Fetch and decode all sources, one piece per task."""
        if pieces:
            self._compute(spark, work, PLACED, pieces=pieces, name="read")

    def take_references(self, spark: SparkSession) -> int:
        """Everything that names files, from `read` and `named`. Returns how many sources were skipped."""
        written = {"named": pq.read_metadata(self.path("named")).num_rows}
        if "read" in self._rows:
            written["read"] = self._rows["read"]
        self._read(spark, list(written), PLACED).createOrReplaceTempView(self._view("placed"))
        self._sql(spark, _REFS.format(raw="placed")).createOrReplaceTempView(self._view("refs"))
        found, skipped = self._sql(spark, _TAKEN).first()
        self._check_all_there("references", found, sum(written.values()))
        return int(skipped)

    def judge(self, spark: SparkSession, work: Work) -> None:
        """Join what is stored with what is referenced and judge the rest."""
        for name in ("released", "held"):
            self._sql(spark, statements()[name]).createOrReplaceTempView(self._view(name))
        self._table(spark, "prints")
        unreferenced = self._sql(spark, statements()["unreferenced"])
        self._write(unreferenced.mapInArrow(work, JUDGED), "judged")
        self._read(spark, "judged", JUDGED).createOrReplaceTempView(self._view("judged"))

    def find_suspects(self, spark: SparkSession) -> int:
        """How many references should have been listed and were not."""
        if not self._table(spark, "lost"):
            return 0  # the usual case; the next statement would read every reference once more to find nothing
        return self._table(spark, "suspects")

    def suspects(self, spark: SparkSession) -> list[tuple[str, str]]:
        """Match key and address (or bare name) of every suspect. Ask for few only."""
        return [tuple(row) for row in self._sql(spark, "SELECT match_key, path FROM suspects").collect()]

    def ask_for_suspects(self, spark: SparkSession, work: Work, tasks: int) -> bool:
        """Ask storage for every suspect, spread over the executors. Is it known now of each whether it
        is missing?"""
        suspects = self._sql(spark, "SELECT match_key, path FROM suspects").repartition(tasks)
        self._write(suspects.mapInArrow(work, SEEN), "seen")
        return all(batch.column("match_key").null_count == 0 for batch in self._parts("seen"))

    def bare_suspects(self, spark: SparkSession) -> int:
        """How many suspects are bare names, which have no address to ask for."""
        return self._number(spark, "SELECT count(*) FROM suspects WHERE NOT contains(path, '/')")

    def write_seen(self, spark: SparkSession, work: Work, shards: int) -> int:
        """List once more, for the match keys alone."""
        self._compute(spark, work, SEEN, pieces=shards, name="seen")
        return self._rows["seen"]

    def confirm(self, spark: SparkSession, suspects: int) -> Findings:
        """Take out of the suspects what `seen` found, and count everything."""
        verdicts = dict.fromkeys(Verdict, Tally())
        by_kind: dict[str, Tally] = {}
        by_reason: dict[Reason, Tally] = {}
        for name, kind, reason, files, size in self._sql(spark, statements()["tallies"]).collect():
            tally = Tally(files=files, bytes=int(size))
            verdicts[Verdict(name)] += tally
            if reason is not None:
                by_kind[kind] = by_kind.get(kind, Tally()) + tally
                by_reason[Reason(reason)] = by_reason.get(Reason(reason), Tally()) + tally
        files, size = self._sql(spark, statements()["totals"]).first()
        judged = sum(verdicts.values(), Tally())
        verdicts[Verdict.LIVE] = Tally(files=files - judged.files, bytes=int(size) - judged.bytes)
        missing, count, clash = self._missing(spark) if suspects else ((), 0, ())
        unverified, first = self._sql(spark, statements()["unverified"]).first()
        return Findings(
            verdicts=verdicts,
            by_kind=by_kind,
            by_reason=by_reason,
            references=self._number(spark, statements()["references"]),
            missing=missing,
            missing_count=count,
            missing_clash=clash,
            unverified=int(unverified),
            unverified_first=first,
            unreferenced_metadata=self._texts(spark, "unreferenced_metadata"),
        )

    def write_rows(self, spark: SparkSession, rows_path: str) -> str:
        """Write the plan's rows in order and return their digest. Spark sorts; the sorted parts are read in turn."""
        self._write(self._sql(spark, statements()["rows"]), "rows")
        with plan_file.PlanWriter(rows_path) as plan:
            for rows in self._parts("rows"):
                plan.write(rows.cast(plan_file.PLAN_SCHEMA))
        return plan.digest

    def close(self, spark: SparkSession) -> None:
        """Make the session forget this run."""
        for view in self._views:
            spark.catalog.dropTempView(view)

    def _missing(self, spark: SparkSession) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
        self._read(spark, "seen", SEEN).createOrReplaceTempView(self._view("seen"))
        self._sql(spark, statements()["missing"]).createOrReplaceTempView(self._view("missing"))
        count = self._number(spark, statements()["missing_count"])
        if not count:
            return (), 0, ()
        return self._texts(spark, "missing_shown"), count, self._texts(spark, "missing_clash")

    def _compute(self, spark: SparkSession, work: Work, schema: str, *, pieces: int, name: str) -> None:
        numbers = spark.range(0, pieces, 1, max(pieces, 1))
        shutil.rmtree(self.path(name), ignore_errors=True)  # what a try before this one may have left
        self._write(numbers.mapInArrow(work, schema), name)

    def _table(self, spark: SparkSession, name: str) -> int:
        """Materialise one of the shared statements. Returns how many rows it has."""
        result = self._sql(spark, statements()[name])
        self._write(result, name)
        spark.read.schema(result.schema).parquet(self._glob(name)).createOrReplaceTempView(self._view(name))
        rows = self._rows[name]
        if rows:
            self._check_all_there(name, self._number(spark, f"SELECT count(*) FROM {name}"), rows)  # noqa: S608  # ours
        return rows

    def _check_all_there(self, what: str, found: int, written: int) -> None:
        """Files that have gone since they were written, or that Spark does not see, would free live files."""
        if found != written:
            raise EngineFailed(
                f"{written} rows of {what} were written to {self._directory.parent} and Spark finds {found} there"
            )

    def _write(self, relation: DataFrame, name: str) -> None:
        """To Parquet, and make sure that this process sees every row that the executors wrote."""
        counted, count = backends.counted(relation)
        counted.write.parquet(self._address(name))
        written, found = count(), self._rows_on_disk(name)
        if written is None:
            # A listing cannot be repeated, and one that lacks rows only shrinks the work; all else comes out the same.
            written = found if name in _LISTINGS else relation.count()
        if written != found:
            raise EngineFailed(
                f"the executors wrote {written} rows to {self._directory.parent} and {found} are there: "
                "set spark.lakesweep.scratch to a directory that this service and all executors share"
            )
        self._rows[name] = found

    def _read(self, spark: SparkSession, names: str | list[str], schema: str) -> DataFrame:
        paths = [self._glob(name) for name in ([names] if isinstance(names, str) else names)]
        return spark.read.schema(schema).parquet(*paths)

    def _sql(self, spark: SparkSession, statement: str) -> DataFrame:
        """One of the shared statements. Several runs share the session, so that relations carry a prefix."""
        own = _RELATION.sub(lambda found: f"{found.group(1)} {self._prefix}{found.group(2)}", statement)
        return spark.sql(own.replace("fingerprint(", f"{FINGERPRINT}("))

    def _view(self, name: str) -> str:
        self._views.append(f"{self._prefix}{name}")
        return self._views[-1]

    def _number(self, spark: SparkSession, statement: str) -> int:
        row: Any = self._sql(spark, statement).first()
        return int(row[0])

    def _texts(self, spark: SparkSession, name: str) -> tuple[str, ...]:
        return tuple(text for (text,) in self._sql(spark, statements()[name]).collect())

    def _parts(self, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a sorted relation: its parts are numbered in order."""
        for part in self._part_files(name):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(_ROWS_AT_ONCE)

    def _rows_on_disk(self, name: str) -> int:
        return sum(pq.read_metadata(part).num_rows for part in self._part_files(name))

    def _part_files(self, name: str) -> list[Path]:
        return sorted(self.path(name).glob("part-*.parquet"))

    def _address(self, name: str) -> str:
        return f"file://{self.path(name)}"  # the cluster's default file system may be another

    def _glob(self, name: str) -> str:
        """A directory may have any name; no pattern is meant."""
        return re.sub(r"([*?\[\]{}\\])", r"\\\1", self._address(name))
