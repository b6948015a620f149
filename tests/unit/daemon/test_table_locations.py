"""Whose places are a tenant's neighbours, and how long it is believed where they are."""

import pyarrow as pa
import pytest
from tests.builders.iceberg import SCHEMA, Lake
from tests.builders.small_lake import LocalLake, small_table, write_local
from tests.unit.iceberg.rest_stub import serve

from lakesweep.daemon.app import App
from lakesweep.model.errors import CatalogUnavailable
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings


async def test_an_answer_that_was_on_its_way_when_the_tables_changed_is_not_kept(tmp_path, monkeypatch):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    async with App.open(Settings.model_validate(lake.settings(state={"url": "memory://"}))) as app:
        tenant = app.settings.tenants[0]
        source = app.adapters.format(tenant, tenant.datasets[0])
        locations = source.locations

        async def told_late():
            found = await locations()
            write_local(lake.directory("acme/d/new"), small_table("new"))
            app.neighbours.forget("acme")  # as discovery does when it finds the new table
            return found

        monkeypatch.setattr(source, "locations", told_late)
        await app.neighbours.of(tenant)
        monkeypatch.undo()
        assert {ref.name for ref in await app.neighbours.of(tenant)} == {"one", "new"}


@pytest.fixture
def lake(tmp_path):
    """One catalog with the tables `db.a` and `other.b`."""
    made = Lake.make(tmp_path / "lake")
    made.create("a").append(1)
    made.catalog.create_namespace("other")
    made.catalog.create_table("other.b", SCHEMA)
    return made


def settings(lake, tmp_path, *datasets):
    tenant = {"id": "acme", "root": str(lake.root), "datasets": [{"format": "iceberg", **one} for one in datasets]}
    return Settings.model_validate(
        {"service": {"data_dir": str(tmp_path / "state")}, "state": {"url": "memory://"}, "tenants": [tenant]}
    )


async def plans(config):
    async with App.open(config) as app:
        runs = [await app.plan(work) for work in await app.resolve(None)]
    return {run.table.label: run.refusal and run.refusal.code for run in runs}


async def test_two_datasets_of_one_catalog_are_no_neighbours_of_themselves(lake, tmp_path):
    first = {"id": "first", "catalog": lake.properties, "namespace": "db"}
    second = {"id": "second", "catalog": lake.properties, "namespace": "other"}
    assert await plans(settings(lake, tmp_path, first, second)) == {"acme/first/a": None, "acme/second/b": None}


@pytest.fixture
def rest(lake):
    """The catalog behind a server, without a name in the settings."""
    with serve(lake.another_client()) as server:
        yield {"type": "rest", "uri": server.uri}


async def test_two_datasets_of_one_server_need_no_name_for_it(lake, rest, tmp_path):
    first = {"id": "first", "catalog": rest, "namespace": "db"}
    second = {"id": "second", "catalog": rest, "namespace": "other"}
    assert await plans(settings(lake, tmp_path, first, second)) == {"acme/first/a": None, "acme/second/b": None}


async def test_a_place_reported_now_counts_more_than_one_that_is_remembered(lake, tmp_path):
    """The second dataset does not answer once its table is created anew inside the first one's table."""
    first = {"id": "first", "catalog": lake.properties, "namespace": "db"}
    second = {"id": "second", "catalog": lake.properties, "namespace": "other"}
    async with App.open(settings(lake, tmp_path, first, second)) as app:
        tenant = app.settings.tenants[0]
        await app.neighbours.of(tenant)
        inside = f"{lake.catalog.load_table('db.a').location()}/data/b"
        lake.catalog.drop_table("other.b")
        lake.catalog.create_table("other.b", SCHEMA, location=inside)

        async def silent():
            raise CatalogUnavailable("no answer")

        app.adapters.format(tenant, tenant.datasets[1]).locations = silent
        app.neighbours.forget("acme")
        (work,) = await app.resolve("acme/first/a")
        run = await app.plan(work)
    assert run.refusal
    assert run.refusal.code == "overlap"


