"""Small real Iceberg tables on the local disk, written by pyiceberg through a SQL catalog on SQLite."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import AddSnapshotUpdate, SetPartitionStatisticsUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField, StringType
from tests.builders.stores import LocalStorage

from lakesweep.formats.iceberg.format import IcebergFormat
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.local.store import LocalWriter

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@dataclass(kw_only=True)
class Lake:
    """A warehouse directory with its catalog. `properties` is what the settings would say of it."""

    root: Path
    properties: dict[str, Any]
    catalog: Catalog

    @classmethod
    def make(cls, root: Path) -> Lake:
        """An empty lake with the namespace `db`."""
        root.mkdir(parents=True, exist_ok=True)
        properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "name": "lake"}
        catalog = load_catalog(**properties, warehouse=f"file://{root}/wh")
        catalog.create_namespace("db")
        return cls(root=root, properties=properties, catalog=catalog)

    def another_client(self) -> Catalog:
        """A second connection, as another writer would have."""
        return load_catalog(**self.properties, warehouse=f"file://{self.root}/wh")

    def create(
        self,
        name: str = "t",
        *,
        partition_spec: PartitionSpec | None = None,
        schema: Schema = SCHEMA,
        **properties: str,
    ) -> LakeTable:
        """An empty table; keywords are table properties: `create(**{"gc.enabled": "false"})`."""
        extra: Mapping[str, Any] = {"partition_spec": partition_spec} if partition_spec else {}
        table = self.catalog.create_table(f"db.{name}", schema, properties=properties, **extra)
        return LakeTable(lake=self, name=name, table=table)

    def format(
        self, *, namespace: str | None = "db", root: Path | None = None, storage: Any = None, writer: Any = None
    ) -> IcebergFormat:
        """Our own way in."""
        spec = DatasetSpec(
            tenant=TenantId("acme"),
            tenant_root=Location.parse(str(root or self.root)),
            dataset="prod",
            format=FormatName.ICEBERG,
            catalog=self.properties,
            namespace=namespace,
        )
        return IcebergFormat(spec, storage or LocalStorage(), writer or LocalWriter())

    def files(self) -> set[str]:
        """Every file of the warehouse, as its address."""
        return {f"file://{path}" for path in (self.root / "wh").rglob("*") if path.is_file()}


@dataclass(kw_only=True)
class LakeTable:
    """One table and the things that writers do to it."""

    lake: Lake
    name: str
    table: Table

    async def open(self) -> IcebergTable:
        """Our own handle."""
        ref = TableRef(tenant=TenantId("acme"), dataset="prod", name=self.name, format=FormatName.ICEBERG)
        return await self.lake.format().open(ref)

    @property
    def current(self) -> int:
        """The current snapshot's id."""
        snapshot = self.refresh().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def refresh(self) -> Table:
        """The table as the catalog has it now."""
        self.table = self.lake.catalog.load_table(f"db.{self.name}")
        return self.table

    def rows(self, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """What a reader sees, in order of id."""
        scan = self.refresh().scan(snapshot_id=snapshot_id)
        return sorted(scan.to_arrow().to_pylist(), key=lambda row: row["id"])

    def append(self, *ids: int, branch: str = "main", summary: Mapping[str, str] | None = None) -> int:
        """Rows with these ids; returns the snapshot. `summary` is what the writer adds to the snapshot's own."""
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{one}" for one in ids]})
        self.refresh().append(rows, branch=branch, snapshot_properties=dict(summary or {}))
        return self.head(branch)

    def overwrite(self, *ids: int) -> int:
        """Replace everything."""
        self.refresh().overwrite(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{one}" for one in ids]}))
        return self.current

    def delete(self, one: int) -> int:
        """Delete a row by id."""
        self.refresh().delete(EqualTo("id", one))
        return self.current

    def tag(self, name: str, snapshot_id: int, **retention: int) -> None:
        """A tag, perhaps with `max_ref_age_ms`."""
        self.refresh().manage_snapshots().create_tag(snapshot_id, name, **retention).commit()

    def branch(self, name: str, snapshot_id: int, **retention: int) -> None:
        """A branch, perhaps with its own retention."""
        self.refresh().manage_snapshots().create_branch(snapshot_id, name, **retention).commit()

    def rollback(self, snapshot_id: int) -> None:
        """Point main at an older snapshot; what came after stays in the metadata, on no branch."""
        update = SetSnapshotRefUpdate(
            **{"ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        self.lake.catalog.commit_table(self.refresh(), (), (update,))

    def stage(self, *ids: int) -> int:
        """A snapshot that was written but never published (write-audit-publish)."""
        before = self.current
        staged = self.append(*ids)
        self.rollback(before)
        return staged

    def set(self, properties: Mapping[str, str]) -> None:
        """Table properties."""
        with self.refresh().transaction() as transaction:
            transaction.set_properties(dict(properties))

    def add_partition_statistics(self, snapshot_id: int) -> str:
        """A partition statistics file for a snapshot."""
        path = f"{self.table.location()}/metadata/partition-stats-{snapshot_id}.parquet"
        Path(Location.parse(path).path).write_bytes(b"stat")
        file = PartitionStatisticsFile(**{"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 4})
        update = SetPartitionStatisticsUpdate(**{"partition-statistics": file})
        self.lake.catalog.commit_table(self.refresh(), (), (update,))
        return path

    def re_add(self, snapshot_id: int) -> None:
        """Put a snapshot back that was expired, from what this handle still knows."""
        old = self.table.metadata.snapshot_by_id(snapshot_id)
        self.lake.catalog.commit_table(self.refresh(), (), (AddSnapshotUpdate(snapshot=old),))

    def head(self, branch: str) -> int:
        """Where a branch or tag points."""
        return self.refresh().metadata.refs[branch].snapshot_id

    def snapshot_ids(self) -> set[int]:
        """All snapshots of the metadata."""
        return {snapshot.snapshot_id for snapshot in self.refresh().metadata.snapshots}

    def in_order(self) -> list[int]:
        """All snapshots of the metadata, oldest first."""
        snapshots = self.refresh().metadata.snapshots
        return [one.snapshot_id for one in sorted(snapshots, key=lambda one: one.timestamp_ms)]

    def history(self, appends: Sequence[int] = (1, 2, 3)) -> list[int]:
        """Some appends, one snapshot each."""
        return [self.append(one) for one in appends]


def later(**ago: float) -> datetime:
    """A clock in the future, so that what was just written is old: `later(days=40)`."""
    return datetime.now(UTC) + timedelta(**ago)


def pause() -> None:
    """Two commits in different milliseconds."""
    time.sleep(0.002)
