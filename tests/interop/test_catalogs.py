"""What the product asks of an Iceberg catalog, from real ones and from the simulator's: stories prove something only
if both answer alike. And the same for the clock."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from tests.builders.iceberg import Lake
from tests.sim.formats.iceberg import IcebergModel
from tests.sim.ports import Process
from tests.sim.product import SimCatalog
from tests.sim.world import World

from lakesweep.daemon.clock import SystemClock
from lakesweep.formats.iceberg.catalog import CommitStyle, IcebergCatalog
from lakesweep.model.errors import UnknownTable
from lakesweep.model.location import Location
from lakesweep.storage.local.store import LocalStorage, LocalWriter

pytestmark = pytest.mark.xdist_group("catalogs")

_numbers = itertools.count(1)
NAME = "t"
ROWS = pa.table({"id": [1, 2, 3]})


class Served(Protocol):
    """A catalog with one table that has a few snapshots, and another client that changes it."""

    catalog: Any
    namespace: str
    style: CommitStyle

    def append(self) -> None: ...

    def drop(self) -> None: ...

    def metadata(self, address: str) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Real:
    """One of pyiceberg's catalogs. The product's own client asks it."""

    catalog: IcebergCatalog
    client: Catalog
    namespace: str
    style: CommitStyle

    def table(self) -> Table:
        return self.client.load_table((self.namespace, NAME))

    def append(self) -> None:
        self.table().append(ROWS)

    def drop(self) -> None:
        self.client.drop_table((self.namespace, NAME))

    def metadata(self, address: str) -> dict[str, Any]:
        return json.loads(Path(urlsplit(address).path).read_bytes())


@dataclass(frozen=True, kw_only=True)
class Simulated:
    catalog: SimCatalog
    model: IcebergModel
    style: CommitStyle
    namespace: str = "db"

    def append(self) -> None:
        self.model.append()

    def drop(self) -> None:
        del self.model.catalog["db.t"]

    def metadata(self, address: str) -> dict[str, Any]:
        return json.loads(self.model.world.objects[address].data)


def real(client: Catalog, properties: dict[str, Any], style: CommitStyle, namespace: str) -> Real:
    client.create_table((namespace, NAME), ROWS.schema)
    catalog = IcebergCatalog("lake", properties, LocalStorage(), LocalWriter())
    return Real(catalog=catalog, client=client, namespace=namespace, style=style)


def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Served:
    if kind == "sql":
        lake = Lake.make(tmp_path)
        return real(lake.catalog, lake.properties, CommitStyle.CLIENT, "db")
    if kind == "rest":
        server, namespace = request.getfixturevalue("rest"), f"asked{next(_numbers)}"
        client = server.python()
        client.create_namespace(namespace)
        return real(client, {"type": "rest", "uri": server.uri}, CommitStyle.SERVER, namespace)
    world = World(random=random.Random(1))
    model = IcebergModel(world)
    model.client = kind == "simulated client"
    model.table.create()
    model.catalog["db.t"] = model.table
    style = CommitStyle.CLIENT if model.client else CommitStyle.SERVER
    return Simulated(catalog=SimCatalog(model, Process(world)), model=model, style=style)


@pytest.fixture(params=["sql", "rest", "simulated client", "simulated server"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with closing(opened(request.param, request, tmp_path)) as one:
        for _ in range(3):
            one.append()
        if isinstance(one, Simulated):
            one.model.world.now += timedelta(days=30)  # its oracle lets only old snapshots expire
        yield one


@asynccontextmanager
async def closing(one: Served) -> AsyncIterator[Served]:
    try:
        yield one
    finally:
        await one.catalog.aclose()


async def read(served: Served) -> dict[str, Any]:
    pointer = await served.catalog.pointer((served.namespace, NAME))
    return served.metadata(pointer.metadata_location)


def snapshots(metadata: dict[str, Any]) -> set[int]:
    return {one["snapshot-id"] for one in metadata["snapshots"]}


async def expire(served: Served, before: dict[str, Any], *, head: int, uuid: str | None = None) -> None:
    """The oldest snapshot, if the table is as it was and its head is where it is said to be."""
    oldest = min(before["snapshots"], key=lambda one: one["timestamp-ms"])["snapshot-id"]
    await served.catalog.commit(
        (served.namespace, NAME),
        await served.catalog.pointer((served.namespace, NAME)),
        (
            AssertTableUUID(uuid=UUID(uuid or before["table-uuid"])),
            AssertRefSnapshotId(ref="main", snapshot_id=head),
        ),
        (RemoveSnapshotsUpdate(snapshot_ids=[oldest]),),
        (Location.parse(before["location"]),),
    )


async def test_a_catalog_lists_its_tables_below_a_namespace(served):
    wanted = (served.namespace, NAME)
    assert wanted in await served.catalog.tables(None)
    assert await served.catalog.tables((served.namespace,)) == [wanted]
    with pytest.raises(UnknownTable):
        await served.catalog.tables(("nobody",))


async def test_a_pointer_names_the_metadata_of_the_newest_commit(served):
    before = await read(served)
    assert len(snapshots(before)) == 3
    served.append()
    after = await read(served)
    assert snapshots(before) < snapshots(after)
    assert after["table-uuid"] == before["table-uuid"]


async def test_a_table_that_is_not_there_is_unknown(served):
    with pytest.raises(UnknownTable):
        await served.catalog.pointer((served.namespace, "nobody"))
    served.drop()
    with pytest.raises(UnknownTable):
        await served.catalog.pointer((served.namespace, NAME))


async def test_a_commit_removes_what_it_names_and_nothing_else(served):
    assert await served.catalog.commit_style() is served.style
    if served.style is CommitStyle.CLIENT:
        assert await served.catalog.no_swap() is None
    before = await read(served)
    await expire(served, before, head=before["current-snapshot-id"])
    after = await read(served)
    assert len(snapshots(before) - snapshots(after)) == 1
    assert snapshots(after) < snapshots(before)
    assert after["current-snapshot-id"] == before["current-snapshot-id"]


@pytest.mark.parametrize("wrong", ["head", "uuid"])
async def test_a_commit_whose_requirements_fail_changes_nothing(served, wrong):
    before = await read(served)
    served.append()
    now = await read(served)
    head = before["current-snapshot-id"] if wrong == "head" else now["current-snapshot-id"]
    uuid = str(UUID(int=7)) if wrong == "uuid" else None
    with pytest.raises(CommitFailedException):
        await expire(served, before, head=head, uuid=uuid)
    assert snapshots(await read(served)) == snapshots(now)


async def test_a_commit_to_a_dropped_table_creates_none(served):
    before = await read(served)
    pointer = await served.catalog.pointer((served.namespace, NAME))
    served.drop()
    with pytest.raises(RESTError if served.style is CommitStyle.SERVER else NoSuchTableError):
        await served.catalog.commit(
            (served.namespace, NAME),
            pointer,
            (AssertTableUUID(uuid=UUID(before["table-uuid"])),),
            (RemoveSnapshotsUpdate(snapshot_ids=[before["snapshots"][0]["snapshot-id"]]),),
            (Location.parse(before["location"]),),
        )
    with pytest.raises(UnknownTable):
        await served.catalog.pointer((served.namespace, NAME))


@pytest.mark.parametrize("clock", [SystemClock(), Process(World())], ids=["system", "simulated"])
def test_a_clock_tells_utc_and_goes_on(clock):
    first, second = clock.now(), clock.now()
    assert first.tzinfo is UTC
    assert first <= second
