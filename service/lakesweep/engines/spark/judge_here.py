"""The verdicts on what a table's comparison has left, in this process: files that no fingerprint keeps.

Spark compares, which is what grows with the table. Few files are left in most tables, and Spark would need a dozen jobs
to look up what else is said of them. The in-process engine's own detection does that over their rows alone: the
statements, the rules and the plan are the same. Only where this process reads scratch itself. Blocking: it runs in a
thread of the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.addresses import INVENTORY_SCHEMA, PLACED_SCHEMA
from lakesweep.engines.duckdb_plan import Findings
from lakesweep.engines.manifest_fingerprints import STAND_IN_SCHEMA
from lakesweep.engines.scratch import scratch_writer
from lakesweep.engines.spark import sides
from lakesweep.engines.spark.join_here import JoinedHere, asked_here
from lakesweep.engines.spark.relations import LocalFiles
from lakesweep.engines.spark.sides import Compared
from lakesweep.engines.spark.steps import INVENTORY, Steps
from lakesweep.model.files import Tally, Verdict
from lakesweep.ports.table import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JudgedHere(JoinedHere):
    """The rest of a plan, after another's executors have listed, read and compared. Nothing is lost in it."""

    @staticmethod
    def may(before: Steps, compared: Compared, most: int) -> bool:
        """Are at most so many rows left, and no file lost? To explain a lost one, all references are needed."""
        few = max(compared.unkept, before.in_full) <= most
        return few and not compared.lost and isinstance(before.relations, LocalFiles)

    def __init__(self, before: Steps, compared: Compared, directory: Path) -> None:
        """`may` has said so."""
        super().__init__(before, directory)
        self._before = before
        self._files = cast("LocalFiles", before.relations)
        self._compared = compared

    def judge(self, spark: SparkSession, layout: Layout, cutoff: datetime) -> None:
        """References that are there as fingerprints only have done their part in the comparison."""
        self._take_unkept(spark)
        with scratch_writer(self._detection.refs, PLACED_SCHEMA) as refs:
            for batch in self._in_full():
                refs.write_batch(batch.cast(PLACED_SCHEMA))
        scratch_writer(self._detection.stand_ins, STAND_IN_SCHEMA).close()
        super().judge(spark, layout, cutoff)
        asked_here(self._detection.look_for_none)

    def _take_unkept(self, spark: SparkSession) -> None:
        """Executors find the rows of the listing. Two objects may have one fingerprint, so there may be more rows."""
        load, count = self._files.loader("sides", ("print", "marks")), self._compared.unkept
        self._rows["unkept"] = 0
        if count:
            choosing = partial(sides.Unkept, load, count)
            self._rows["unkept"] = self._files.choose(spark, "listing", INVENTORY_SCHEMA.names, choosing, "unkept")
        self._copy(spark, "unkept", INVENTORY, self._detection.inventory, INVENTORY_SCHEMA)

    def _in_full(self) -> Iterator[pa.RecordBatch]:
        found = 0
        for name in ("known", "read"):
            for batch in self._files.rows(name, PLACED_SCHEMA.names, standing=False) if name in self._rows else ():
                found += batch.num_rows
                yield batch
        self._check_all_there("references in full", found, self._before.in_full)

    def incomplete(self, spark: SparkSession) -> list[int]:  # noqa: ARG002  # the protocol's
        return []

    def find_suspects(self, spark: SparkSession) -> int:  # noqa: ARG002  # the protocol's
        return 0

    def confirm(self, spark: SparkSession, suspects: int) -> Findings:  # noqa: ARG002  # the protocol's
        """The detection has seen only what is left: what is live is the rest of the listing."""
        found = asked_here(self._detection.confirm)
        judged = sum((tally for verdict, tally in found.verdicts.items() if verdict is not Verdict.LIVE), Tally())
        self._check_all_there("verdicts", judged.files, self._rows["unkept"])
        sizes = self._stream(spark, "listing", INVENTORY, ["size_bytes"])
        size = sum(pc.sum(batch.column(0)).as_py() or 0 for batch in sizes)
        live = Tally(files=self._rows["listing"] - judged.files, bytes=size - judged.bytes)
        return replace(found, verdicts={**found.verdicts, Verdict.LIVE: live}, references=self._compared.references)

    def close(self, spark: SparkSession) -> None:
        try:
            super().close(spark)
        finally:
            self._before.close(spark)
