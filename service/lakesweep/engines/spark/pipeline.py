"""The plan as DataFrames: `plan.sql` through Spark SQL over relations that are kept in a shared place.

What must not be computed twice is written before anything reads it, above all the listing: if Spark repeated it after
the table was read, it would no longer be older than the references. Rows are counted when they are read back:
references on a disk that only one executor sees would make live files look unreferenced. Nothing that grows with the
table comes into this process, except as a stream. Blocking: it runs in a thread of the session.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakesweep.cleanup import plan_file
from lakesweep.engines.common import statements
from lakesweep.engines.duckdb_plan import CONTRADICTIONS, INCOMPLETE, Findings
from lakesweep.engines.spark import backends, executor
from lakesweep.engines.spark.executor import Work
from lakesweep.engines.spark.relations import Relations, Step, streamed_back
from lakesweep.engines.spark.steps import INVENTORY, READ, SEEN, Steps
from lakesweep.engines.spark.worker_rows import SKIPPED, STAND_IN
from lakesweep.model.files import Reason, Tally, Verdict
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
_STAND_INS = "SELECT print, inside, source FROM read WHERE role = '{stand_in}'"
_TAKEN = f"SELECT count(*), count_if(role = '{SKIPPED}'), count_if(role = 'released') FROM read"  # noqa: S608  # a constant of ours
_NOTHING_RELEASED = "SELECT CAST(NULL AS STRING) AS address, CAST(NULL AS STRING) AS bare WHERE false"
"""What Spark proves to be empty costs no join."""

_SIDES = """
SELECT print, bit_or(marks) AS marks
FROM (
    SELECT /*+ REPARTITION({tasks}, print) */ print, marks
    FROM (
        SELECT print, CAST(1 AS TINYINT) AS marks FROM inventory
        UNION ALL
        SELECT print, CAST(if(inside, 6, 2) AS TINYINT) AS marks FROM held
        UNION ALL
        SELECT print, CAST(if(inside, 6, 2) AS TINYINT) AS marks FROM stand_ins
    )
)
GROUP BY print
"""
"""Every fingerprint once, and on which sides it is: 1 is listed, 2 is referenced, 4 should be listed. One pass over
nine bytes of every listed object and every reference takes the place of the joins behind `prints` and `lost`."""
_COUNTED = """
SELECT count(*), count_if(marks & 2 = 2), count_if(marks = 1), count_if(marks & 5 = 4)
FROM sides
"""
_PRINTS = "SELECT print, marks & 4 = 4 AS inside FROM sides WHERE marks & 2 = 2"
_LOST = "SELECT print FROM sides WHERE marks & 5 = 4"
_UNKEPT = """
SELECT {hint} i.*
FROM inventory i
SEMI JOIN (SELECT print FROM sides WHERE marks = 1) k ON k.print = i.print
"""
"""Listed objects that no reference has the fingerprint of: all that `unreferenced` has to look at."""
_NO_PRINTS = "SELECT print, inside FROM prints WHERE false"
"""What is left of `prints` for those."""
_SIDES_ROWS = 1_000_000
"""Rows of `sides` in one task: some tens of megabytes."""
_BROADCAST_ROWS = 2_000_000
"""Fingerprints that every executor can hold: some sixty megabytes."""

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
        self._references = 0
        self._lost = 0

    def take_references(self, spark: SparkSession) -> int:
        self._define("listing", self._read(spark, "listing", INVENTORY))
        self._define("inventory", self._sql(spark, _INVENTORY))
        read = self._read(spark, "read", READ)
        if known := self._rows.get("known", 0):
            read = read.unionByName(self._read(spark, "known", READ))
        self._define("read", read)
        self._define("refs", self._sql(spark, _REFS.format(read="read", stand_in=STAND_IN)))
        self._define("stand_ins", self._sql(spark, _STAND_INS.format(stand_in=STAND_IN)))
        found, skipped, released = self._sql(spark, _TAKEN).first()
        self._check_all_there("references", found, self._rows["read"] + known)
        self._define("released", self._sql(spark, statements()["released"] if released else _NOTHING_RELEASED))
        self._define("held", self._sql(spark, statements()["held"]))
        return int(skipped)

    def judge(self, spark: SparkSession, layout: Layout, cutoff: datetime) -> None:
        tasks = max(backends.parallelism(spark), math.ceil(self.rows_held / _SIDES_ROWS))
        sides = self._sql(spark, _SIDES.format(tasks=tasks))
        self._write(spark, sides, "sides")
        self._define("sides", self._read(spark, "sides", sides.schema))
        found, self._references, unkept, self._lost = self._sql(spark, _COUNTED).first()
        self._check_all_there("fingerprints", found, self._rows["sides"])
        self._define("prints", self._sql(spark, _PRINTS))
        hint = "/*+ BROADCAST(k) */" if unkept <= _BROADCAST_ROWS else ""
        self._define("inventory", self._sql(spark, _UNKEPT.format(hint=hint)))
        self._define("prints", self._sql(spark, _NO_PRINTS))
        judging = Step(executor.judging(layout, cutoff), JUDGED)
        self._write(spark, self._sql(spark, statements()["unreferenced"]), "judged", judging)
        # From the start again: over Connect, a statement that is kept means whatever its names mean when it runs.
        self._define("inventory", self._sql(spark, _INVENTORY))
        self._define("prints", self._sql(spark, _PRINTS))
        self._define("judged", self._read(spark, "judged", JUDGED))

    def incomplete(self, spark: SparkSession) -> list[int]:
        if not self._lost:
            return []  # the usual case
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
        return self._table(spark, "suspects") if self._lost else 0

    def suspects(self, spark: SparkSession) -> list[tuple[str, str]]:
        return [tuple(row) for row in self._sql(spark, "SELECT match_key, path FROM suspects").collect()]

    def ask_for_suspects(self, spark: SparkSession, work: Work, tasks: int) -> bool:
        suspects = self._sql(spark, "SELECT match_key, path FROM suspects").repartition(tasks)
        self._write(spark, suspects, "seen", Step(work, SEEN))
        return bool(self._read(spark, "seen", SEEN).where("match_key IS NULL").count() == 0)

    def bare_suspects(self, spark: SparkSession) -> int:
        return self._number(spark, "SELECT count(*) FROM suspects WHERE NOT contains(path, '/')")

    def confirm(self, spark: SparkSession, suspects: int) -> Findings:
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
            references=self._references,
            missing=missing,
            missing_count=count,
            missing_clash=clash,
            unverified=int(unverified),
            unverified_first=first,
            unverified_shown=self._texts(spark, "unverified_shown") if unverified else (),
            unreferenced_metadata=self._texts(spark, "unreferenced_metadata"),
        )

    def write_rows(self, spark: SparkSession, rows_path: str) -> str:
        """Spark sorts them and streams the sorted parts."""
        written = 0
        with plan_file.PlanWriter(rows_path) as plan:
            for batch in streamed_back(self._sql(spark, statements()["rows"])):
                plan.write(batch.cast(plan_file.PLAN_SCHEMA))
                written += batch.num_rows
        self._check_all_there("the plan", written, self._orphans)
        return plan.digest

    def close(self, spark: SparkSession) -> None:
        """Remove this run's views and cached relations from the session."""
        for view in self._views:
            spark.catalog.dropTempView(view)

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
