"""A table is moved over a directory that holds somebody else's files: they are not its orphans."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest
from pyiceberg.table.update import SetLocationUpdate
from tests.builders.iceberg_flow import clean, directory, plant

from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.run import Outcome


def foreign(home, count=50):
    (home / "data").mkdir(parents=True)
    files = [home / "data" / f"{number:05}-0-foreign.parquet" for number in range(count)]
    for file in files:
        file.write_bytes(b"somebody else's")
        os.utime(file, (1, 1))
    return files


def move(table, home):
    with table.table.transaction() as change:
        change._apply((SetLocationUpdate(location=f"file://{home}"),))
    table.append(2)


@pytest.mark.parametrize("cleaned_before", [False, True])
async def test_files_in_a_place_that_is_new_to_the_table_need_an_approval(lake, bench, cleaned_before):
    table = lake.create()
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    if cleaned_before:
        assert (await clean(bench, table)).outcome is Outcome.DONE
        assert not orphan.exists()
    files = foreign(lake.root / "elsewhere")
    move(table, lake.root / "elsewhere")
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "ceiling_new_place")
    assert all(file.exists() for file in files)


async def test_an_approved_place_is_the_tables_own_from_then_on(lake, bench):
    table = lake.create()
    table.append(1)
    files = foreign(lake.root / "elsewhere")
    move(table, lake.root / "elsewhere")
    refused = await clean(bench, table)
    approvals = Approvals(state=bench.store, artifacts=Artifacts(bench.scratch))
    await approvals.give(refused.id, by="a person", now=bench.clock.now(), valid_for=timedelta(days=1))
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not any(file.exists() for file in files)
    again = plant(table, "data/orphan.parquet")
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not again.exists()


async def test_an_ordinary_table_is_cleaned_on_its_first_day(lake, bench):
    table = lake.create()
    table.append(1)
    orphans = [plant(table, f"data/orphan-{number}.parquet") for number in range(20)]
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not any(orphan.exists() for orphan in orphans)
    assert directory(table).exists()


async def test_young_files_do_not_make_a_place_the_tables_own(lake, bench):
    table = lake.create()
    table.append(1)
    files = foreign(lake.root / "elsewhere")
    for file in files:
        os.utime(file, (bench.clock.now().timestamp(),) * 2)
    move(table, lake.root / "elsewhere")
    assert (await clean(bench, table)).outcome is Outcome.DONE
    for file in files:
        os.utime(file, (1, 1))
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "ceiling_new_place")
    assert all(file.exists() for file in files)


@pytest.mark.parametrize("data_too", [False, True])
async def test_a_move_is_noticed_where_all_metadata_has_a_place_of_its_own(lake, bench, data_too):
    places = {"write.metadata.path": f"file://{lake.root}/metadata-of-t"}
    if data_too:
        places["write.data.path"] = f"file://{lake.root}/data-of-t"
    table = lake.create(**places)
    table.append(1)
    files = foreign(lake.root / "elsewhere")
    move(table, lake.root / "elsewhere")
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "ceiling_new_place")
    assert all(file.exists() for file in files)


@pytest.mark.parametrize("to", ["where its metadata is", "its parent"])
async def test_a_move_around_the_tables_own_metadata_is_noticed(lake, bench, to):
    """Then all files of its history lie below its new location."""
    home = lake.root / "elsewhere"
    table = lake.create(**({"write.metadata.path": f"file://{home}/metadata"} if to != "its parent" else {}))
    table.append(1)
    if to == "its parent":
        home = directory(table).parent
    files = foreign(home)
    move(table, home)
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "ceiling_new_place")
    assert all(file.exists() for file in files)


async def test_an_earlier_state_without_a_uuid_shows_a_move_too(lake, bench):
    """The uuid is optional in version 1."""
    table = lake.create(**{"write.metadata.path": f"file://{lake.root}/metadata-of-t"})
    table.append(1)
    files = foreign(lake.root / "elsewhere")
    move(table, lake.root / "elsewhere")
    for old in states(lake)[:2]:
        edit(old, lambda document: document.pop("table-uuid"))
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "ceiling_new_place")
    assert all(file.exists() for file in files)


async def test_a_mistake_that_was_corrected_since_does_not_stop_the_table(lake, bench):
    table = lake.create(**{"write.metadata.path": f"file://{lake.root}/metadata-of-t"})
    table.append(1)
    table.append(1)
    edit(states(lake)[0], lambda document: document["properties"].update({"history.expire.max-ref-age-ms": "7 days"}))
    assert (await clean(bench, table)).outcome is Outcome.DONE


def states(lake):
    return sorted((lake.root / "metadata-of-t").glob("*.metadata.json"))


def edit(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


async def test_a_table_with_metadata_elsewhere_is_cleaned_on_its_first_day(lake, bench):
    table = lake.create(**{"write.metadata.path": f"file://{lake.root}/metadata-of-t"})
    table.append(1)
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not orphan.exists()
