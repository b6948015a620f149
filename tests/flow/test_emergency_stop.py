"""A stop from anywhere ends the sweeps of all replicas before their next page, and what it stopped stays paused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.daemon import holds
from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings
from lakesweep.storage.local.deleter import LocalDeleter

TABLES = ("one", "two", "three")
ORPHANS = 8


class Pages:
    """Real deletes of one file each, that wait at their gate until the test lets them through."""

    def __init__(self, monkeypatch) -> None:
        self.waiting = 0
        self.goes = asyncio.Event()
        real = LocalDeleter.delete

        async def gated(deleter, paths, conditions=None):
            self.waiting += 1
            await self.goes.wait()
            return await real(deleter, paths, conditions)

        monkeypatch.setattr(LocalDeleter, "delete", gated)

    async def until(self, waiting: int) -> None:
        async with asyncio.timeout(60):
            while self.waiting < waiting:
                await asyncio.sleep(0.01)


@pytest.fixture
async def replicas(tmp_path: Path):
    """Three services on one SQLite database, each with a table of its own, and the command line beside them."""
    lake = LocalLake(root=tmp_path)
    lake.add("acme", TABLES, orphans=ORPHANS)
    cleanup = {"enabled": True, "dry_run": False, "batch_size": 1, "max_concurrent_deletions": 2}
    settings = Settings.model_validate(
        lake.settings(orphan_cleanup=cleanup, state={"url": f"sqlite:///{tmp_path}/state.db"})
    )
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(App.open(settings)) for _ in range(4)]
        yield lake, apps


async def sweeping(apps: list[App]) -> list[asyncio.Task]:
    tasks = []
    for app, table in zip(apps, TABLES, strict=False):
        (work,) = await app.resolve(f"acme/d/{table}")
        tasks.append(asyncio.create_task(app.run(work, execute=None)))
    return tasks


@pytest.mark.parametrize("way", [holds.stop, holds.pause])
async def test_a_stop_from_any_replica_ends_all_sweeps_before_their_next_page(replicas, monkeypatch, way):
    lake, (*apps, elsewhere) = replicas
    pages = Pages(monkeypatch)
    tasks = await sweeping(apps)
    await pages.until(len(TABLES))
    hold = Hold(scope="*", since=elsewhere.clock.now(), by="somebody", reason="wrong files go")
    reached = await way(elsewhere, hold)
    assert way is holds.pause or len(reached) == len(TABLES)
    pages.goes.set()
    runs = await asyncio.gather(*tasks)
    assert [(run.outcome, run.refusal.code) for run in runs] == [(Outcome.REFUSED, "held")] * len(TABLES)
    assert [run.deletion.deleted.files for run in runs] == [0] * len(TABLES)
    assert all(len(lake.orphans_left(f"acme/d/{table}")) == ORPHANS for table in TABLES)

    again = await asyncio.gather(*await sweeping(apps))
    assert [run.refusal.code for run in again] == ["held"] * len(TABLES)
    await elsewhere.state.clear_hold("*")
    done = await asyncio.gather(*await sweeping(apps))
    assert [run.outcome for run in done] == [Outcome.DONE] * len(TABLES)
    lake.check_live()


async def test_a_stop_of_one_table_leaves_the_others_alone(replicas, monkeypatch):
    lake, (*apps, elsewhere) = replicas
    pages = Pages(monkeypatch)
    tasks = await sweeping(apps)
    await pages.until(len(TABLES))
    hold = Hold(scope="acme/d/two", since=elsewhere.clock.now(), by="somebody")
    await holds.stop(elsewhere, hold)
    pages.goes.set()
    runs = await asyncio.gather(*tasks)
    assert [run.outcome for run in runs] == [Outcome.DONE, Outcome.REFUSED, Outcome.DONE]
    assert [len(lake.orphans_left(f"acme/d/{table}")) for table in TABLES] == [0, ORPHANS, 0]
