"""An Iceberg catalog in PostgreSQL is opened with the driver that is installed, however its address is spelled."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakesweep.formats.iceberg.catalog import IcebergCatalog
from lakesweep.storage.local.store import LocalStorage


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2"])
async def test_a_catalog_in_postgresql_lists_its_tables(scheme, postgres_server, tmp_path):
    database = await postgres_server.create_database()
    _, rest = postgres_server.url(database).split("://")
    made = SqlCatalog("lake", uri=f"postgresql+psycopg2://{rest}", warehouse=str(tmp_path))
    made.create_namespace("shop")
    made.create_table("shop.orders", Schema(NestedField(1, "id", LongType())))
    made.close()
    catalog = IcebergCatalog("lake", {"type": "sql", "uri": f"{scheme}://{rest}"}, LocalStorage(), None)
    try:
        assert await catalog.tables(None) == [("shop", "orders")]
        assert (await catalog.pointer(("shop", "orders"))).metadata_location.endswith(".metadata.json")
    finally:
        await catalog.aclose()
