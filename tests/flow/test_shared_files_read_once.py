"""What a table uses of others is known without reading its manifests twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress

import pyarrow.parquet as pq
import pytest
from tests.builders.iceberg import SCHEMA
from tests.builders.shared_files import borrow, iceberg, move_clone_to_own_dataset, run

from lakesweep.daemon import table_uses
from lakesweep.daemon.app import App
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.model.errors import EngineFailed
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage.local.store import LocalStorage

SHORT = {"grace_period_hours": 0.00001, "allow_short_grace": True}


@pytest.fixture
def reads(monkeypatch):
    """How often each object was read."""
    counted: Counter[str] = Counter()
    read = LocalStorage.read

    async def counting(self, location, *arguments, **options):
        counted[location.raw] += 1
        return await read(self, location, *arguments, **options)

    monkeypatch.setattr(LocalStorage, "read", counting)
    return counted


def manifests(*tables):
    snapshots = (snapshot for one in tables for snapshot in one.refresh().metadata.snapshots)
    return {manifest.manifest_path for snapshot in snapshots for manifest in snapshot.manifests(tables[0].io)}


async def planned(settings, target):
    async with App.open(settings) as app:
        (work,) = await app.resolve(target)
        return await app.plan(work)


async def test_a_first_plan_reads_no_manifest_twice(lake, reads):
    staging = lake.create("staging")
    for number in range(3):
        staging.append(number)
    settings = iceberg(lake, state=None, **SHORT)
    assert (await planned(settings, "acme/prod/staging")).outcome is Outcome.DRY_RUN
    own = manifests(staging.table)
    assert len(own) == 3
    assert {path: reads[path] for path in own} == dict.fromkeys(own, 1)


async def test_a_new_process_reads_no_manifest_that_the_cache_knows(lake, reads):
    staging = lake.create("staging")
    staging.append(1)
    other = lake.create("other")
    other.append(1)
    settings = iceberg(lake, state=None, **SHORT)
    for target in ("acme/prod/staging", "acme/prod/other"):
        await planned(settings, target)
    reads.clear()
    await planned(settings, "acme/prod/staging")
    assert not manifests(staging.table, other.table) & reads.keys()


async def test_the_cache_hides_no_file_that_another_table_uses(lake):
    """The other table was planned before, so the cache knows its manifests. One of them names a file elsewhere."""
    staging = lake.create("staging")
    staging.append(1)
    (path,) = [task.file.file_path for task in staging.table.refresh().scan().plan_files()]
    target = lake.catalog.create_table("db.target", SCHEMA)
    target.append(staging.table.scan().to_arrow())
    target.add_files([path])
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    settings = iceberg(lake, state=None, max_snapshot_age_hours=0.00001, min_snapshots_to_keep=1, **SHORT)
    await planned(settings, "acme/prod/target")
    done = await run(settings, "acme/prod/staging")
    assert done.outcome is Outcome.DONE
    assert [(one.table, one.files, one.first) for one in done.shared_files] == [("acme/prod/target", 1, path)]
    assert len(target.refresh().scan().to_arrow()) == 2


async def _fails(self, job):
    await job.mark()
    raise EngineFailed("no memory left")


async def _stops(self, job):
    await job.mark()
    raise asyncio.CancelledError


async def test_what_a_table_uses_elsewhere_is_noted_although_its_plan_fails(lake, tmp_path, monkeypatch):
    """Another tenant may be added later, and the file may be one of its own."""
    elsewhere = tmp_path / "other" / "file.parquet"
    elsewhere.parent.mkdir()
    staging = lake.create("staging")
    staging.append(1)
    pq.write_table(staging.table.scan().to_arrow(), elsewhere)
    staging.table.add_files([f"file://{elsewhere}"])
    monkeypatch.setattr(InProcessEngine, "find_orphans", _fails)
    async with App.open(iceberg(lake, **SHORT)) as app:
        (work,) = await app.resolve("acme/prod/staging")
        assert (await app.run(work, execute=True)).outcome is Outcome.FAILED
        noted = json.loads(await app.state.recall("used-outside-root:acme"))
    assert noted == {"acme/prod/staging": [f"file://{elsewhere.parent}/"]}


async def break_off(app, target, monkeypatch, ends):
    (work,) = await app.resolve(target)
    with monkeypatch.context() as broken, suppress(asyncio.CancelledError):
        broken.setattr(InProcessEngine, "find_orphans", ends)
        assert (await app.run(work, execute=True)).outcome is Outcome.FAILED


async def users_of_source(app):
    (source,) = await app.resolve("acme/d/source")
    return [one.table for one in (await app.run(source, execute=True)).shared_files]


@pytest.mark.parametrize("ends", [_fails, _stops])
async def test_what_a_clone_uses_counts_although_its_own_plan_breaks_off(deltas, monkeypatch, ends):
    """Then its dataset is not there any more, and only this process knows what it used."""
    clones, borrowed = move_clone_to_own_dataset(deltas)
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        await break_off(app, "acme/c/clone", monkeypatch, ends)
        clones.rename(deltas.root / "not mounted")
        assert await users_of_source(app) == ["acme/c/clone"]
    assert borrowed.exists()


@pytest.mark.parametrize("ends", [_fails, _stops])
async def test_so_does_what_a_clone_of_another_tenant_uses(deltas, monkeypatch, ends):
    """Likewise, with one dataset for each tenant."""
    deltas.add("beta", ["clone"])
    borrowed = borrow(deltas, "part-00000-failed.parquet", clone="beta/d/clone")
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        await break_off(app, "beta/d/clone", monkeypatch, ends)
        (deltas.root / "lake" / "beta").rename(deltas.root / "not mounted")
        assert await users_of_source(app) == ["beta/d/clone"]
    assert borrowed.exists()


async def test_a_table_that_was_left_for_later_is_read_for_the_next_one(deltas, monkeypatch):
    """Its plan broke off before it was read, and what was read of all others is still believed."""
    monkeypatch.setattr(table_uses, "QUICK_SECONDS", -1)
    monkeypatch.setattr(table_uses, "_REST", 1_000_000)
    borrowed = borrow(deltas, "part-00000-failed.parquet")
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        await break_off(app, "acme/d/clone", monkeypatch, _stops)
        assert await users_of_source(app) == ["acme/d/clone"]
    assert borrowed.exists()
