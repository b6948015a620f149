"""What keeps a ghost although its own directory says nothing: who had it lately, other tenants, holds, silence."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.builders.ghosts import ADA, LOG, aged, approved, content, executed, ghost, lake, opened, planned
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, write_local

from lakesweep.daemon import holds
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.ghost_table import GhostTable
from lakesweep.daemon.table_locations import TableLocations
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.ports.state import Hold
from lakesweep.settings.tenants import TenantSettings

__all__ = ["lake"]


def code(run: CleanupRun) -> str | None:
    return run.refusal.code if run.refusal else None


def uses_ghost(lake: LocalLake, label: str) -> None:
    """A clone that names a file of the ghost."""
    add = {
        "path": f"file://{ghost(lake)}/part-00001-live.parquet",
        "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    aged(lake.directory(label) / LOG / f"{1:020}.json", json.dumps({"add": add}).encode() + b"\n")


async def plan_tables(app: App) -> None:
    for work in await app.resolve("acme"):
        assert (await app.plan(work)).plan


@pytest.mark.parametrize("spelled", ["exactly", "otherwise"])
async def test_tables_of_a_dataset_just_removed_are_no_old_ghosts(lake: LocalLake, spelled: str):
    shutil.rmtree(ghost(lake))
    tenant = dict(lake.tenants["acme"])
    if spelled == "otherwise":
        (lake.root / "alias").symlink_to(lake.root / "lake")
        there = f"file://{lake.root}/alias/acme"
        dataset = {**tenant["datasets"][0], "location": f"{there}/tables"}
        lake.tenants["acme"] = {**tenant, "root": there, "datasets": [dataset]}
    async with opened(lake) as app:
        await plan_tables(app)
    lake.tenants["acme"] = {**tenant, "datasets": []}
    async with opened(lake) as app:
        assert [code(run) for run in await planned(app)] == ["ghost_young"] * 2
    async with opened(lake, ghost_grace_hours=1e-9, allow_short_grace=True) as app:
        assert [code(run) for run in await planned(app)] == ["ghost_not_approved"] * 2


async def test_a_table_lately_known_inside_a_ghost_keeps_it(lake: LocalLake):
    """Its log is gone by now, so its data looks like the ghost's."""
    inner = ghost(lake) / "inner"
    write_local(inner / "t", small_table("inner"))
    dataset = {"id": "inner", "format": "delta", "location": str(inner)}
    lake.tenants["acme"]["datasets"].append(dataset)
    async with opened(lake) as app:
        await plan_tables(app)
    lake.tenants["acme"]["datasets"].remove(dataset)
    shutil.rmtree(inner / "t" / LOG)
    async with opened(lake) as app:
        assert [code(run) for run in await planned(app)] == ["ghost_young"]


async def test_a_ghost_that_another_tenants_table_uses_is_none(lake: LocalLake):
    lake.add("beta", ["clone"])
    async with opened(lake) as app:
        await approved(app)
    uses_ghost(lake, "beta/d/clone")
    async with opened(lake) as app:
        assert await app.ghosts("acme") == []
        assert [code(run) for run in await executed(app)] == ["ghost_claimed"]


async def test_a_table_of_another_tenants_catalog_here_keeps_all_ghosts(lake: LocalLake):
    lake.add("beta", ["x"])
    lake.tenants["beta"]["allow_read"] = [str(lake.root / "lake" / "acme")]
    uri = f"sqlite:///{lake.root}/c.db"
    lent = SqlCatalog("c", uri=uri, warehouse=f"file://{lake.root}/lake/acme/shared")
    lent.create_namespace("db")
    table = lent.create_table("db.t", pa.schema([("a", pa.int64())]))
    table.append(pa.table({"a": [1]}))
    for path in (lake.root / "lake" / "acme" / "shared").rglob("*"):
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    async with opened(lake) as app:
        assert len(await app.ghosts("acme")) == 2
    dataset = {"id": "ice", "format": "iceberg", "catalog": {"name": "c", "type": "sql", "uri": uri}}
    lake.tenants["beta"]["datasets"].append(dataset)
    async with opened(lake) as app:
        with pytest.raises(Refused, match="beta/ice/db"):
            await app.ghosts("acme")


async def test_a_tenant_that_cannot_be_asked_keeps_the_ghosts_of_all(lake: LocalLake):
    lake.add("beta", ["clone"])
    async with opened(lake) as app:
        await approved(app)
    aged(lake.directory("beta/d/clone") / LOG / f"{0:020}.json", b"{")
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        with pytest.raises(Refused, match="beta/d/clone"):
            await app.ghosts("acme")
        (run,) = await executed(app)
    assert (run.outcome, code(run)) == (Outcome.REFUSED, "neighbours_unknown")
    assert content(lake.root / "lake") == before


@pytest.mark.parametrize("tenant", ["acme", "beta"])
@pytest.mark.parametrize("left", ["nothing", "an empty mount point"])
async def test_a_dataset_that_is_suddenly_empty_keeps_all_ghosts(lake: LocalLake, tenant: str, left: str):
    lake.add("beta", ["x"])
    async with opened(lake) as app:
        if left != "nothing":
            (work, *_) = await app.resolve(tenant)
            await app.plan(work)
        await approved(app)
        tables = lake.root / "lake" / tenant / "tables"
        tables.rename(lake.root / "unmounted")
        if left != "nothing":
            tables.mkdir()
        with pytest.raises(Refused, match=f"{tenant}/d ") as refused:
            await app.ghosts("acme")
        assert refused.value.code == "neighbours_unknown"
        assert [code(run) for run in await executed(app)] == ["neighbours_unknown"]
    assert len(content(ghost(lake))) == 6


