"""Which places count as another table's, and what stops a table when they are not known."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, LakeTable, later
from tests.builders.iceberg_flow import clean, directory, plant
from tests.builders.stores import LocalStorage
from tests.unit.iceberg.rest_stub import serve

from lakesweep.model.errors import CatalogUnavailable, CommitConflict, Denied, NotFound, Unavailable
from lakesweep.model.location import Location


class Blind(LocalStorage):
    def __init__(self, error):
        super().__init__()
        self._error = error

    async def read(self, location, limit=None):
        if "/db/b/metadata/" in location.raw:
            raise self._error(location.raw, "not now")
        return await super().read(location, limit)


@pytest.mark.parametrize("error", [Unavailable, Denied])
async def test_a_neighbour_that_does_not_answer_now_is_not_no_neighbour(lake, error):
    lake.create("a").append(1)
    lake.create("b").append(7)
    with pytest.raises(error):
        await lake.format(storage=Blind(error)).locations()


class Moving(LocalStorage):
    """Each metadata file is replaced and gone before it can be read."""

    def __init__(self, table):
        super().__init__()
        self._table = table

    async def read(self, location, limit=None):
        self._table.append(1)
        raise NotFound(location.raw, "gone")


async def test_a_neighbour_that_moves_too_fast_is_not_no_neighbour(lake):
    with pytest.raises(CommitConflict):
        await lake.format(storage=Moving(lake.create("b"))).locations()


def damage(table: LakeTable) -> None:
    Path(Location.parse(table.refresh().metadata_location).path).write_bytes(b"{")


def remove(table: LakeTable) -> None:
    Path(Location.parse(table.refresh().metadata_location).path).unlink()


@pytest.mark.parametrize("happens", [damage, remove])
async def test_a_damaged_neighbour_is_known_by_the_place_of_its_metadata(lake, happens):
    lake.create("a").append(1)
    damaged = lake.create("b")
    damaged.append(7)
    ours = lake.format()
    happens(damaged)
    places = {ref.name: found for ref, found in (await ours.locations()).items()}
    assert [place.path.rstrip("/") for place in places["b"]] == [str(directory(damaged))]
    assert places["a"]


async def test_a_table_of_another_tenant_that_we_may_not_read_stops_nobody(lake):
    ours, theirs = lake.create("a"), lake.create("b")
    tenant = lake.format(root=directory(ours), storage=Blind(Denied))
    places = {ref.name: found for ref, found in (await tenant.locations()).items()}
    assert [place.path.rstrip("/") for place in places["b"]] == [str(directory(theirs))]


async def test_silence_about_a_damaged_neighbour_is_not_no_neighbour(lake):
    damaged = lake.create("b")
    with serve(lake.another_client()) as server:
        lake.properties = {"type": "rest", "uri": server.uri, "name": "lake"}
        answers = iter([server._load("b")])
        server._load = lambda *_: next(answers, (500, {}))
        damage(damaged)
        with pytest.raises(CatalogUnavailable):
            await lake.format().locations()
    assert next(answers, None) is None


async def test_unknown_neighbours_stop_the_table(lake, tmp_path):
    table = lake.create()
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    bench = Bench(root=tmp_path / "lake", clock=SetClock(later(days=10)), scratch=tmp_path / "scratch")
    bench.neighbours_problem = "503 SlowDown"
    run = await clean(bench, table)
    assert run.refusal.code == "neighbours_unknown"
    assert orphan.exists()


async def test_a_table_of_another_namespace_is_a_neighbour_too(lake, tmp_path):
    table = lake.create("a")
    table.append(1)
    lake.catalog.create_namespace("other")
    shared = {"write.data.path": f"{table.table.location()}/data"}
    other = lake.catalog.create_table("other.b", SCHEMA, properties=shared)
    other.append(pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]}))
    places = await lake.format().locations()
    bench = Bench(
        root=tmp_path / "lake", clock=SetClock(later(days=10)), scratch=tmp_path / "scratch", neighbours=places
    )
    run = await clean(bench, table)
    assert run.refusal.code == "overlap"
    assert lake.catalog.load_table("other.b").scan().to_arrow().num_rows == 1
