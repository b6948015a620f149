"""A table of one tenant uses files of another tenant's table: they stay there."""

from __future__ import annotations

import pytest
from tests.builders.shared_files import borrow, run
from tests.builders.small_lake import LocalLake

from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings


@pytest.fixture
def lake(tmp_path):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["source", "other"])
    made.add("beta", ["clone", "more"])
    return made


@pytest.mark.parametrize("lite", [False, True])
async def test_a_clone_of_another_tenant_keeps_the_files_of_its_source(lake, lite):
    if lite:
        lake.tenants["beta"]["datasets"][0]["vacuum_mode"] = "lite"
    borrowed = borrow(lake, "part-00000-failed.parquet", clone="beta/d/clone")
    settings = Settings.model_validate(lake.settings())
    for _ in range(2):
        done = await run(settings, "acme/d/source")
        assert (done.outcome, [one.table for one in done.shared_files]) == (Outcome.DONE, ["beta/d/clone"]), done.reason
    assert borrowed.exists()
    assert len(lake.orphans_left("acme/d/source")) == 1
    assert (await run(settings, "acme/d/other")).shared_files == ()


def away(lake):
    (lake.root / "lake" / "beta").rename(lake.root / "not mounted")


def damaged(lake):
    (lake.directory("beta/d/clone") / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')


@pytest.mark.parametrize("happens", [away, damaged])
async def test_a_clone_of_another_tenant_that_cannot_be_read_stops_its_source(lake, happens):
    borrowed = borrow(lake, "part-00000-failed.parquet", clone="beta/d/clone")
    settings = Settings.model_validate(lake.settings())
    async with App.open(settings) as app:
        (work,) = await app.resolve("acme/d/source")
        assert [one.table for one in (await app.plan(work)).shared_files] == ["beta/d/clone"]
    happens(lake)
    if happens is damaged:  # its tenant goes on with other tables, and must not forget it
        assert (await run(settings, "beta/d/more")).outcome is Outcome.DONE
    stopped = await run(settings, "acme/d/source")
    assert (stopped.outcome, stopped.refusal and stopped.refusal.code) == (Outcome.REFUSED, "neighbours_unknown")
    assert (await run(settings, "acme/d/other")).outcome is Outcome.DONE
    assert borrowed.exists()


async def test_a_tenant_that_uses_nothing_elsewhere_is_asked_once(lake, monkeypatch):
    settings = Settings.model_validate(lake.settings())
    await run(settings, "acme/d/source")
    async with App.open(settings) as app:
        opened = []
        shared_files = app.neighbours.shared_files

        async def counted(tenant, *arguments, **options):
            opened.append(tenant.id)
            return await shared_files(tenant, *arguments, **options)

        monkeypatch.setattr(app.neighbours, "shared_files", counted)
        (work,) = await app.resolve("acme/d/other")
        assert (await app.run(work, execute=True)).outcome is Outcome.DONE
    assert set(opened) == {"acme"}
