"""A real Hive metastore: an expiry through it never overwrites a commit, also of writers that do not lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("thrift", reason="needs lakesweep[hive]")

from pyiceberg.catalog.hive import HiveCatalog
from tests.builders.iceberg import Lake, LakeTable, later
from tests.peers.hive_metastore.server import HiveMetastore, hive_metastore
from tests.unit.iceberg.expiring import OLD, POLICY, Fence, Interrupted, expired

from lakesweep.formats.iceberg.metastores import CHECKS_EXPECTED
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId

pytestmark = pytest.mark.xdist_group("catalogs")


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    with hive_metastore(tmp_path_factory.mktemp("hive")) as server:
        server.python().create_namespace("db")
        yield server


@pytest.fixture
def table(metastore: HiveMetastore, request: pytest.FixtureRequest) -> LakeTable:
    """Three snapshots; the settings give the operator's word, since 2.3.10 does not tell that it compares."""
    properties = {"type": "hive", "uri": metastore.uri, "name": "hive", CHECKS_EXPECTED: "true"}
    root = Path(metastore.warehouse.removeprefix("file://"))
    made = Lake(root=root, properties=properties, catalog=metastore.python()).create(f"t{abs(hash(request.node.name))}")
    made.history()
    return made


class WithoutLock(HiveCatalog):
    """A writer with `engine.hive.lock-enabled = false`: no lock, but the pointer must be what it read."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._client: Any = _Lockless(self._client)


class _Lockless:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __enter__(self) -> Any:
        self._opened = self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def lock(self, _: Any) -> Any:
        from hive_metastore.ttypes import LockState  # noqa: PLC0415 - comes with pyiceberg's Hive catalog

        return SimpleNamespace(state=LockState.ACQUIRED, lockid=0)

    def unlock(self, _: Any) -> None:
        """Nothing was locked."""

    def alter_table_with_environment_context(self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any):
        expected = new_tbl.parameters["previous_metadata_location"]
        key = {"expected_parameter_key": "metadata_location", "expected_parameter_value": expected}
        environment_context.properties |= key
        self._opened.alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)


async def open_table(table: LakeTable, writer: Any = None):
    ref = TableRef(tenant=TenantId("acme"), dataset="prod", name=table.name, format=FormatName.ICEBERG)
    return await table.lake.format(writer=writer).open(ref)


async def expire(table: LakeTable, writer: Any = None):
    handle = await open_table(table, writer)
    return (await handle.commit_expiry(await handle.load(), POLICY, later(**OLD), Fence()))[1]


async def test_an_expiry_never_overwrites_a_commit_that_took_no_lock(table: LakeTable, metastore: HiveMetastore):
    without_lock = WithoutLock("hive", uri=metastore.uri, warehouse=metastore.warehouse)
    other = LakeTable(lake=Lake(root=table.lake.root, properties={}, catalog=without_lock), name=table.name, table=None)
    acknowledged = []
    plan = await expire(table, Interrupted(lambda: acknowledged.append(other.append(99))))
    assert acknowledged[0] in table.snapshot_ids()
    assert {row["id"] for row in table.rows()} == {1, 2, 3, 99}
    assert acknowledged[0] not in expired(plan)
    assert len(expired(plan)) == 3


async def test_an_expiry_leaves_the_rest_of_the_entry_as_it_was(table: LakeTable):
    with table.lake.catalog._client as client:
        entry = client.get_table("db", table.name)
        entry.sd.serdeInfo.serializationLib = "org.apache.iceberg.mr.hive.HiveIcebergSerDe"
        entry.parameters["storage_handler"] = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
        client.alter_table("db", table.name, entry)
        before = client.get_table("db", table.name)
    await expire(table)
    with table.lake.catalog._client as client:
        after = client.get_table("db", table.name)
    assert after.sd == before.sd
    changed = {name for name, text in after.parameters.items() if before.parameters.get(name) != text}
    assert changed <= {"metadata_location", "previous_metadata_location", "transient_lastDdlTime"}
    assert after.parameters["previous_metadata_location"] == before.parameters["metadata_location"]
    assert len(table.snapshot_ids()) == 1


async def test_a_metastore_that_proves_nothing_expires_nothing(table: LakeTable):
    ids = table.snapshot_ids()
    del table.lake.properties[CHECKS_EXPECTED]
    handle = await open_table(table)
    plan = (await handle.load()).plan_expiry(POLICY, later(**OLD))
    assert plan.skipped is not None
    assert "HIVE-26882" in plan.skipped
    assert not plan.expire
    await expire(table)
    assert table.snapshot_ids() == ids


async def test_the_lock_of_another_writer_is_waited_for_and_ours_is_given_back(table: LakeTable):
    catalog = table.lake.catalog
    await expire(table)
    with catalog._client as client:
        held = client.lock(catalog._create_lock_request("db", table.name))
        from hive_metastore.ttypes import LockState, UnlockRequest  # noqa: PLC0415 - as above

        assert held.state == LockState.ACQUIRED
        client.unlock(UnlockRequest(lockid=held.lockid))


async def test_every_entry_of_a_metastore_claims_its_place(table: LakeTable, metastore: HiveMetastore):
    """Tables that are not Iceberg's may lie where they look like ghosts."""
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table  # noqa: PLC0415 - as above

    serde = SerDeInfo(
        name="s", serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={"path": "/d"}
    )
    place = f"{metastore.warehouse}/plain"
    stored = StorageDescriptor(cols=[], location=place, serdeInfo=serde, bucketCols=[], sortCols=[], parameters={})
    plain = Table(tableName="plain", dbName="db", sd=stored, partitionKeys=[], parameters={}, tableType="MANAGED_TABLE")
    catalog: Any = table.lake.catalog
    with catalog._client as client:
        client.create_table(plain)
    claimed = {one.match_key.rstrip("/") for one in await table.lake.format().claimed()}
    assert claimed >= {place, "file:///d", Location.parse(table.table.location()).match_key}
