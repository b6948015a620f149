"""An Iceberg table of any number of files, of which the old snapshot has one in a hundred that the new one dropped."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tests.builders.iceberg_manifests import ADDED, DELETED, Entry, Manifest, list_bytes, manifest_bytes


class Place(Protocol):
    """Where it is stored."""

    address: str

    def make(self, names: Iterable[str]) -> None: ...
    def put(self, files: Iterable[tuple[str, bytes]]) -> None: ...


FIELDS = [{"id": 1, "name": "id", "required": False, "type": "long"}]
SCHEMA = {"type": "struct", "schema-id": 0, "fields": FIELDS}


def data(number: int) -> str:
    return f"data/{number:08d}-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}.parquet"


class Table:
    """So many files; the old snapshot has one in a hundred that the new one has dropped."""

    def __init__(self, place: Place, files: int) -> None:
        self.place, self.files, self.dropped = place, files, files // 100
        place.make(data(number) for number in range(files))
        kept = [self.manifest(range(first, min(first + 5000, files))) for first in range(self.dropped, files, 5000)]
        gone, drop = (self.manifest(range(self.dropped), status) for status in (ADDED, DELETED))
        now = datetime.now(UTC)
        snapshots = [
            self.snapshot(1, [gone, *kept], now - timedelta(days=60)),
            self.snapshot(2, [drop, *kept], now - timedelta(days=50)),
        ]
        self.metadata = f"metadata/00001-{uuid.uuid4()}.metadata.json"
        place.put([(self.metadata, json.dumps(self.document(snapshots)).encode())])

    def manifest(self, numbers: range, status: int = ADDED) -> Manifest:
        entries = tuple(Entry(path=f"{self.place.address}/{data(one)}", status=status) for one in numbers)
        name = f"metadata/{uuid.uuid4()}-m0.avro"
        manifest = Manifest(path=f"{self.place.address}/{name}", entries=entries, data=manifest_bytes(entries))
        self.place.put([(name, manifest.data)])
        return manifest

    def snapshot(self, number: int, manifests: list[Manifest], at: datetime) -> dict[str, object]:
        name = f"metadata/snap-{number}-1-{uuid.uuid4()}.avro"
        self.place.put([(name, list_bytes(manifests))])
        return {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": int(at.timestamp() * 1000),
            "manifest-list": f"{self.place.address}/{name}",
            "schema-id": 0,
            "summary": {"operation": "append"},
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        }

    def document(self, snapshots: list[dict[str, object]]) -> dict[str, object]:
        return {
            "format-version": 2,
            "table-uuid": str(uuid.uuid4()),
            "location": self.place.address,
            "last-updated-ms": snapshots[-1]["timestamp-ms"],
            "last-column-id": 1,
            "schemas": [SCHEMA],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": 2,
            "snapshots": snapshots,
            "refs": {"main": {"type": "branch", "snapshot-id": 2}},
            "last-sequence-number": 2,
        }
