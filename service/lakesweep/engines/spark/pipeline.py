"""The plan as DataFrames: `plan.sql` through Spark SQL over relations that are kept in a shared place.

What must not be computed twice is written before anything reads it, above all the listing: if Spark repeated it after
the table was read, it would no longer be older than the references. Rows are counted when they are read back:
references on a disk that only one executor sees would make live files look unreferenced. Nothing that grows with the
table comes into this process, except as a stream. Blocking: it runs in a thread of the session.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.addresses import INVENTORY_SCHEMA, Role
from lakesweep.cleanup.classify import JUDGED_SCHEMA
from lakesweep.engines.common import statements
from lakesweep.engines.duckdb_plan import CONTRADICTIONS, INCOMPLETE, Detection, Findings, tallied
from lakesweep.engines.spark import backends, executor, sides
from lakesweep.engines.spark.executor import Work
from lakesweep.engines.spark.join_here import asked_here, opened_here
from lakesweep.engines.spark.relations import LocalFiles, Relations, Step, Wanted, streamed_back
from lakesweep.engines.spark.sides import INSIDE, LISTED, NUMBERS, REFERENCED, STOOD_IN, Compared
from lakesweep.engines.spark.steps import INVENTORY, READ, SEEN, Steps
from lakesweep.engines.spark.worker_rows import SKIPPED, STAND_IN
from lakesweep.model.files import Tally, Verdict
from lakesweep.ports.table import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JUDGED = (
    "path STRING, size_bytes BIGINT, modified_at TIMESTAMP, etag STRING, verdict STRING, kind STRING, reason STRING, "
    "stage INT"
)

_INVENTORY = """
SELECT path, coalesce(match_key, path) AS match_key, print, size_bytes, modified_at, etag
FROM listing
"""
_REFS = """
SELECT role, address, CASE WHEN address IS NULL THEN match_key END AS bare, coalesce(match_key, address) AS match_key,
       inside, outside, guarded_name, print
FROM {read}
WHERE role <> '{stand_in}'
"""
_STAND_INS = "SELECT print, inside, source FROM stood_in WHERE role = '{stand_in}'"
_TAKEN = f"""
SELECT count(*), count_if(role = '{SKIPPED}'), count_if(role = 'released'), count_if(role IN ('named', 'read'))
FROM read
"""  # noqa: S608  # a constant of ours
_NOTHING_RELEASED = "SELECT CAST(NULL AS STRING) AS address, CAST(NULL AS STRING) AS bare WHERE false"
"""What Spark proves to be empty costs no join."""

_COUNTED = f"""
SELECT count(*), count_if(marks = {LISTED}), count_if(marks = {INSIDE}),
       {", ".join(f"coalesce(sum(print) FILTER (WHERE marks = {mark}), 0)" for mark in NUMBERS)}
