"""A configured table that somebody names by its place: whatever was said of the table holds."""

from datetime import UTC, datetime

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings

TABLE = "acme/d/one"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["one"])
    return made


@pytest.fixture
def dataset(lake):
    return lake.tenants["acme"]["datasets"][0]


async def run_by_place(lake, place=None, hold=None, **options):
    settings = Settings.model_validate(lake.settings(state={"url": "memory://"}))
    async with App.open(settings) as app:
        if hold:
            await app.state.set_hold(Hold(scope=hold, since=NOON, by="a test"))
        (work,) = await app.resolve(str(place or lake.directory(TABLE)), **options)
        return await app.run(work, execute=True)


@pytest.mark.parametrize("format", [None, FormatName.DELTA])
async def test_a_configured_table_is_cleaned_by_its_place_under_its_own_name(lake, format):
    run = await run_by_place(lake, format=format)
    assert (run.table.label, run.outcome, run.deletion.deleted.files) == (TABLE, Outcome.DONE, 3)
    lake.check_live()


@pytest.mark.parametrize(
    "said",
    [
        {"has_shallow_clones": True},
        {"vacuum_mode": "lite"},
        {"orphan_cleanup": {"grace_period_hours": 24 * 3650}},
        {"tables": [{"name": "one", "orphan_cleanup": {"dry_run": True}}]},
    ],
    ids=lambda said: next(iter(said)),
)
async def test_what_settings_say_of_a_table_holds_by_its_place_too(lake, dataset, said):
    dataset.update(said)
    assert (await run_by_place(lake)).deletion.deleted.files == 0
    assert len(lake.orphans_left(TABLE)) == 3


async def test_a_hold_on_a_table_holds_by_its_place_too(lake):
    run = await run_by_place(lake, hold=TABLE)
    assert run.refusal.code == "held"
    assert len(lake.orphans_left(TABLE)) == 3


async def test_a_link_to_a_configured_table_is_that_table(lake, dataset, tmp_path):
    dataset["has_shallow_clones"] = True
    link = tmp_path / "link"
    link.symlink_to(lake.directory(TABLE))
    run = await run_by_place(lake, link)
    assert (run.table.label, run.deletion.deleted.files) == (TABLE, 0)


async def test_a_narrower_root_stays_the_operators(lake, tmp_path):
    run = await run_by_place(lake, root=str(tmp_path / "lake" / "acme" / "tables" / "one"))
    assert (run.table.label, run.outcome) == (TABLE, Outcome.DONE)
    other = tmp_path / "other"
    other.mkdir()
    assert (await run_by_place(lake, root=str(other))).refusal.code == "outside_root"


async def test_an_unconfigured_table_inside_a_tenants_root_stays_a_bare_location(lake):
    lake.add("globex", ["two"])
    place = lake.directory("globex/d/two")
    lake.tenants["globex"]["datasets"] = []
    run = await run_by_place(lake, place)
    assert (run.table.name, run.outcome) == (f"file://{place}", Outcome.DONE)