async def test_a_ghost_is_paused_and_stopped_by_its_label(lake: LocalLake):
    label = "acme/~ghosts/old/clicks"
    async with opened(lake) as app:
        await approved(app)
        for hold in (holds.pause, holds.stop):
            await holds.check_names_a_table(app, label)
            await hold(app, Hold(scope=label, since=app.clock.now(), by="ada"))
            assert [code(run) for run in await executed(app)] == ["held"]
            assert await holds.resume(app, label, by="ada", admin=True)
        for scope in ("acne/~ghosts/old/clicks", "acme/~ghost/old/clicks"):
            with pytest.raises(UnknownTable):
                await holds.check_names_a_table(app, scope)
            with pytest.raises(UnknownTable):
                await holds.pause(app, Hold(scope=scope, since=app.clock.now(), by="ada"))


async def test_an_approval_does_not_outlive_a_restore(lake: LocalLake):
    async with opened(lake, deletion="trash") as app:
        await approved(app)
        (done,) = await executed(app)
        await app.restoring(done.id, [], ADA).execute(new_run_id())
        for hold in await app.state.holds():
            await holds.resume(app, hold.scope, by="ada", admin=True)
        (plan,) = await planned(app)
        assert code(plan) == "ghost_not_approved"
        assert await executed(app) == []
        assert len(content(ghost(lake))) == 6
        await approved(app)
        assert [run.outcome for run in await executed(app)] == [Outcome.DONE]


async def test_a_place_that_is_claimed_during_the_listing_stays(lake: LocalLake, monkeypatch):
    """The places are the last question of all."""
    async with opened(lake) as app:
        (found,) = await app.ghosts("acme")
        table = app.ghost_search("acme").work(found).table
        assert isinstance(table, GhostTable)
        await table.load()
        assert await table.head()
        listed, ask = GhostTable._refuse_new_objects, TableLocations.claimed
        claimed: list[Location] = []

        async def during(self: GhostTable, seen: frozenset[int]) -> None:
            await listed(self, seen)
            claimed.append(self.location.join("inner"))

        async def told(self: TableLocations, tenant: TenantSettings) -> list[Location]:
            return [*await ask(self, tenant), *claimed]

        monkeypatch.setattr(GhostTable, "_refuse_new_objects", during)
        monkeypatch.setattr(TableLocations, "claimed", told)
        with pytest.raises(Refused) as refused:
            await table.head()
    assert refused.value.code == "ghost_claimed"


@pytest.mark.parametrize("scope", ["acme/d", "acme/d/gone", "a*/d"])
async def test_any_hold_of_the_tenant_holds_a_ghost_of_unknown_name(lake: LocalLake, scope: str):
    async with opened(lake) as app:
        await approved(app)
        others = ("beta", "acme/~ghosts/old/other")
        for one in (scope, *others):
            await app.state.set_hold(Hold(scope=one, since=app.clock.now(), by="ada", reason="legal"))
        assert [code(run) for run in await executed(app)] == ["held"]
        await app.state.clear_hold(scope)
        assert [run.outcome for run in await executed(app)] == [Outcome.DONE]


async def test_a_hold_that_comes_during_a_sweep_ends_one_of_unknown_name(lake: LocalLake):
    async with opened(lake) as app:
        await approved(app)
        (work,) = await app.ghost_search("acme").approved()
        tasks: list[asyncio.Task[None]] = []

        def watch(progress) -> None:
            if progress.phase == "sweeping" and progress.done and not tasks:
                hold = Hold(scope="acme/d", since=app.clock.now(), by="ada")
                tasks.append(asyncio.ensure_future(app.state.set_hold(hold)))

        run = await app.run(work, execute=True, trigger=ADA, progress=watch)
    assert run.deletion.deleted.files < 6, run.reason
    assert len(content(ghost(lake))) == 6 - run.deletion.deleted.files


async def test_dry_run_of_any_table_spares_a_ghost_of_unknown_name(lake: LocalLake):
    async with opened(lake) as app:
        await approved(app)
    lake.tenants["acme"]["datasets"][0]["tables"] = [{"name": "gone", "orphan_cleanup": {"dry_run": True}}]
    async with opened(lake) as app:
        (run,) = await executed(app)
    assert (run.refusal, run.deletion.deleted.files) == (None, 0)
    assert len(content(ghost(lake))) == 6


async def test_a_ghosts_former_name_is_known_however_its_place_is_spelled(lake: LocalLake):
    (lake.root / "alias").symlink_to(lake.root / "lake")
    async with opened(lake) as app:
        (work, *_) = await app.resolve("acme/d/source")
        await app.plan(work)
        shutil.rmtree(lake.directory("acme/d/source") / LOG)
        aged(lake.directory("acme/d/source") / "data" / "f.parquet")
    tenant = lake.tenants["acme"]
    there = f"file://{lake.root}/alias/acme"
    lake.tenants["acme"] = {
        **tenant,
        "root": there,
        "datasets": [{**tenant["datasets"][0], "location": f"{there}/tables"}],
    }
    async with opened(lake) as app:
        assert "acme/d/source" in {one.name for one in await app.ghosts("acme")}