FROM sides
"""  # noqa: S608  # constants of ours
_PRINTS = "SELECT print, inside FROM held UNION ALL SELECT print, inside FROM stand_ins"
_LOST = f"SELECT print FROM sides WHERE marks = {INSIDE}"  # noqa: S608  # a constant of ours
_UNKEPT = f"""
SELECT {{hint}} i.*
FROM listing i
SEMI JOIN (SELECT print FROM sides WHERE marks = {LISTED}) k ON k.print = i.print
"""  # noqa: S608  # a constant of ours
"""Listed objects that no reference has the fingerprint of: all that `unreferenced` has to look at."""
_NO_PRINTS = "SELECT CAST(NULL AS BIGINT) AS print, false AS inside WHERE false"
"""What is left of `prints` for those."""
_SIDES_ROWS = 1_000_000
"""Fingerprints that one task compares: some tens of megabytes."""
_BROADCAST_ROWS = 2_000_000
"""Fingerprints that every executor can hold: some sixty megabytes."""
_WORKER_ROWS = 12_000_000
"""Fingerprints that every Python worker can hold: up to 260 MB, most of it for a moment."""

_FINGERPRINT = re.compile(r"\bfingerprint\((\w+\.)?match_key\)")
"""Workers have made it, see `worker_rows`."""
_RELATION = re.compile(r"\b(FROM|JOIN) ([a-z_]+)\b")


class Pipeline(Steps):
    """The join on Spark."""

    asks_here = False

    def __init__(self, relations: Relations) -> None:
        super().__init__(relations)
        self._prefix = f"lakesweep_{relations.tag}_"
        self._views: set[str] = set()
        self._orphans = 0
        self._found = Compared(*[0] * len(Compared._fields))
        self._held = 0
        self._here: Detection | None = None
        """Has the verdicts, if they are in this process."""

    def take_references(self, spark: SparkSession) -> int:
        self._define("listing", self._read(spark, "listing", INVENTORY))
        self._define("inventory", self._sql(spark, _INVENTORY))
        for name, standing in (("read", False), ("stood_in", True)):
            both = [self.relations.read(spark, one, READ, standing=standing) for one in self._gathered]
            self._define(name, _together(both))
        self._define("refs", self._sql(spark, _REFS.format(read="read", stand_in=STAND_IN)))
        self._define("stand_ins", self._sql(spark, _STAND_INS.format(stand_in=STAND_IN)))
        self.in_full, skipped, released, held = self._taken(spark)
        self._define("released", self._sql(spark, statements()["released"] if released else _NOTHING_RELEASED))
        self._define("held", self._sql(spark, statements()["held"]))
        self._held = self._number(spark, "SELECT count(*) FROM held") if released else held
        return int(skipped)

    def _taken(self, spark: SparkSession) -> tuple[int, int, int, int]:
        """The row of _TAKEN. Where this process reads scratch itself, counting is less work than a job. If references
        are released, Spark counts what is held, so Spark must also count what it was taken from."""
        if not isinstance(self.relations, LocalFiles):
            return self._taken_by_spark(spark)
        roles = Counter[str]()
        for name in self._gathered:
            for batch in self.relations.rows(name, ["role"], standing=False):
                roles.update({pair["values"]: pair["counts"] for pair in batch.column(0).value_counts().to_pylist()})
        if roles[Role.RELEASED]:
            return self._taken_by_spark(spark)
        return roles.total(), roles[SKIPPED], roles[Role.RELEASED], roles[Role.NAMED] + roles[Role.READ]

    def _taken_by_spark(self, spark: SparkSession) -> tuple[int, int, int, int]:
        return tuple(self._sql(spark, _TAKEN).first())

    def judge(self, spark: SparkSession, layout: Layout, cutoff: datetime) -> None:
        self._define("listing", self._unkept(spark, self._found.unkept))
        self._define("inventory", self._sql(spark, _INVENTORY))
        self._define("prints", self._sql(spark, _NO_PRINTS))
        judging = Step(executor.judging(layout, cutoff), JUDGED)
        self._write(spark, self._sql(spark, statements()["unreferenced"]), "judged", judging)
        # From the start again: over Connect, a statement that is kept means whatever its names mean when it runs.
        self._define("listing", self._read(spark, "listing", INVENTORY))
        self._define("inventory", self._sql(spark, _INVENTORY))
        self._define("judged", self._read(spark, "judged", JUDGED))

    def compare(self, spark: SparkSession) -> Compared:
        """Find out which fingerprints are on one side only: listed, or referenced and not listed. One pass over eight
        bytes of every listed object and every reference takes the place of the joins behind `prints` and `lost`."""
        tasks = max(backends.parallelism(spark), math.ceil(self.rows_held / _SIDES_ROWS))
        blocks = self._blocks(spark, min(tasks * sides.BUCKETS_PER_TASK, sides.MOST_BUCKETS))
        self._write(spark, blocks.repartition(tasks, "bucket"), "sides", Step(sides.comparing(), sides.SIDES))
        self._define("sides", self._read(spark, "sides", sides.SIDES))
        if isinstance(self.relations, LocalFiles):  # see _taken
            found = sides.counted(self.relations.rows("sides", ("print", "marks")))
        else:
            found = Compared(*self._sql(spark, _COUNTED).first())
        self._check_all_there("fingerprints", found.rows, self._rows["sides"])
        self._check_all_there("the listing", found.listed, self._rows["listing"])
        read = sum(self._rows[name] for name in self._gathered)
        self._check_all_there("references", self.in_full + found.stood_in, read)
        self._check_all_there("references in full", found.held, self._held)
        self._found = found
        return found

    def _blocks(self, spark: SparkSession, buckets: int) -> DataFrame:
        """The fingerprints of both sides, divided into buckets."""

        def step(marks: int) -> Step:
            return Step(sides.dividing(marks, buckets), sides.BLOCK)

        held = self._sql(spark, "SELECT print, inside FROM held").mapInArrow(*step(REFERENCED))
        listed = self.relations.through(spark, Wanted("listing", INVENTORY, ("print",)), step(LISTED))
        stood_in = [
            self.relations.through(
                spark, Wanted(name, READ, ("print", "inside"), standing=True), step(REFERENCED | STOOD_IN)
            )
            for name in self._gathered
        ]
        return _together([listed, *stood_in, held])

    def _unkept(self, spark: SparkSession, count: int) -> DataFrame:
        """The rows of the listing with fingerprints that nothing references."""
        if not count:
            return spark.createDataFrame([], INVENTORY)
        load = self.relations.loader("sides", ("print", "marks")) if count <= _WORKER_ROWS else None
        if load is None:
            hint = "/*+ BROADCAST(k) */" if count <= _BROADCAST_ROWS else ""
            return self._sql(spark, _UNKEPT.format(hint=hint))
        columns, choosing = [*INVENTORY_SCHEMA.names, "print"], partial(sides.Unkept, load, count)
        wanted = Wanted("listing", INVENTORY, columns, choosing=choosing)
        return self.relations.through(spark, wanted, Step(executor.unchanged, INVENTORY))

    @property
    def _gathered(self) -> list[str]:
        """The relations with references."""
        return ["read", *(["known"] if self._rows.get("known") else [])]

    def incomplete(self, spark: SparkSession) -> list[int]:
        if not self._found.lost:
            return []  # the usual case
        self._define("prints", self._sql(spark, _PRINTS))
        self._define("lost", self._sql(spark, _LOST))
        return [number for (number,) in self._sql(spark, INCOMPLETE).collect()]

    def explain_lost(self, spark: SparkSession, work: Work, pieces: int) -> bool:
        self._compute(spark, work, READ, pieces=pieces, name="recalled")
        recalled = self._read(spark, "recalled", READ)
        self._check_all_there("references", recalled.count(), self._rows["recalled"])
        self._define("recalled", recalled)
        refs = self._sql(spark, "SELECT * FROM refs")
        self._define("refs", refs.unionByName(self._sql(spark, _REFS.format(read="recalled", stand_in=STAND_IN))))
        self._define("held", self._sql(spark, statements()["held"]))
        return not any(self._number(spark, query) for query in CONTRADICTIONS)

    def find_suspects(self, spark: SparkSession) -> int:
        return self._table(spark, "suspects") if self._found.lost else 0

    def suspects(self, spark: SparkSession) -> list[tuple[str, str]]:
        return [tuple(row) for row in self._sql(spark, "SELECT match_key, path FROM suspects").collect()]

    def ask_for_suspects(self, spark: SparkSession, work: Work, tasks: int) -> bool:
        suspects = self._sql(spark, "SELECT match_key, path FROM suspects").repartition(tasks)
        self._write(spark, suspects, "seen", Step(work, SEEN))
        return bool(self._read(spark, "seen", SEEN).where("match_key IS NULL").count() == 0)

    def bare_suspects(self, spark: SparkSession) -> int:
        return self._number(spark, "SELECT count(*) FROM suspects WHERE NOT contains(path, '/')")

    def confirm(self, spark: SparkSession, suspects: int) -> Findings:
        verdicts, by_kind, by_reason = tallied(self._of_verdicts(spark, "tallies"))
        files, size = self._sql(spark, statements()["totals"]).first()
        judged = sum(verdicts.values(), Tally())
        self._check_all_there("the listing", files, self._rows["listing"])
        self._check_all_there("verdicts", judged.files, self._rows["judged"])
        self._orphans = verdicts[Verdict.ORPHAN].files
        verdicts[Verdict.LIVE] = Tally(files=files - judged.files, bytes=int(size) - judged.bytes)
        missing, count, clash = self._missing(spark) if suspects else ((), 0, ())
        unverified, first = self._sql(spark, statements()["unverified"]).first()
        return Findings(
            verdicts=verdicts,
            by_kind=by_kind,
            by_reason=by_reason,
            references=self._found.references,
            missing=missing,
            missing_count=count,
            missing_clash=clash,
            unverified=int(unverified),
            unverified_first=first,
            unverified_shown=self._texts(spark, "unverified_shown") if unverified else (),
            unreferenced_metadata=tuple(text for (text,) in self._of_verdicts(spark, "unreferenced_metadata")),
        )

    def write_rows(self, spark: SparkSession, rows_path: str) -> str:
        """Spark sorts them and streams the sorted parts, unless they are here."""
        if (here := self._here) is not None:
            return asked_here(lambda: here.write_rows(rows_path))
        written = 0
        with plan_file.PlanWriter(rows_path) as plan:
            for batch in streamed_back(self._sql(spark, statements()["rows"])):
                plan.write(batch.cast(plan_file.PLAN_SCHEMA))
                written += batch.num_rows
        self._check_all_there("the plan", written, self._orphans)
        return plan.digest

    def close(self, spark: SparkSession) -> None:
        """Remove this run's views from the session."""
        for view in self._views:
            spark.catalog.dropTempView(view)
        if self._here is not None:
            self._here.close()

    def take_verdicts(self, spark: SparkSession, directory: Path) -> None:
        """Count and sort them in this process: with few of them Spark takes longer to begin than that takes."""
        self._here = here = opened_here(directory)
        verdicts = self._stream(spark, "judged", JUDGED, JUDGED_SCHEMA.names)
        asked_here(lambda: here.take_judged(batch.cast(JUDGED_SCHEMA) for batch in verdicts))

    def _of_verdicts(self, spark: SparkSession, name: str) -> list[Any]:
        """The rows of a statement that asks for nothing but verdicts."""
        if (here := self._here) is not None:
            return asked_here(lambda: here.ask(name))
        return list(self._sql(spark, statements()[name]).collect())

    def _missing(self, spark: SparkSession) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
        self._define("seen", self._read(spark, "seen", SEEN))
        self._define("missing", self._sql(spark, statements()["missing"]))
        count = self._number(spark, statements()["missing_count"])
        if not count:
            return (), 0, ()
        return self._texts(spark, "missing_shown"), count, self._texts(spark, "missing_clash")

    def _table(self, spark: SparkSession, name: str) -> int:
        """Materialise the shared statement of that name. Returns how many rows it has."""
        result = self._sql(spark, statements()[name])
        self._write(spark, result, name)
        self._define(name, self._read(spark, name, result.schema))
        rows = self._rows[name]
        if rows:
            self._check_all_there(name, self._number(spark, f"SELECT count(*) FROM {name}"), rows)  # noqa: S608  # ours
        return rows

    def _sql(self, spark: SparkSession, statement: str) -> DataFrame:
        """One of the shared statements. Several runs share the session, so the names of relations have a prefix."""
        own = _RELATION.sub(lambda found: f"{found.group(1)} {self._prefix}{found.group(2)}", statement)
        return spark.sql(_FINGERPRINT.sub(r"\1print", own))

    def _define(self, name: str, relation: DataFrame) -> None:
        """From now on the statements call this so. What was defined by the old meaning of a name keeps it."""
        relation.createOrReplaceTempView(f"{self._prefix}{name}")
        self._views.add(f"{self._prefix}{name}")

    def _number(self, spark: SparkSession, statement: str) -> int:
        row: Any = self._sql(spark, statement).first()
        return int(row[0])

    def _texts(self, spark: SparkSession, name: str) -> tuple[str, ...]:
        return tuple(text for (text,) in self._sql(spark, statements()[name]).collect())


def _together(relations: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda some, more: some.unionByName(more), relations)
