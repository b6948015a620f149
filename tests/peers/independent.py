"""Which files a table names, counted by other people's code: pyiceberg's reader and Spark's metadata tables.

Nothing of the product is used here, not even its notion of an address: that is what makes the count a judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from tests.peers.spark_table import SparkTable

_LOCAL = re.compile(r"^file:/+")
_S3 = re.compile(r"^s3[an]://")


def plain(address: str) -> str:
    """One spelling per place: bare local paths, `s3://` for all S3 schemes."""
    return _S3.sub("s3://", _LOCAL.sub("/", address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Plain addresses of the files that metadata names, by what names them."""

    metadata: frozenset[str]
    """The current metadata file, those in its log, and the version hint."""
    by_snapshot: Mapping[int, frozenset[str]]
    """Manifest list, manifests, data and delete files of each snapshot."""
    statistics: Mapping[int, frozenset[str]]
    """Statistics files, partition statistics too, of each snapshot."""

    @property
    def snapshots(self) -> frozenset[int]:
        """Every snapshot in the metadata."""
        return frozenset(self.by_snapshot)

    def files(self, snapshots: Iterable[int] | None = None) -> frozenset[str]:
        """What these snapshots name; all that the table names when none are given."""
        chosen = self.snapshots if snapshots is None else frozenset(snapshots)
        named: set[str] = set(self.metadata) if snapshots is None else set()
        for one in chosen:
            named |= self.by_snapshot[one] | self.statistics.get(one, frozenset())
        return frozenset(named)

    def expected(self, stored: Stored, *, expire: Iterable[int] = (), hidden: Hidden | None = None) -> Expected:
        """The exact plan for what is stored, if these snapshots go and all that is old may go."""
        going = frozenset(expire)
        kept = self.files(self.snapshots - going) | self.metadata
        expired = (self.files(going) - kept) & stored.files
        concealed = (hidden or Hidden()).among(stored)
        unreferenced = stored.old - kept - expired - concealed
        return Expected(expired=expired, unreferenced=frozenset(unreferenced))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is in storage below a root, as plain addresses."""

    root: str
    files: frozenset[str]
    old: frozenset[str]
    """Those past the grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """Names that begin with `_` or `.` are nobody's to clean, except directories of partition fields named so."""

    fields: frozenset[str] = field(default_factory=frozenset)

    def among(self, stored: Stored) -> frozenset[str]:
        """The stored files with a hidden name anywhere below the root."""
        return frozenset(
            path for path in stored.files if any(map(self._hides, path.removeprefix(f"{stored.root}/").split("/")))
        )

    def _hides(self, segment: str) -> bool:
        return segment.startswith(("_", ".")) and segment.partition("=")[0] not in self.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a plan must hold, to the last file."""

    expired: frozenset[str]
    unreferenced: frozenset[str]


def stored_locally(root: str, *, older_than: float) -> Stored:
    """Walk a directory; files modified before `older_than` (epoch seconds) are old."""
    base = Path(plain(root))
    times = {str(path): path.stat().st_mtime for path in base.rglob("*") if path.is_file()}
    return Stored(
        root=str(base),
        files=frozenset(times),
        old=frozenset(path for path, modified in times.items() if modified < older_than),
    )


def stored_on_s3(client: Any, root: str, *, older_than: float) -> Stored:
    """List a prefix, `s3://bucket/prefix`, with a client of its own."""
    bucket, _, prefix = plain(root).removeprefix("s3://").partition("/")
    times = {
        f"s3://{bucket}/{entry['Key']}": entry["LastModified"].timestamp()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        for entry in page.get("Contents", ())
    }
    return Stored(
        root=plain(root),
        files=frozenset(times),
        old=frozenset(path for path, modified in times.items() if modified < older_than),
    )


def hidden_by(table: Table) -> Hidden:
    """The partition fields of any spec, whose directories are not hidden even if named so."""
    return Hidden(fields=frozenset(one.name for spec in table.specs().values() for one in spec.fields))


def by_pyiceberg(table: Table) -> Reach:
    """Count with pyiceberg's own manifest reader."""
    by_snapshot: dict[int, frozenset[str]] = {}
    for snapshot in table.snapshots():
        named = {snapshot.manifest_list}
        for manifest in snapshot.manifests(table.io):
            named.add(manifest.manifest_path)
            named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        by_snapshot[snapshot.snapshot_id] = frozenset(map(plain, named))
    log = {entry.metadata_file for entry in table.metadata.metadata_log}
    every_statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
    return Reach(
        metadata=frozenset(map(plain, log | {table.metadata_location, _version_hint(table.location())})),
        by_snapshot=by_snapshot,
        statistics=_by_id((one.snapshot_id, one.statistics_path) for one in every_statistics),
    )


def by_spark(table: SparkTable) -> Reach:
    """Count with Spark's metadata tables; statistics, which have no such table, through the Java API."""
    lists = table.sql("SELECT snapshot_id, manifest_list FROM {t}.snapshots")
    manifests = table.sql("SELECT reference_snapshot_id, path FROM {t}.all_manifests")
    content = [
        (row.snapshot_id, file.file_path)
        for row in lists
        for file in table.sql(f"SELECT file_path FROM {{t}}.files VERSION AS OF {row.snapshot_id}")
    ]
    log = {row.file for row in table.sql("SELECT file FROM {t}.metadata_log_entries")}
    java_table = table.catalog.java_table(table.identifier)
    every_statistics = [*java_table.statisticsFiles(), *java_table.partitionStatisticsFiles()]
    return Reach(
        metadata=frozenset(map(plain, log | {_version_hint(java_table.location())})),
        by_snapshot=_by_id([*map(tuple, lists), *map(tuple, manifests), *content]),
        statistics=_by_id((one.snapshotId(), one.path()) for one in every_statistics),
    )


def _by_id(pairs: Iterable[tuple[int, str]]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for snapshot, address in pairs:
        found.setdefault(snapshot, set()).add(plain(address))
    return {snapshot: frozenset(named) for snapshot, named in found.items()}


def _version_hint(location: str) -> str:
    return f"{location.rstrip('/')}/metadata/version-hint.text"
