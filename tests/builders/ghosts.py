"""A lake with a ghost beside two tables, and what tests do with ghosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, write_local

from lakesweep.daemon.app import App
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.run import CleanupRun
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")
LOG = "_delta_log"


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """One tenant with two tables, and a ghost beside them."""
    made = LocalLake(root=tmp_path)
    made.add("acme", ["source", "clone"])
    write_local(ghost(made), small_table("clicks"))
    return made


def ghost(lake: LocalLake) -> Path:
    return lake.root / "lake" / "acme" / "old" / "clicks"


def content(place: Path) -> dict[str, bytes]:
    found = [path for path in place.rglob("*") if path.is_file() and ".lakesweep-trash" not in path.parts]
    return {str(path): path.read_bytes() for path in found}


def opened(lake: LocalLake, **cleanup: object) -> App:
    rules = {"dry_run": True, "batch_size": 1, "max_concurrent_deletions": 1, **cleanup}
    return App.open(Settings.model_validate(lake.settings(orphan_cleanup=rules)))


def aged(path: Path, data: bytes = b"x") -> None:
    """An old file: only that it is new here gives it away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))


async def planned(app: App) -> list[CleanupRun]:
    works = app.ghost_search("acme")
    return [await app.plan(works.work(one)) for one in await app.ghosts("acme")]


async def approved(app: App) -> CleanupRun:
    (plan,) = await planned(app)
    assert plan.plan is not None, plan.reason
    await app.approve(plan.id, by="ada", digest=plan.plan.digest)
    return plan


async def executed(app: App, progress=None) -> list[CleanupRun]:
    works = await app.ghost_search("acme").approved()
    return [await app.run(work, execute=True, trigger=ADA, progress=progress) for work in works]