async def test_what_is_looked_up_by_a_datasets_name_may_be_another_catalog(lake, rest, tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__SECOND__WAREHOUSE", "another")
    first = {"id": "first", "catalog": rest, "namespace": "db"}
    second = {"id": "second", "catalog": rest, "namespace": "other"}
    found = await plans(settings(lake, tmp_path, first, second))
    assert found == {"acme/first/a": "overlap", "acme/second/b": "overlap"}


@pytest.mark.parametrize("namespace", ["db", None])
async def test_a_table_in_two_datasets_is_refused_in_both(lake, tmp_path, namespace):
    first = {"id": "first", "catalog": lake.properties, "namespace": "db"}
    second = {"id": "second", "catalog": lake.properties, **({"namespace": namespace} if namespace else {})}
    found = await plans(settings(lake, tmp_path, first, second))
    shared = {label: code for label, code in found.items() if label.endswith("a")}
    assert len(shared) == 2
    assert set(shared.values()) == {"overlap"}


async def test_a_table_that_two_catalogs_have_is_refused_in_both(lake, tmp_path):
    elsewhere = Lake.make(tmp_path / "elsewhere")
    elsewhere.catalog.register_table("db.a", lake.catalog.load_table("db.a").metadata_location)
    first = {"id": "first", "catalog": lake.properties, "namespace": "db"}
    second = {"id": "second", "catalog": elsewhere.properties, "namespace": "none"}
    elsewhere.catalog.create_namespace("none")
    assert await plans(settings(lake, tmp_path, first, second)) == {"acme/first/a": "overlap"}


async def run_with(lake, tmp_path, after_planning):
    """Clean `db.a`; something happens when its plan is made."""
    lake.catalog.load_table("db.a").append(pa.table({"id": pa.array([2], pa.int64()), "name": ["n2"]}))
    config = settings(lake, tmp_path, {"id": "first", "catalog": lake.properties, "namespace": "db"})
    cleanup = {"dry_run": False, "max_snapshot_age_hours": 0}
    config = Settings.model_validate({**config.model_dump(), "orphan_cleanup": cleanup})
    async with App.open(config) as app:
        (work,) = await app.resolve(None)
        save_plan = app.state.save_plan

        async def saved_then(header):
            await save_plan(header)
            after_planning(app)
            app.neighbours.forget("acme")  # as discovery does when it finds a new table

        app.state.save_plan = saved_then
        return await app.run(work, execute=True)


async def test_a_table_that_arrives_while_planning_stops_the_run(lake, tmp_path):
    """The same table under a second name: what the first one expires the second one needs."""

    def register(_):
        lake.catalog.register_table("db.again", lake.catalog.load_table("db.a").metadata_location)

    run = await run_with(lake, tmp_path, register)
    assert (run.outcome, run.refusal and run.refusal.code) == (Outcome.REFUSED, "overlap")
    again = lake.catalog.load_table("db.again")
    assert [again.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in again.snapshots()] == [1, 2]


async def test_a_catalog_that_cannot_list_its_tables_stops_the_plan(lake, tmp_path):
    """Another table may be in its place by now."""

    def fall_silent(app):
        tenant = app.settings.tenants[0]

        async def silent():
            raise CatalogUnavailable("no answer")

        app.adapters.format(tenant, tenant.datasets[0]).locations = silent

    files = lake.files()
    run = await run_with(lake, tmp_path, fall_silent)
    assert (run.outcome, run.refusal and run.refusal.code) == (Outcome.REFUSED, "neighbours_unknown")
    assert run.plan.candidates.files > 0
    assert files <= lake.files()


async def test_a_table_outside_all_datasets_can_be_planned_by_location(lake, tmp_path):
    config = settings(lake, tmp_path, {"id": "first", "catalog": lake.properties, "namespace": "db"})
    async with App.open(config) as app:
        (work,) = await app.resolve(lake.catalog.load_table("other.b").location())
        assert work.bare
        run = await app.plan(work)
    assert (run.outcome, run.refusal) == (Outcome.DRY_RUN, None)
