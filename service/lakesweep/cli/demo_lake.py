"""A small real lake for `lakesweep demo`: Iceberg tables written by pyiceberg, with the litter that lakes gather.

Two tenants, tags, a branch, deletes and overwrites; files of failed writers, some old and some of this minute;
a note and a hidden directory that are nobody's business; and one table that has lost a live file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

_DAY_SECONDS = 24 * 3600
_RETENTION = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "2"}
"""The tables' own retention: a demo cannot wait for days. A table's properties win over the service's settings."""

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", StringType(), required=False),
    NestedField(3, "what", StringType(), required=False),
)
_BY_DAY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))

Rows = dict[str, int]
"""Rows per readable state of a table: its head, each retained snapshot, tag and branch."""


@dataclass(kw_only=True)
class DemoLake:
    """Where the lake is and what it should look like afterwards."""

    root: Path
    settings: dict[str, Any]
    planted: dict[str, list[Path]] = field(default_factory=dict)
    """By table: files that no writer ever committed and that are old enough to go."""

    def catalog(self, tenant: str) -> Catalog:
        """The tenant's catalog, as any other program would open it."""
        return load_catalog("demo", type="sql", uri=f"sqlite:///{self.root}/{tenant}/catalog.db")

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Every table that can be read."""
        for tenant in ("acme", "globex"):
            catalog = self.catalog(tenant)
            for identifier in sorted(catalog.list_tables("shop" if tenant == "acme" else "iot")):
                yield f"{tenant}/{'/'.join(identifier)}", catalog.load_table(identifier)

    def size(self) -> tuple[int, int]:
        """Files and bytes in the lake, catalogs not counted."""
        sizes = [path.stat().st_size for path in self.root.rglob("*") if path.is_file() and path.suffix != ".db"]
        return len(sizes), sum(sizes)


def build(root: Path) -> DemoLake:
    """Write the lake below an empty directory."""
    lake = DemoLake(root=root, settings={"tenants": [_tenant(root, "acme", "shop"), _tenant(root, "globex", "iot")]})
    acme, globex = _catalog(lake, "acme", "shop"), _catalog(lake, "globex", "iot")
    _orders(lake, acme)
    _customers(lake, acme)
    _sensors(lake, globex)
    _damaged(globex)
    return lake


def count_rows(table: Table) -> Rows:
    """What a reader sees, at the head and at everything that a name points to."""
    states = {"head": None} | {f"{ref.snapshot_ref_type} {name}": ref.snapshot_id for name, ref in table.refs().items()}
    return {state: table.scan(snapshot_id=snapshot).to_arrow().num_rows for state, snapshot in states.items()}


def _tenant(root: Path, tenant: str, namespace: str) -> dict[str, Any]:
    catalog = {"type": "sql", "name": "demo", "uri": f"sqlite:///{root}/{tenant}/catalog.db"}
    dataset = {"id": namespace, "format": "iceberg", "catalog": catalog, "namespace": namespace}
    return {"id": tenant, "root": f"file://{root}/{tenant}", "datasets": [dataset]}


def _catalog(lake: DemoLake, tenant: str, namespace: str) -> Catalog:
    (lake.root / tenant).mkdir(parents=True)
    catalog = load_catalog(
        "demo", type="sql", uri=f"sqlite:///{lake.root}/{tenant}/catalog.db", warehouse=f"file://{lake.root}/{tenant}"
    )
    catalog.create_namespace(namespace)
    return catalog


def _rows(first: int, count: int, day: str = "2026-01-01") -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "day": [day] * count, "what": [f"item {number}" for number in ids]})


def _orders(lake: DemoLake, catalog: Catalog) -> None:
    """Daily appends, a tagged year end, a branch for auditors, then corrections on main."""
    table = catalog.create_table("shop.orders", _SCHEMA, properties=_RETENTION)
    for batch in range(6):
        table.append(_rows(batch * 100, 100))
        if batch == 1:
            table.manage_snapshots().create_tag(_head(table), "year-end").commit()
        if batch == 3:
            table.manage_snapshots().create_branch(_head(table), "audit").commit()
    table.delete("id < 50")
    table.overwrite(_rows(10_000, 80))
    table.append(_rows(20_000, 20))
    lake.planted["acme/shop/orders"] = _plant_old(table, "data/00000-0-failed-job-{}.parquet", 5)
    _plant_young(table)
    _plant_private(table)


def _customers(lake: DemoLake, catalog: Catalog) -> None:
    """A quiet table; a crashed commit left a manifest and a data file behind."""
    table = catalog.create_table("shop.customers", _SCHEMA)
    table.append(_rows(0, 40))
    table.append(_rows(40, 10))
    lake.planted["acme/shop/customers"] = [
        *_plant_old(table, "metadata/7d5a3c52-0000-4000-8000-00000000000{}-m0.avro", 1),
        *_plant_old(table, "data/00000-1-crashed-commit-{}.parquet", 1),
    ]


def _sensors(lake: DemoLake, catalog: Catalog) -> None:
    """Partitioned by day, one day corrected again and again: what compaction and upserts leave behind."""
    table = catalog.create_table("iot.sensors", _SCHEMA, partition_spec=_BY_DAY, properties=_RETENTION)
    for day in range(1, 8):
        table.append(_rows(day * 1000, 50, f"2026-03-0{day}"))
    for version in range(4):
        table.overwrite(_rows(90_000 + version, 30, "2026-03-02"), overwrite_filter="day = '2026-03-02'")
    lake.planted["globex/iot/sensors"] = _plant_old(table, "data/day=2026-03-05/00000-2-failed-{}.parquet", 3)


def _damaged(catalog: Catalog) -> None:
    """Somebody deleted a live file by hand: Lakesweep must refuse to clean here and say which file."""
    table = catalog.create_table("iot.damaged", _SCHEMA)
    table.append(_rows(0, 10))
    table.append(_rows(10, 10))
    _plant_old(table, "data/00000-3-failed-{}.parquet", 1)
    lost = next(iter(table.scan().plan_files())).file.file_path
    Path(lost.removeprefix("file://")).unlink()


def _head(table: Table) -> int:
    snapshot = table.current_snapshot()
    if snapshot is None:
        raise RuntimeError("the demo table has no snapshot")
    return snapshot.snapshot_id


def _directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def _plant_old(table: Table, pattern: str, count: int) -> list[Path]:
    """Files of writers that never committed, ten days old."""
    planted = []
    for number in range(count):
        path = _directory(table) / pattern.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left behind by a failed job" * 400)
        ten_days_ago = time.time() - 10 * _DAY_SECONDS
        os.utime(path, (ten_days_ago, ten_days_ago))
        planted.append(path)
    return planted


def _plant_young(table: Table) -> None:
    """Files of this minute: a running writer may be about to commit them."""
    for number in range(2):
        (_directory(table) / f"data/00000-4-running-job-{number}.parquet").write_bytes(b"not committed yet" * 400)


def _plant_private(table: Table) -> None:
    """What no cleaner should touch however old it is."""
    ten_days_ago = time.time() - 10 * _DAY_SECONDS
    for name in ("README.txt", "_temporary/0/part-0.parquet"):
        path = _directory(table) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not Iceberg's")
        os.utime(path, (ten_days_ago, ten_days_ago))
