"""Ghosts of real Iceberg tables: dropped ones go, and what any catalog or metadata still refers to stays whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders.iceberg import SCHEMA, Lake, LakeTable
from tests.builders.small_lake import LONG_AGO

from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import Refused
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")


def opened(lake: Lake, **cleanup: object) -> App:
    dataset = {"id": "prod", "format": "iceberg", "catalog": lake.properties, "namespace": "db"}
    values = {
        "orphan_cleanup": {"deletion": "trash", **cleanup},
        "service": {"data_dir": str(lake.root.parent / "state")},
        "state": {"url": "memory://"},
        "storage": {"local": {"age_by": "modification"}},
        "tenants": [{"id": "acme", "root": str(lake.root), "datasets": [dataset]}],
    }
    return App.open(Settings.model_validate(values))


def age(place: Path) -> None:
    for path in place.rglob("*"):
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))


@pytest.fixture
def dropped(lake: Lake) -> LakeTable:
    """A table beside another one, dropped long ago."""
    lake.create("kept").append(1)
    table = lake.create("dropped")
    table.append(1)
    table.append(2)
    lake.catalog.drop_table("db.dropped")
    age(lake.root / "wh")
    return table


def files(lake: Lake) -> dict[str, bytes]:
    found = [path for path in (lake.root / "wh").rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found}


async def approved(app: App) -> None:
    (found,) = await app.ghosts("acme")
    plan = await app.plan(app.ghost_search("acme").work(found))
    assert plan.plan, plan.reason
    await app.approve(plan.id, by="ada", digest=plan.plan.digest)


async def executed(app: App) -> CleanupRun:
    (work,) = await app.ghost_search("acme").approved()
    return await app.run(work, execute=True, trigger=ADA)


async def test_a_dropped_table_goes_and_can_be_registered_again_after_a_restore(lake: Lake, dropped: LakeTable):
    before = files(lake)
    newest = dropped.table.metadata_location
    async with opened(lake) as app:
        await approved(app)
        done = await executed(app)
        assert done.outcome is Outcome.DONE, done.reason
        gone = before.keys() - files(lake).keys()
        assert gone == {path for path in before if "/dropped/" in path}
        await app.restoring(done.id, [], ADA).execute(new_run_id())
    assert files(lake) == before
    lake.catalog.register_table("db.dropped", newest)
    assert [row["id"] for row in dropped.rows()] == [1, 2]


async def test_a_table_that_is_registered_again_stays_whole(lake: Lake, dropped: LakeTable):
    async with opened(lake) as app:
        await approved(app)
        lake.catalog.register_table("db.again", dropped.table.metadata_location)
        before = files(lake)
        run = await executed(app)
    assert run.refusal
    assert run.refusal.code == "ghost_claimed"
    assert files(lake) == before


@pytest.mark.parametrize("how", ["main", "branch", "never cleaned"])
async def test_files_that_another_table_has_added_keep_the_ghost(lake: Lake, dropped: LakeTable, how: str):
    path = next(path for path in files(lake) if "/dropped/data/" in path)
    properties = {"gc.enabled": "false"} if how == "never cleaned" else {}
    target = lake.catalog.create_table("db.target", SCHEMA, properties=properties)
    target.append(lake.catalog.load_table("db.kept").scan().to_arrow())
    if how == "branch":
        target.manage_snapshots().create_branch(target.refresh().current_snapshot().snapshot_id, "b").commit()
    async with opened(lake) as app:
        await approved(app)
        target.refresh().add_files([f"file://{path}"], branch="b" if how == "branch" else "main")
        before = files(lake)
        run = await executed(app)
        assert await app.ghosts("acme") == []
    assert run.refusal
    assert run.refusal.code == "ghost_claimed"
    assert files(lake) == before


async def test_a_table_with_a_manifest_that_cannot_be_read_keeps_every_ghost(lake: Lake, dropped: LakeTable):
    """What it uses elsewhere may be in that manifest."""
    manifest = next(path for path in files(lake) if "/kept/metadata/" in path and path.endswith("-m0.avro"))
    whole = Path(manifest).read_bytes()
    for content in (b"damaged", None):
        Path(manifest).unlink(missing_ok=True)
        if content:
            Path(manifest).write_bytes(content)
        async with opened(lake) as app:
            with pytest.raises(Refused, match="acme/prod/kept cannot be read") as refused:
                await app.ghosts("acme")
            assert refused.value.code == "neighbours_unknown"
            Path(manifest).write_bytes(whole)
            assert len(await app.ghosts("acme")) == 1
