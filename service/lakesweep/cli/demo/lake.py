"""A small real lake for `lakesweep demo`: tables of all three formats, with the litter that lakes gather.

Three tenants, tags, a branch, deletes, overwrites and compactions; files of failed writers, some old and some of
this minute; notes that are nobody's business; and one table that has lost a live file. A lake that is built to be
served (`demo --build-only`) also has a ghost and four weeks of runs that never were, which say so in their reason.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lakesweep.cli.demo import delta, iceberg, paimon, tables
from lakesweep.cli.demo.tables import DemoTable, Rows
from lakesweep.daemon.clock import SystemClock
from lakesweep.model.files import DeletionReport, OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome, Phase
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.model.trash import TRASH_NAME
from lakesweep.ports.state import PlanHeader, StateStore
from lakesweep.state.registry import open_state

SPARK_ABOVE_FILES = 75
"""Far below the default, so that one of these small tables counts as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLake:
    """Where the lake is, and its tables as they should look afterwards."""

    root: Path
    tables: tuple[DemoTable, ...]

    @property
    def settings(self) -> dict[str, Any]:
        initech = {"id": "initech", "root": f"file://{self.root}/initech"}
        datasets = [paimon.dataset(self.root / "initech"), delta.dataset(self.root / "initech")]
        return {
            "tenants": [*iceberg.tenants(self.root), {**initech, "datasets": datasets}],
            "engine": {"spark_above_files": SPARK_ABOVE_FILES},
            # Its old files were made just now and then dated back.
            "storage": {"local": {"age_by": "modification"}},
        }

    @property
    def planted(self) -> dict[str, tuple[Path, ...]]:
        """By table: files that no writer ever committed and that are old enough to go."""
        return {table.label: table.planted for table in self.tables}

    def rows(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for table in self.tables:
            try:
                found[table.label] = table.read()
            except FileNotFoundError:
                found[table.label] = {}
        return found

    def size(self) -> tuple[int, int]:
        """Files and bytes in the lake, catalogs and the trash not counted."""
        found = [path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".db"]
        sizes = [path.stat().st_size for path in found if TRASH_NAME not in path.parts]
        return len(sizes), sum(sizes)


def build(root: Path) -> DemoLake:
    tables = [*iceberg.build(root), asyncio.run(paimon.build(root / "initech")), delta.build(root / "initech")]
    return DemoLake(root=root, tables=tuple(tables))


WEEKS = 4
MADE_UP = "made up for the demo"
_DAYS_BETWEEN = 2
_UNIT = 4096
"""Of the made-up figures: so that they are of the size of what the lake really holds."""
_GHOST_FILE = 4096


def leave_a_ghost(root: Path) -> Path:
    """A Delta table in a tenant's root that no dataset knows."""
    place = root / "initech" / "old" / "campaigns"
    log = place / "_delta_log" / f"{0:020}.json"
    data = [place / f"part-{number:05}.parquet" for number in range(12)]
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": str(uuid.uuid4()), "format": {"provider": "parquet"}, "schemaString": "{}",
                      "partitionColumns": [], "configuration": {}}},
        *({"add": {"path": path.name, "partitionValues": {}, "size": _GHOST_FILE, "modificationTime": 0,
                   "dataChange": True}} for path in data),
    ]  # fmt: skip
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for path in data:
        path.write_bytes(b"x" * _GHOST_FILE)
    for path in (log, *data):
        tables.set_time(path, tables.days_ago(200))
    return place


async def make_up_weeks(data_dir: Path, lake: Iterable[DemoTable]) -> None:
    clock = SystemClock()
    state = await open_state(f"sqlite:///{data_dir / 'state.db'}", clock)
    try:
        for place, table in enumerate(lake):
            for day in range(7 * WEEKS, 0, -_DAYS_BETWEEN):
                await _record(
                    state, table, clock.now() - timedelta(days=day), waste=_UNIT * (8 - day % 7) * (place + 1)
                )
    finally:
        await state.aclose()


async def _record(state: StateStore, table: DemoTable, when: datetime, *, waste: int) -> None:
    tenant, dataset, name = table.label.split("/")
    ref = TableRef(tenant=TenantId(tenant), dataset=dataset, name=name, format=FormatName(table.format))
    found = Tally(files=waste // _UNIT, bytes=waste)
    cleaned = waste // _UNIT % 4 == 0
    plan = OrphanPlan(
        head=MADE_UP,
        cutoff=when,
        verdicts={Verdict.LIVE: Tally(files=40, bytes=40 * _UNIT), Verdict.ORPHAN: found},
        candidates=found,
        by_kind={"data": found},
        by_reason={Reason.UNREFERENCED: found},
        missing=(),
        missing_count=0,
        references=40,
        matched=40,
        rows_path="",
        digest="",
        engine="inprocess",
    )
    run = CleanupRun(
        id=uuid.uuid4().hex,
        table=ref,
        location=None,
        started_at=when,
        finished_at=when + timedelta(seconds=2),
        phase=Phase.FINISHED,
        outcome=Outcome.DONE if cleaned else Outcome.DRY_RUN,
        reason=MADE_UP,
        plan=plan,
        deletion=DeletionReport(deleted=found, by_kind={"data": found}) if cleaned else DeletionReport(),
    )
    await state.start_run(run)
    await state.save_plan(
        PlanHeader(
            run_id=run.id, table=ref.label, head=MADE_UP, digest="", rows_path="", candidates=found.files,
            bytes=found.bytes, created_at=when,
        )
    )  # fmt: skip
