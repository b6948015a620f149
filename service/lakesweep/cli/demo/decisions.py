"""What the demo's dashboard shows beside the lake: a ghost, and four weeks of runs that never were.

Only for a lake that is built to be served (`demo --build-only`). The made-up runs say so in their reason.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from lakesweep.cli.demo import tables
from lakesweep.cli.demo.tables import DemoTable
from lakesweep.daemon.clock import SystemClock
from lakesweep.model.files import DeletionReport, OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome, Phase
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import PlanHeader, StateStore
from lakesweep.state.registry import open_state

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
