"""Iceberg tables made of metadata alone: metadata.json, manifest lists and manifests, without any data file.

Fast enough for laws and benchmarks. Histories are ours to shape: versions 1 to 3, deletes, deletion vectors,
statistics, branches, tags, staged and rolled-back snapshots.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.builders.iceberg_manifests import (
    DELETED,
    EXISTING,
    Entry,
    Manifest,
    entry_record,
    entry_schema,
    list_bytes,
    manifest_bytes,
)

from lakesweep.model.location import Location
from lakesweep.storage import memory

__all__ = ["Entry", "MetadataTable", "entry_record", "entry_schema"]


@dataclass(kw_only=True)
class MetadataTable:
    """A table under construction. `files` maps addresses to bytes; `write` adds the next metadata.json."""

    location: str = "memory://lake/wh/db/t"
    version: int = 2
    codec: str = "deflate"
    properties: dict[str, str] = field(default_factory=dict)
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    partition_fields: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    refs: dict[str, dict[str, Any]] = field(default_factory=dict)
    statistics: list[dict[str, Any]] = field(default_factory=list)
    partition_statistics: list[dict[str, Any]] = field(default_factory=list)
    metadata_log: list[dict[str, Any]] = field(default_factory=list)
    manifests: dict[int, list[Manifest]] = field(default_factory=dict)
    address: str | None = None
    """The newest metadata.json."""
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1001))
    _names: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def path(self, name: str) -> str:
        """An address below the table."""
        return f"{self.location}/{name}"

    def commit(
        self,
        *added: str,
        at_ms: int,
        deleted: Sequence[str] = (),
        entries: Sequence[Entry] = (),
        delete_entries: Sequence[Entry] = (),
        branch: str = "main",
        parent: int | None = None,
        staged: bool = False,
        summary: bool = True,
    ) -> int:
        """A snapshot on a branch, or on none when staged: files added, and files of earlier manifests deleted."""
        snapshot_id = next(self._ids)
        if parent is None and branch in self.refs:
            parent = self.refs[branch]["snapshot-id"]
        kept = [self._without(one, set(deleted), snapshot_id) for one in self.manifests.get(parent or 0, [])]
        fresh = [Entry(path=path) for path in added] + list(entries)
        new = [self._manifest(tuple(fresh), snapshot_id)] if fresh else []
        new += [self._manifest(tuple(delete_entries), snapshot_id, content=1)] if delete_entries else []
        self.manifests[snapshot_id] = new + [one for one in kept if one.entries]
        name = self.path(f"metadata/snap-{snapshot_id}-1-{uuid.uuid4()}.avro")
        self.files[name] = list_bytes(self.manifests[snapshot_id], version=self.version, codec=self.codec)
        snapshot = {"snapshot-id": snapshot_id, "timestamp-ms": at_ms, "manifest-list": name}
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        if self.version > 1:
            snapshot["sequence-number"] = len(self.snapshots) + 1
        if self.version > 2:
            snapshot |= {"first-row-id": 0, "added-rows": 0}
        snapshot["summary"] = self._summary(snapshot_id) if summary else {"operation": "append"}
        self.snapshots.append(snapshot)
        if not staged:
            self.refs.setdefault(branch, {"type": "branch"})["snapshot-id"] = snapshot_id
        return snapshot_id

    def tag(self, name: str, snapshot_id: int, **retention: int) -> None:
        """A tag; keywords such as `max_ref_age_ms`."""
        self._ref(name, "tag", snapshot_id, retention)

    def branch(self, name: str, snapshot_id: int, **retention: int) -> None:
        """A branch, or a new place or retention for one."""
        self._ref(name, "branch", snapshot_id, retention)

    def add_statistics(self, snapshot_id: int, *, partition: bool = False, path: str | None = None) -> str:
        """A statistics file for a snapshot."""
        suffix = f"partition-stats-{snapshot_id}-{uuid.uuid4()}.parquet" if partition else f"{snapshot_id}.stats"
        path = path or self.path(f"metadata/{suffix}")
        entry = {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 4}
        if partition:
            self.partition_statistics.append(entry)
        else:
            self.statistics.append(entry | {"file-footer-size-in-bytes": 4, "blob-metadata": []})
        self.files[path] = b"stat"
        return path

    def document(self) -> dict[str, Any]:
        """What metadata.json holds."""
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": 1, "name": "id", "required": False, "type": "long"},
                *(
                    {"id": 10 + index, "name": f"p{index}", "required": False, "type": "string"}
                    for index in range(len(self.partition_fields))
                ),
            ],
        }
        spec = [
            {"name": name, "transform": "identity", "source-id": 10 + index, "field-id": 1000 + index}
            for index, name in enumerate(self.partition_fields)
        ]
        main = self.refs.get("main", {}).get("snapshot-id", -1)
        document = {
            "format-version": self.version,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-updated-ms": max((one["timestamp-ms"] for one in self.snapshots), default=0),
            "last-column-id": 10 + len(self.partition_fields),
            "schemas": [schema],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": spec}],
            "default-spec-id": 0,
            "last-partition-id": 999 + len(self.partition_fields),
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": dict(self.properties),
            "current-snapshot-id": main,
            "snapshots": json.loads(json.dumps(self.snapshots)),
            "refs": json.loads(json.dumps(self.refs)),
            "snapshot-log": [],
            "metadata-log": list(self.metadata_log),
            "statistics": list(self.statistics),
            "partition-statistics": list(self.partition_statistics),
        }
        if self.version == 1:
            document |= {"schema": schema, "partition-spec": spec}
        else:
            document["last-sequence-number"] = len(self.snapshots)
        if self.version > 2:
            document["next-row-id"] = 0
        return document

    def write(self, document: dict[str, Any] | None = None) -> str:
        """The next metadata.json; the one before it goes into the log."""
        if self.address is not None and document is None:
            self.metadata_log.append({"metadata-file": self.address, "timestamp-ms": 0})
        number = next(self._names)
        self.address = self.path(f"metadata/{number:05d}-{uuid.uuid4()}.metadata.json")
        self.files[self.address] = json.dumps(document or self.document()).encode()
        return self.address

    def forget_snapshots(self, *snapshot_ids: int) -> None:
        """Expire, as far as metadata goes."""
        self.snapshots = [one for one in self.snapshots if one["snapshot-id"] not in snapshot_ids]
        self.refs = {name: ref for name, ref in self.refs.items() if ref["snapshot-id"] not in snapshot_ids}

    def store(self) -> None:
        """Put every file where its address says: into memory buckets, or onto the disk."""
        for path, data in self.files.items():
            place = Location.parse(path)
            if place.scheme == "file":
                target = Path(place.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            else:
                store = memory.bucket(place.authority)
                store.objects[place.path] = memory.Held(data=data, modified_at=store.clock())

    def live_paths(self, snapshot_id: int) -> set[str]:
        """What a snapshot's entries name, told by the builder and not by any decoder."""
        return {
            entry.path
            for manifest in self.manifests[snapshot_id]
            for entry in manifest.entries
            if entry.status != DELETED
        }

    def _manifest(self, entries: tuple[Entry, ...], snapshot_id: int, content: int = 0) -> Manifest:
        path = self.path(f"metadata/{uuid.uuid4()}-m{next(self._names)}.avro")
        partition = dict.fromkeys(self.partition_fields, "x")
        data = manifest_bytes(entries, version=self.version, codec=self.codec, partition=partition)
        self.files[path] = data
        return Manifest(path=path, entries=entries, data=data, snapshot_id=snapshot_id, content=content)

    def _without(self, manifest: Manifest, deleted: set[str], snapshot_id: int) -> Manifest:
        live = tuple(entry for entry in manifest.entries if entry.status != DELETED)
        if not deleted & {entry.path for entry in live}:
            return manifest if live else replace(manifest, entries=())
        entries = tuple(replace(entry, status=DELETED if entry.path in deleted else EXISTING) for entry in live)
        return self._manifest(entries, snapshot_id, manifest.content)

    def _summary(self, snapshot_id: int) -> dict[str, str]:
        counts = [0, 0]
        for manifest in self.manifests[snapshot_id]:
            counts[manifest.content] += sum(entry.status != DELETED for entry in manifest.entries)
        return {"operation": "append", "total-data-files": str(counts[0]), "total-delete-files": str(counts[1])}

    def _ref(self, name: str, kind: str, snapshot_id: int, retention: dict[str, int]) -> None:
        settings = {key.replace("_", "-"): value for key, value in retention.items()}
        self.refs[name] = {"type": kind, "snapshot-id": snapshot_id, **settings}
