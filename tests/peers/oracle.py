"""What Iceberg's own Java code decides and reads: the judge of what we expire, delete and keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.peers.independent import plain
from tests.peers.spark_table import SparkTable


def snapshots_to_expire(
    table: SparkTable, *, older_than_ms: int | None = None, retain_last: int | None = None
) -> frozenset[int]:
    """The snapshots that `expireSnapshots().apply()` names. Nothing is committed."""
    removal = table.catalog.java_table(table.identifier).expireSnapshots()
    if older_than_ms is not None:
        removal = removal.expireOlderThan(older_than_ms)
    if retain_last is not None:
        removal = removal.retainLast(retain_last)
    return frozenset(snapshot.snapshotId() for snapshot in removal.apply())


def orphans(table: SparkTable, *roots: str, prefix_listing: bool = False) -> frozenset[str]:
    """What a dry run of `remove_orphan_files` finds at the default age, below each root."""
    found: set[str] = set()
    for root in roots or (table.catalog.java_table(table.identifier).location(),):
        options = f"location => '{root}', dry_run => true"
        if prefix_listing:
            options += ", prefix_listing => true"
        found |= {plain(row.orphan_file_location) for row in table.call("remove_orphan_files", options)}
    return frozenset(found)


def refs(table: SparkTable) -> dict[str, int]:
    """Branches and tags, and the snapshot each one points at."""
    return {row.name: row.snapshot_id for row in table.sql("SELECT name, snapshot_id FROM {t}.refs")}


def snapshots(table: SparkTable) -> frozenset[int]:
    """Every snapshot in the metadata."""
    return frozenset(row.snapshot_id for row in table.sql("SELECT snapshot_id FROM {t}.snapshots"))


def rows(table: SparkTable, versions: Iterable[int | str]) -> dict[int | str, list[Any]]:
    """All rows as Spark reads them at each of these snapshots, tags and branches."""
    return {
        version: table.sql(
            f"SELECT id, name, day, _kind FROM {{t}} VERSION AS OF {_literal(version)} ORDER BY id, name"
        )
        for version in versions
    }


def _literal(version: int | str) -> str:
    return str(version) if isinstance(version, int) else f"'{version}'"
