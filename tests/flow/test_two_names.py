"""One directory under two names: a link or a bind mount. What is live under one name is live under the other."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from tests.builders.iceberg_flow import clean, directory, plant
from tests.builders.small_lake import LocalLake
from tests.servers.mounts import second_name, undeletable

from lakesweep.daemon.app import App
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage.local.same_place import identify


@contextmanager
def link(real, other):
    other.symlink_to(real)
    yield


@pytest.mark.parametrize("also_called", [link, second_name])
async def test_a_data_path_that_is_the_tables_own_directory_loses_nothing(lake, bench, also_called):
    table = lake.create()
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    alias = lake.root / "alias"
    with also_called(directory(table) / "data", alias):
        with table.table.transaction() as change:
            change.set_properties({"write.data.path": f"file://{alias}"})
        table.append(2)
        run = await clean(bench, table)
        assert len(table.rows()) == 2
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "overlap")
    assert "the same directory under two names" in run.refusal.reason
    assert orphan.exists()


async def test_a_directory_that_is_mounted_inside_its_own_table_loses_nothing(lake, bench):
    table = lake.create()
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    alias = directory(table) / "alias"
    with second_name(directory(table) / "data", alias):
        with table.table.transaction() as change:
            change.set_properties({"write.data.path": f"file://{alias}"})
        table.append(2)
        run = await clean(bench, table)
        assert len(table.rows()) == 2
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "overlap")
    assert orphan.exists()


async def test_a_link_and_what_it_leads_to_are_one_place(tmp_path):
    """A dataset whose location is a link is not opened at all, but a table's places may be links."""
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real, linked = (Location.parse(str(tmp_path / name)) for name in ("real", "link/inner"))
    found = await identify((real, linked))
    assert found[real].overlaps(found[linked])


async def test_what_is_mounted_on_itself_keeps_its_name(lake, bench):
    table = lake.create()
    table.append(1)
    orphan, stuck = (plant(table, f"data/{name}.parquet") for name in ("orphan", "stuck"))
    with second_name(directory(table) / "data", directory(table) / "data"), undeletable(stuck):
        run = await clean(bench, table)
        assert len(table.rows()) == 1
    assert run.refusal is None
    assert [failed.path for failed in run.deletion.failed] == [f"file://{stuck}"]
    assert not orphan.exists()


async def test_two_tables_whose_roots_are_one_place_overlap(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    place = tmp_path / "lake" / "acme" / "tables"
    settings = lake.settings()
    with second_name(place, tmp_path / "lake" / "acme" / "again"):
        again = {"id": "again", "format": "delta", "location": str(tmp_path / "lake" / "acme" / "again")}
        settings["tenants"][0]["datasets"].append(again)
        async with App.open(Settings.model_validate(settings)) as app:
            runs = [await app.run(work, execute=True) for work in await app.resolve("acme/d/one")]
    assert [run.refusal.code for run in runs] == ["overlap"]
    assert len(lake.orphans_left("acme/d/one")) == 3


async def test_a_table_that_lies_in_another_tenants_root_by_a_mount_is_refused(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    lake.add("umbrella", [])
    tables = tmp_path / "lake" / "umbrella" / "tables"
    settings = lake.settings()
    with second_name(tmp_path / "lake" / "acme" / "tables", tables):
        async with App.open(Settings.model_validate(settings)) as app:
            runs = {work.ref.label: await app.run(work, execute=True) for work in await app.resolve(None)}
    assert {label: run.refusal.code for label, run in runs.items()} == {
        "acme/d/one": "overlap",
        "umbrella/d/one": "overlap",
    }
    assert len(lake.orphans_left("acme/d/one")) == 3
