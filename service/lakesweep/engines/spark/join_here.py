"""The join of a small table in this process: what executors have listed and read, through the in-process engine's own
detection.

Spark plans a query in more time than DuckDB takes for all of them, if there are few rows. The statements, the rules and
the plan are the same; only the place differs. Bounded: a table with more rows is joined on Spark. Blocking: it runs in
a thread of the session.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.addresses import INVENTORY_SCHEMA, PLACED_SCHEMA
from lakesweep.engines.duckdb_plan import SEEN_SCHEMA, Detection, Findings
from lakesweep.engines.manifest_fingerprints import STAND_IN_SCHEMA
from lakesweep.engines.scratch import scratch_writer
from lakesweep.engines.spark.executor import Work
from lakesweep.engines.spark.steps import INVENTORY, READ, SEEN, Steps
from lakesweep.engines.spark.worker_rows import READ_SCHEMA, SKIPPED, STAND_IN
from lakesweep.model.errors import EngineFailed
from lakesweep.ports.table import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_MEMORY_LIMIT = "256MB"
_THREADS = 2
_LINE = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinHere:
    """Which tables are joined in this process, and where."""

    directory: Path
    """On this machine; a directory below it is used and removed."""
    rows: int
    """At most so many listed objects and references together."""
    left: int = 1_000_000
    """Of other tables, the rest after the comparison is judged here if it has at most so many rows."""
    verdicts: int = 4_000_000
    """Of other tables at most so many verdicts are counted and sorted here."""


def opened_here(directory: Path) -> Detection:
    """With little memory; the rest goes to the directory."""
    return Detection(directory, memory_limit=_MEMORY_LIMIT, threads=min(_THREADS, os.cpu_count() or 1))


def asked_here(work: Callable[[], T]) -> T:
    """The result, or one sentence."""
    try:
        return work()
    except duckdb.Error as exc:
        raise EngineFailed(f"this process could not join or sort: {str(exc).partition(_LINE)[0]}") from exc


class JoinedHere(Steps):
    """The join in this process, over the relations that another's executors have written."""

    def __init__(self, gathered: Steps, directory: Path) -> None:
        super().__init__(gathered.relations, gathered.counted)
        self._detection = opened_here(directory)
        self._looked = False

    def take_references(self, spark: SparkSession) -> int:
        self._copy(spark, "listing", INVENTORY, self._detection.inventory, INVENTORY_SCHEMA)
        skipped = 0
        with (
            scratch_writer(self._detection.refs, PLACED_SCHEMA) as refs,
            scratch_writer(self._detection.stand_ins, STAND_IN_SCHEMA) as stand_ins,
        ):
            for name in ("known", "read"):
                for rows in self._stream(spark, name, READ, READ_SCHEMA.names) if name in self._rows else ():
                    batch = rows.cast(READ_SCHEMA)
                    standing = pc.equal(batch.column("role"), STAND_IN)
                    skipped += pc.sum(pc.equal(batch.column("role"), SKIPPED)).as_py() or 0
                    stand_ins.write_batch(_stand_ins(batch.filter(standing)))
                    refs.write_batch(batch.filter(pc.invert(standing)).select(PLACED_SCHEMA.names).cast(PLACED_SCHEMA))
        return skipped

    def compare(self, spark: SparkSession) -> None:
        """The join does it."""

    def judge(self, spark: SparkSession, layout: Layout, cutoff: datetime) -> None:  # noqa: ARG002  # the protocol's
        asked_here(lambda: self._detection.judge(layout, cutoff))

    def take_verdicts(self, spark: SparkSession, directory: Path) -> NoReturn:
        raise NotImplementedError("the verdicts on a small table are made in this process")

    def incomplete(self, spark: SparkSession) -> list[int]:  # noqa: ARG002  # the protocol's
        return asked_here(self._detection.find_lost)

    def explain_lost(self, spark: SparkSession, work: Work, pieces: int) -> bool:
        self._compute(spark, work, READ, pieces=pieces, name="recalled")
        self._copy(spark, "recalled", READ, self._detection.recalled, PLACED_SCHEMA)
        return asked_here(self._detection.explain_lost)

    def find_suspects(self, spark: SparkSession) -> int:  # noqa: ARG002  # the protocol's
        self._looked = True
        return asked_here(self._detection.find_suspects)

    def suspects(self, spark: SparkSession) -> list[tuple[str, str]]:  # noqa: ARG002  # the protocol's
        return asked_here(self._detection.suspects)

    def bare_suspects(self, spark: SparkSession) -> int:
        return sum("/" not in path for _, path in self.suspects(spark))

    def ask_for_suspects(self, spark: SparkSession, work: Work, tasks: int) -> NoReturn:
        raise NotImplementedError("this process asks for the suspects of a small table")

    def confirm(self, spark: SparkSession, suspects: int) -> Findings:
        if not self._looked:
            asked_here(self._detection.look_for_none)
        elif suspects:
            self._copy(spark, "seen", SEEN, self._detection.seen, SEEN_SCHEMA)
        else:
            scratch_writer(self._detection.seen, SEEN_SCHEMA).close()
        found = asked_here(self._detection.confirm)
        self._check_all_there("the listing", sum(one.files for one in found.verdicts.values()), self._rows["listing"])
        return found

    def write_rows(self, spark: SparkSession, rows_path: str) -> str:  # noqa: ARG002  # the protocol's
        return asked_here(lambda: self._detection.write_rows(rows_path))

    def close(self, spark: SparkSession) -> None:  # noqa: ARG002  # the protocol's
        self._detection.close()

    def _copy(self, spark: SparkSession, name: str, schema: str, target: Path, wanted: pa.Schema) -> None:
        with scratch_writer(target, wanted) as writer:
            for batch in self._stream(spark, name, schema, wanted.names):
                writer.write_batch(batch.cast(wanted))


def _stand_ins(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rows.column("print").view(pa.uint64()), rows.column("inside"), rows.column("source")]
    return pa.RecordBatch.from_arrays(columns, schema=STAND_IN_SCHEMA)
