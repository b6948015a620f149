"""The steps of one table's plan on Spark, and those of them that do not depend on where the join runs.

Executors list, and read sources; what they make is kept in a shared place. The join runs on Spark (`pipeline`), or in
this process if the table is small (`join_here`). Rows are counted when they are read back: with fewer references live
files would look unreferenced. Blocking: it runs in a thread of the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakesweep.engines.duckdb_plan import Findings
from lakesweep.engines.spark import backends
from lakesweep.engines.spark.executor import Work
from lakesweep.engines.spark.known_sources import LEARNED, KnownSources
from lakesweep.engines.spark.relations import Relations, Step
from lakesweep.engines.spark.sides import Compared
from lakesweep.model.errors import EngineFailed
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.table import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INVENTORY = "path STRING, size_bytes BIGINT, modified_at TIMESTAMP, etag STRING, match_key STRING, print BIGINT"
READ = (
    "role STRING, address STRING, match_key STRING, inside BOOLEAN, outside BOOLEAN, guarded_name STRING, "
    "print BIGINT, source INT"
)
SEEN = "match_key STRING"
PROBE = "id BIGINT"


class Steps(ABC):
    """One table's relations. Call in this order: `write_listing`, `put_known`, `read_sources` and `take_references`,
    `compare`, `judge`, `incomplete`, `explain_lost` if that names any, `find_suspects`, then `write_seen` or
    `ask_for_suspects`, `confirm`, `write_rows`; and `close` in the end."""

    asks_here = True
    """Does this process look for suspects itself, however many there are?"""

    def __init__(self, relations: Relations, counted: dict[str, int] | None = None) -> None:
        """`counted` is the number of rows of each relation that was written before."""
        self.relations = relations
        self.in_full = 0
        """How many rows of references are there in full, once they are taken."""
        self._rows: dict[str, int] = dict(counted or {})

    def probe(self, spark: SparkSession) -> None:
        """Can the executors write where the others read? Checked before anything is listed."""
        tasks = backends.parallelism(spark)
        self._rows["probe"] = self.relations.write(spark, spark.range(0, tasks, 1, tasks), "probe")
        self._check_all_there("a probe", self.relations.read(spark, "probe", PROBE).count(), tasks)

    def write_listing(self, spark: SparkSession, work: Work, shards: int) -> int:
        """List every shard, each in its own task. The listing is complete and stored when this returns its number of
        rows."""
        self._compute(spark, work, INVENTORY, pieces=shards, name="listing")
        return self._rows["listing"]

    def put_known(self, spark: SparkSession, rows: Iterable[pa.RecordBatch]) -> None:
        """What the cache knows of sources, in place of reading them."""
        self._rows["known"] = self.relations.put(spark, rows, "known")

    def read_sources(self, spark: SparkSession, work: Work, pieces: int) -> None:
        """Fetch and decode all other sources, one piece per task."""
        self._compute(spark, work, READ, pieces=pieces, name="read")

    def learn(self, known: KnownSources, sources: Sequence[ReferenceSource], spark: SparkSession) -> None:
        """Let the cache know what was read."""
        if self.relations.in_order:
            known.learn(self._stream(spark, "read", READ, LEARNED), sources)

    @property
    def counted(self) -> dict[str, int]:
        """How many rows each relation had when it was written."""
        return self._rows

    @property
    def rows_held(self) -> int:
        """How many rows the join has to do with."""
        return self._rows["listing"] + self._rows["read"] + self._rows.get("known", 0)

    @abstractmethod
    def take_references(self, spark: SparkSession) -> int:
        """Everything that names files. Returns how many sources were skipped."""

    @abstractmethod
    def compare(self, spark: SparkSession) -> Compared | None:
        """Compare the fingerprints of both sides, if that is a step of its own."""

    @abstractmethod
    def judge(self, spark: SparkSession, layout: Layout, cutoff: datetime) -> None:
        """Join what is stored with what is referenced, unless `compare` has, and judge the rest."""

    @property
    def verdicts(self) -> int:
        """How many verdicts executors have made."""
        return self._rows.get("judged", 0)

    @abstractmethod
    def take_verdicts(self, spark: SparkSession, directory: Path) -> None:
        """Take them into this process, to count and sort them here."""

    @abstractmethod
    def incomplete(self, spark: SparkSession) -> list[int]:
        """Sources of which something was not listed, and of which only fingerprints are here to say what."""

    @abstractmethod
    def explain_lost(self, spark: SparkSession, work: Work, pieces: int) -> bool:
        """Read these sources in full. Do they spell everything that was lost, and nothing that fingerprints do not
        know? If not, a source has changed between the two readings, and nothing that they say counts."""

    @abstractmethod
    def find_suspects(self, spark: SparkSession) -> int:
        """How many references should have been listed and were not."""

    @abstractmethod
    def suspects(self, spark: SparkSession) -> list[tuple[str, str]]:
        """Match key and address (or bare name) of every suspect. Only for small numbers."""

    @abstractmethod
    def bare_suspects(self, spark: SparkSession) -> int:
        """The number of suspects that are bare names, without an address to check."""

    @abstractmethod
    def ask_for_suspects(self, spark: SparkSession, work: Work, tasks: int) -> bool:
        """Check every suspect in storage, spread over the executors. Returns whether each is now known to be missing or
        present."""

    def write_seen(self, spark: SparkSession, work: Work, shards: int) -> int:
        """List again for the match keys only, or take those that this process has found."""
        self._compute(spark, work, SEEN, pieces=shards, name="seen")
        return self._rows["seen"]

    @abstractmethod
    def confirm(self, spark: SparkSession, suspects: int) -> Findings:
        """Take out of the suspects what `seen` found, and count everything."""

    @abstractmethod
    def write_rows(self, spark: SparkSession, rows_path: str) -> str:
        """Write the plan's rows in order and return their digest."""

    @abstractmethod
    def close(self, spark: SparkSession) -> None:
        """Free what the plan needed besides its relations."""

    def _compute(self, spark: SparkSession, work: Work, schema: str, *, pieces: int, name: str) -> None:
        numbers = spark.range(0, pieces, 1, max(pieces, 1))
        self._write(spark, numbers, name, Step(work, schema))

    def _write(self, spark: SparkSession, relation: DataFrame, name: str, step: Step | None = None) -> None:
        self._rows[name] = self.relations.write(spark, relation, name, step)

    def _read(self, spark: SparkSession, name: str, schema: Any) -> DataFrame:
        return self.relations.read(spark, name, schema)

    def _stream(self, spark: SparkSession, name: str, schema: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a relation into this process, or an error."""
        found = 0
        for batch in self.relations.stream(spark, name, schema, columns):
            found += batch.num_rows
            yield batch
        self._check_all_there(name, found, self._rows[name])

    def _check_all_there(self, what: str, found: int, written: int) -> None:
        """If written files have gone, or Spark does not see them, live files would look unreferenced."""
        if found != written:
            raise EngineFailed(
                f"{written} rows of {what} were written to {self.relations.where} but Spark finds {found} there"
            )
