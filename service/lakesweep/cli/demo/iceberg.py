"""The Iceberg tables of the demo's lake, written by pyiceberg and read by it again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakesweep.cli.demo import tables
from lakesweep.cli.demo.tables import HEAD, DemoTable, Rows

_NAMESPACES = {"acme": "shop", "globex": "iot"}
_RETENTION = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "2"}
"""The tables' own retention: a demo cannot wait for days. A table's properties win over the service's settings."""

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", StringType(), required=False),
    NestedField(3, "what", StringType(), required=False),
)
_BY_DAY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
_DAY = "2026-01-01"


def tenants(root: Path) -> list[dict[str, Any]]:
    return [
        {
            "id": tenant,
            "root": f"file://{root}/{tenant}",
            "datasets": [
                {
                    "id": namespace,
                    "format": "iceberg",
                    "catalog": {"type": "sql", "name": "demo", "uri": _uri(root, tenant)},
                    "namespace": namespace,
                }
            ],
        }
        for tenant, namespace in _NAMESPACES.items()
    ]


def build(root: Path) -> Iterator[DemoTable]:
    acme, globex = _new_catalog(root, "acme"), _new_catalog(root, "globex")
    yield _customers(root, acme)
    yield _orders(root, acme)
    yield _damaged(root, globex)
    yield _sensors(root, globex)


def load(root: Path, label: str) -> Table:
    tenant, namespace, name = label.split("/")
    catalog = load_catalog("demo", type="sql", uri=_uri(root, tenant))
    return catalog.load_table((namespace, name))


def read(root: Path, label: str) -> Rows:
    table = load(root, label)
    states = {f"{ref.snapshot_ref_type} {name}": ref.snapshot_id for name, ref in table.refs().items()}
    del states["branch main"]
    return {
        state: tables.ids_of(table.scan(snapshot_id=snapshot).to_arrow())
        for state, snapshot in {HEAD: None, **states}.items()
    }


def _uri(root: Path, tenant: str) -> str:
    return f"sqlite:///{root}/{tenant}/catalog.db"


def _new_catalog(root: Path, tenant: str) -> Catalog:
    (root / tenant).mkdir(parents=True)
    catalog = load_catalog("demo", type="sql", uri=_uri(root, tenant), warehouse=f"file://{root}/{tenant}")
    catalog.create_namespace(_NAMESPACES[tenant])
    return catalog


def _made(root: Path, label: str, about: str, **more: Any) -> DemoTable:
    return DemoTable(label=label, format="iceberg", about=about, read=partial(read, root, label), **more)


def _orders(root: Path, catalog: Catalog) -> DemoTable:
    table = catalog.create_table("shop.orders", _SCHEMA, properties=_RETENTION)
    for batch in range(6):
        table.append(tables.rows(batch * 100, 100, _DAY))
        if batch == 1:
            table.manage_snapshots().create_tag(_head(table), "year-end").commit()
        if batch == 3:
            table.manage_snapshots().create_branch(_head(table), "audit").commit()
    table.delete("id < 50")
    table.overwrite(tables.rows(10_000, 80, _DAY))
    table.append(tables.rows(20_000, 20, _DAY))
    place = _directory(table)
    planted = tables.plant_old(*(place / f"data/00000-0-failed-job-{number}.parquet" for number in range(5)))
    young = tables.plant_young(*(place / f"data/00000-4-running-job-{number}.parquet" for number in range(2)))
    tables.plant_old(place / "README.txt", place / "_temporary/0/part-0.parquet")
    about = "a tag, a branch, a failed job and a running one"
    return _made(root, "acme/shop/orders", about, planted=planted, curious=young[:1])


def _customers(root: Path, catalog: Catalog) -> DemoTable:
    table = catalog.create_table("shop.customers", _SCHEMA)
    table.append(tables.rows(0, 40, _DAY))
    table.append(tables.rows(40, 10, _DAY))
    place = _directory(table)
    planted = tables.plant_old(
        place / "metadata/7d5a3c52-0000-4000-8000-000000000000-m0.avro", place / "data/00000-1-crashed-commit-0.parquet"
    )
    return _made(root, "acme/shop/customers", "quiet; a crashed commit", planted=planted)


def _sensors(root: Path, catalog: Catalog) -> DemoTable:
    table = catalog.create_table("iot.sensors", _SCHEMA, partition_spec=_BY_DAY, properties=_RETENTION)
    for day in range(1, 8):
        table.append(tables.rows(day * 1000, 50, f"2026-03-0{day}"))
    for version in range(4):
        table.overwrite(tables.rows(90_000 + version, 30, "2026-03-02"), overwrite_filter="day = '2026-03-02'")
    place = _directory(table) / "data/day=2026-03-05"
    planted = tables.plant_old(*(place / f"00000-2-failed-{number}.parquet" for number in range(3)))
    return _made(root, "globex/iot/sensors", "one day corrected again and again", planted=planted)


def _damaged(root: Path, catalog: Catalog) -> DemoTable:
    """Lakesweep must refuse to clean here and say which file is gone."""
    table = catalog.create_table("iot.damaged", _SCHEMA)
    table.append(tables.rows(0, 10, _DAY))
    table.append(tables.rows(10, 10, _DAY))
    tables.plant_old(_directory(table) / "data/00000-3-failed-0.parquet")
    lost = next(iter(table.scan().plan_files())).file.file_path
    Path(lost.removeprefix("file://")).unlink()
    return _made(root, "globex/iot/damaged", "somebody deleted a live file by hand", damaged=True)


def _head(table: Table) -> int:
    snapshot = table.current_snapshot()
    if snapshot is None:
        raise RuntimeError("the demo table has no snapshot")
    return snapshot.snapshot_id


def _directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))
