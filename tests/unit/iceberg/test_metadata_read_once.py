"""A metadata file whose name is given only once is fetched once by a handle; any other whenever it is needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage import memory

UUID = "0d6f5c1e-6a0e-4d3b-9d6c-2f5b8a7e9c10"
REF = TableRef(tenant=TenantId("acme"), dataset="d", name="t", format=FormatName.ICEBERG)


@pytest.mark.parametrize(
    ("name", "again"),
    [
        (f"s3://b/t/metadata/00001-{UUID}.metadata.json", b"old"),
        ("s3://b/t/metadata/v1.metadata.json", b"new"),
        (f"s3://b/t-{UUID}/metadata/v1.metadata.json", b"new"),
    ],
)
async def test_only_a_name_that_is_given_once_is_believed(name, again):
    address = name.replace("s3://b/", "memory://read-once/")
    storage, writer = memory.MemoryStorage(), memory.MemoryWriter()
    table = IcebergTable(REF, SimpleNamespace(executable=True), storage, Location.parse("memory://read-once/"))
    try:
        await writer.put(Location.parse(address), b"old", create_only=False)
        assert await table._contents(address) == b"old"
        await writer.put(Location.parse(address), b"new", create_only=False)
        assert await table._contents(address) == again
    finally:
        memory.forget("read-once")
