"""Glue: the swap names the version that was read, so a commit that came in between stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="needs lakesweep[glue]")

from pyiceberg.catalog import load_catalog
from tests.builders.iceberg import SCHEMA, Lake, LakeTable, later
from tests.servers.glue_stub import GlueStub, glue_stub
from tests.unit.iceberg.expiring import OLD, POLICY, Fence, Interrupted, expired

from lakesweep.formats.iceberg.metastores import CHECKS_VERSION_ID
from lakesweep.model.table import FormatName, TableRef, TenantId


@pytest.fixture
def glue() -> Iterator[GlueStub]:
    with glue_stub() as stub:
        yield stub


@pytest.fixture
def table(glue: GlueStub, tmp_path: Path) -> LakeTable:
    properties = {
        "type": "glue",
        "name": "glue",
        "glue.endpoint": glue.uri,
        "glue.region": "eu-west-1",
        "glue.access-key-id": "key",
        "glue.secret-access-key": "secret",
        CHECKS_VERSION_ID: "true",
    }
    catalog = load_catalog(**properties)
    lake = Lake(root=tmp_path, properties=properties, catalog=catalog)
    made = catalog.create_table("db.t", SCHEMA, location=f"file://{tmp_path}/wh/t")
    table = LakeTable(lake=lake, name="t", table=made)
    table.history()
    return table


async def expire(table: LakeTable, writer: Any = None):
    ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.ICEBERG)
    handle = await table.lake.format(writer=writer).open(ref)
    return (await handle.commit_expiry(await handle.load(), POLICY, later(**OLD), Fence()))[1]


async def test_an_expiry_through_glue_never_overwrites_a_commit(table: LakeTable, glue: GlueStub):
    acknowledged: list[int] = []
    plan = await expire(table, Interrupted(lambda: acknowledged.append(table.append(99))))
    assert acknowledged[0] in table.snapshot_ids()
    assert {row["id"] for row in table.rows()} == {1, 2, 3, 99}
    assert acknowledged[0] not in expired(plan)
    assert all("VersionId" in update for update in glue.updates)


async def test_another_service_than_amazons_proves_nothing(table: LakeTable):
    ids = table.snapshot_ids()
    del table.lake.properties[CHECKS_VERSION_ID]
    plan = await expire(table)
    assert plan.skipped is not None
    assert "VersionId" in plan.skipped
    assert table.snapshot_ids() == ids


async def test_every_entry_of_glue_claims_its_place(table: LakeTable, glue: GlueStub):
    """Tables that are not Iceberg's may lie where they look like ghosts."""
    for database, name, described in (
        ("db", "hive", {"Location": "s3://lake/hive/"}),
        (
            "other",
            "delta",
            {"Location": "s3://lake/x-__PLACEHOLDER__", "SerdeInfo": {"Parameters": {"path": "s3a://lake/d"}}},
        ),
        ("other", "view", None),
    ):
        entry = {"Name": name, "DatabaseName": database, "Parameters": {}, "VersionId": "0"}
        glue.tables[database, name] = entry | ({"StorageDescriptor": described} if described else {})
    claimed = {place.match_key.rstrip("/") for place in await table.lake.format().claimed()}
    assert claimed == {
        "s3://lake/hive", "s3://lake/x-__PLACEHOLDER__", "s3://lake/d", f"file://{table.lake.root}/wh/t",
    }  # fmt: skip
