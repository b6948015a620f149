"""An Iceberg table of any size, as months of appends leave it: real metadata, empty data files.

120 snapshots, half a day apart, share their manifests (at least 120, at most 1,000 entries each, statistics on ten
columns). Some of the older half also rewrote manifests and dropped half of their files, which only older snapshots
still need. A tenth as many files again are orphans.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench.avro_rows import RowWriter
from tests.bench.places import Place
from tests.builders.iceberg_manifests import (
    ADDED,
    DELETED,
    EXISTING,
    Entry,
    container,
    entry_record,
    entry_schema,
    list_schema,
)

SNAPSHOTS = 120
BETWEEN = timedelta(hours=12)
EXPIRES_AFTER = timedelta(days=30)
"""Half of the history is older."""
_COLUMNS = 10
_PARTITIONS = 400
_SAMPLES = 1000
"""Different statistics; every row has one of them."""
_DAY = b"yyyy-mm-dd"
_FIRST_ID = 10**18
_REWRITING = range(10, SNAPSHOTS // 2 - 4, 5)
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "day", "required": False, "type": "string"},
        *({"id": n, "name": f"c{n}", "required": False, "type": "long"} for n in range(2, _COLUMNS + 1)),
    ],
}
_SPEC = [{"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}]
_HEADER = {
    "schema": json.dumps(_SCHEMA),
    "schema-id": "0",
    "partition-spec": json.dumps(_SPEC),
    "partition-spec-id": "0",
    "format-version": "2",
    "content": "data",
}


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    """One manifest, the data files it names by number, and its row of a manifest list."""

    name: str
    data: bytes
    numbers: range
    row: dict[str, Any]

    @property
    def live(self) -> int:
        return int(self.row["added_files_count"] + self.row["existing_files_count"])


@dataclass(kw_only=True)
class IcebergLake:
    """Call `build` once; `restore` brings back what a cycle deleted."""

    place: Place
    files: int
    metadata_name: str = f"metadata/00001-{uuid.UUID(int=1)}.metadata.json"
    orphans: set[str] = field(default_factory=set)
    expired: dict[str, bytes] = field(default_factory=dict)
    """What goes with the old half of the snapshots: data files, which are empty, and metadata."""
    _snapshots: list[dict[str, Any]] = field(default_factory=list)
    _writer: RowWriter = field(
        default_factory=lambda: RowWriter(entry_schema(2, ("day",)), codec="deflate", metadata=_HEADER)
    )
    _tails: list[list[bytes]] = field(default_factory=list)
    """What rows say behind their path, before and behind their day."""
    _dice: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def manifests(self) -> int:
        """How many the newest snapshot has."""
        return max(SNAPSHOTS, -(-self.files // 1000))

    @property
    def _at_once(self) -> int:
        """Manifests that a rewriting snapshot rewrites."""
        return max(1, self.manifests // 100)

    def build(self) -> None:
        """Data files, orphans, metadata."""
        self.place.make(self._data(number) for number in range(self.files))
        self.orphans = {self._data(number) for number in range(self.files, self.files + self.files // 10)}
        self.place.make(self.orphans)
        self.place.put(self._metadata())

    def restore(self) -> None:
        """As it was when it was built."""
        self.place.make(self.orphans)
        self.place.make(name for name, data in self.expired.items() if not data)
        self.place.put((name, data) for name, data in self.expired.items() if data)
        documents = {name for name in self.place.names() if name.endswith(".metadata.json")}
        self.place.remove(documents - {self.metadata_name})

    def _metadata(self) -> Iterator[tuple[str, bytes]]:
        """Every metadata file, snapshot by snapshot."""
        current: list[_Manifest] = []
        added = dropped = 0
        for number in range(SNAPSHOTS):
            fresh = []
            while added < self.manifests and added * SNAPSHOTS // self.manifests == number:
                fresh.append(self._appended(added, number))
                added += 1
            current += fresh
            for index in range(dropped, dropped + self._at_once) if number in _REWRITING else ():
                old = current[index]
                current[index] = self._rewritten(index, old, number)
                self.expired[old.name] = old.data
                self.expired |= dict.fromkeys(map(self._data, old.numbers[1::2]), b"")
                fresh.append(current[index])
                dropped += 1
            yield from ((one.name, one.data) for one in fresh)
            # Of a million files' manifests only those are held on to that will be written back one day.
            current = [
                one if index < len(_REWRITING) * self._at_once else replace(one, data=b"")
                for index, one in enumerate(current)
            ]
            yield self._list(current, number)
        yield self.metadata_name, json.dumps(self._document()).encode()

    def _appended(self, index: int, snapshot: int) -> _Manifest:
        numbers = range(*(-(-at * self.files // self.manifests) for at in (index, index + 1)))
        rows = self._rows(numbers, index, {"status": ADDED, "snapshot_id": _FIRST_ID + snapshot})
        return self._manifest(index, snapshot, numbers, self._writer.container(rows), added=len(numbers))

    def _rewritten(self, index: int, old: _Manifest, snapshot: int) -> _Manifest:
        """Every other file dropped."""
        kept, dropped = old.numbers[::2], old.numbers[1::2]
        born = {"sequence_number": old.row["sequence_number"], "file_sequence_number": old.row["sequence_number"]}
        stays = {"status": EXISTING, "snapshot_id": old.row["added_snapshot_id"], **born}
        goes = {"status": DELETED, "snapshot_id": _FIRST_ID + snapshot, **born}
        data = self._writer.container(self._rows(kept, index, stays) + self._rows(dropped, index, goes))
        return self._manifest(index, snapshot, old.numbers, data, existing=len(kept), deleted=len(dropped))

    def _rows(self, numbers: range, index: int, said: dict[str, Any]) -> list[bytes]:
        day = self._day(index).encode()
        addresses = [f"{self.place.address}/{self._data(number)}".encode() for number in numbers]
        hole = b"@" * len(addresses[0])
        before = self._writer.split(self._record(hole.decode()) | said, hole)[0]
        if not self._tails:
            self._tails = [self._writer.split(self._record(hole.decode()), hole, _DAY)[1:] for _ in range(_SAMPLES)]
        chosen = self._dice.choices(self._tails, k=len(addresses))
        return [
            before + path + between + day + behind for path, (between, behind) in zip(addresses, chosen, strict=True)
        ]

    def _record(self, path: str) -> dict[str, Any]:
        """With statistics of its own."""
        record = entry_record(Entry(path=path, columns_with_statistics=_COLUMNS), partition={"day": _DAY.decode()})
        file = record["data_file"]
        for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
            file[name] = [{"key": key, "value": self._dice.getrandbits(20)} for key in range(1, _COLUMNS + 1)]
        for name in ("lower_bounds", "upper_bounds"):
            file[name] = [{"key": key, "value": self._dice.randbytes(8)} for key in range(1, _COLUMNS + 1)]
        return record

    def _manifest(
        self,
        index: int,
        snapshot: int,
        numbers: range,
        data: bytes,
        *,
        added: int = 0,
        existing: int = 0,
        deleted: int = 0,
    ) -> _Manifest:
        name = f"metadata/{self._unique()}-m0.avro"
        day = self._day(index).encode()
        row = {
            "manifest_path": f"{self.place.address}/{name}",
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": 0,
            "sequence_number": snapshot + 1,
            "min_sequence_number": snapshot + 1 if added else 1,
            "added_snapshot_id": _FIRST_ID + snapshot,
            "added_files_count": added,
            "existing_files_count": existing,
            "deleted_files_count": deleted,
            "added_rows_count": added,
            "existing_rows_count": existing,
            "deleted_rows_count": deleted,
            "partitions": [{"contains_null": False, "contains_nan": False, "lower_bound": day, "upper_bound": day}],
        }
        return _Manifest(name=name, data=data, numbers=numbers, row=row)

    def _list(self, manifests: list[_Manifest], number: int) -> tuple[str, bytes]:
        """The manifest list of a snapshot, and the snapshot noted."""
        name = f"metadata/snap-{_FIRST_ID + number}-1-{self._unique()}.avro"
        data = container(list_schema(2), [one.row for one in reversed(manifests)])
        if number < SNAPSHOTS // 2:
            self.expired[name] = data
        committed_at = datetime.now(UTC) - BETWEEN * (SNAPSHOTS - number) + BETWEEN / 2
        files = str(sum(one.live for one in manifests))
        snapshot = {
            "snapshot-id": _FIRST_ID + number,
            "sequence-number": number + 1,
            "timestamp-ms": int(committed_at.timestamp() * 1000),
            "manifest-list": f"{self.place.address}/{name}",
            "schema-id": 0,
            "summary": {"operation": "overwrite", "total-data-files": files, "total-delete-files": "0"},
        }
        if number:
            snapshot["parent-snapshot-id"] = _FIRST_ID + number - 1
        self._snapshots.append(snapshot)
        return name, data

    def _document(self) -> dict[str, Any]:
        newest = self._snapshots[-1]
        return {
            "format-version": 2,
            "table-uuid": str(uuid.UUID(int=self.files)),
            "location": self.place.address,
            "last-updated-ms": newest["timestamp-ms"],
            "last-column-id": _COLUMNS,
            "schemas": [_SCHEMA],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": _SPEC}],
            "default-spec-id": 0,
            "last-partition-id": 1000,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": newest["snapshot-id"],
            "snapshots": self._snapshots,
            "refs": {"main": {"type": "branch", "snapshot-id": newest["snapshot-id"]}},
            "snapshot-log": [
                {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in self._snapshots
            ],
            "metadata-log": [],
            "statistics": [],
            "partition-statistics": [],
            "last-sequence-number": newest["sequence-number"],
        }

    def _data(self, number: int) -> str:
        """The same name for the same number, always, and as long as any other."""
        unique = uuid.uuid5(uuid.NAMESPACE_OID, str(number))
        day = self._day(number * self.manifests // self.files)
        return f"data/day={day}/{number % 10**5:05d}-{number:08d}-{unique}-00001.parquet"

    @staticmethod
    def _day(manifest: int) -> str:
        return f"{datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=manifest % _PARTITIONS):%Y-%m-%d}"

    def _unique(self) -> uuid.UUID:
        return uuid.UUID(int=self._dice.getrandbits(128))
