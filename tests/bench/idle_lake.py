"""Many small tables of all three formats on a local disk: one of each is written, and the others are copies of it.

Copies are found like any other table. An Iceberg copy shares the manifests of the first, so it cannot be planned.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from tests.builders.delta import DeltaWriter, LocalPlace
from tests.builders.iceberg import SCHEMA
from tests.builders.paimon_model import ModelTable

from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import bucket, forget

FIRST = "t00000"
OLD = datetime.now(UTC) - timedelta(days=400)


def build(root: Path, tables: int) -> None:
    """A third of them each."""
    for kind, make in (("delta", _delta), ("paimon", _paimon), ("iceberg", _iceberg)):
        make(root / kind, tables // 3 + (tables % 3 if kind == "delta" else 0))


def settings(root: Path, state: Path) -> Settings:
    """All defaults but an interval between listings."""
    catalog = {"type": "sql", "uri": f"sqlite:///{root}/iceberg/catalog.db", "name": "lake"}
    datasets: list[dict[str, Any]] = [
        {"id": "delta", "format": "delta", "location": str(root / "delta")},
        {"id": "paimon", "format": "paimon", "warehouse": str(root / "paimon"), "database": "db"},
        {"id": "iceberg", "format": "iceberg", "catalog": catalog, "namespace": "db"},
    ]
    return Settings.model_validate(
        {
            "orphan_cleanup": {"enabled": True, "dry_run": False, "listing_interval_hours": 10_000},
            "service": {"data_dir": str(state)},
            "storage": {"local": {"age_by": "modification"}},
            "tenants": [{"id": "acme", "root": str(root), "datasets": datasets}],
        }
    )


def _delta(root: Path, tables: int) -> None:
    writer = DeltaWriter(LocalPlace(root / FIRST))
    writer.create(OLD)
    writer.add("part-0.parquet", at=OLD)
    files = {path.relative_to(root / FIRST): path.read_bytes() for path in (root / FIRST).rglob("*") if path.is_file()}
    for name in _others(tables):
        for below, data in files.items():
            _write(root / name / below, data)


def _paimon(root: Path, tables: int) -> None:
    made = ModelTable(bucket("idle"), FIRST, OLD, {})
    made.append("2026-01-01")
    files = {key.removeprefix(f"{FIRST}/"): held.data for key, held in made.bucket.objects.items()}
    forget("idle")
    for name in (FIRST, *_others(tables)):
        for below, data in files.items():
            _write(root / "db.db" / name / below, data)


def _iceberg(root: Path, tables: int) -> None:
    root.mkdir(parents=True)
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    catalog.create_namespace("db")
    table = catalog.create_table(f"db.{FIRST}", SCHEMA)
    table.append(pa.table({"id": pa.array([1], pa.int64()), "name": ["n"]}))
    for path in root.rglob("*"):
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    pointer = catalog.load_table(f"db.{FIRST}").metadata_location
    document = Path(pointer.removeprefix("file://")).read_bytes()
    rows = []
    for name in _others(tables):
        its_own = pointer.replace(FIRST, name)
        _write(Path(its_own.removeprefix("file://")), document.replace(FIRST.encode(), name.encode()))
        rows.append(("lake", "db", name, its_own))
    with sqlite3.connect(root / "catalog.db") as database:
        columns = "catalog_name, table_namespace, table_name, metadata_location"
        database.executemany(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?)", rows)
        database.execute("UPDATE iceberg_tables SET iceberg_type = 'TABLE'")


def _others(tables: int) -> Iterator[str]:
    return (f"t{number:05d}" for number in range(1, tables))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (OLD.timestamp(), OLD.timestamp()))
