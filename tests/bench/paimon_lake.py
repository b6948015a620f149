"""A Paimon table of any size: a hundred commits, manifests of at most a thousand entries, empty data files.

Metadata is in Java's shape, with statistics on twelve columns. Every snapshot's base list names all manifests before
it, so the snapshots share them. A tenth as many files again as the table has were never committed.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench.avro_rows import RowWriter
from tests.bench.places import Place
from tests.builders.paimon_model import LIST_SCHEMA, MANIFEST_SCHEMA, STRING, DataFile

from lakesweep.formats import avro
from lakesweep.formats.paimon.binaryrow import encode_row
from lakesweep.formats.paimon.schema import FieldType, Kind

SNAPSHOTS = 100
_COLUMNS = 12
_PARTITIONS = 200
_SAMPLES = 500
_NUMBERS = [FieldType(kind=Kind.BIGINT)] * _COLUMNS
_ROWS = 10


@dataclass(kw_only=True)
class PaimonLake:
    """Call `build` once. An orphan clean finds `orphans`."""

    place: Place
    files: int
    orphans: set[str] = field(default_factory=set)
    _writer: RowWriter = field(default_factory=lambda: RowWriter(MANIFEST_SCHEMA, codec="zstandard"))
    _samples: list[list[bytes]] = field(default_factory=list)
    _dice: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def manifests(self) -> int:
        """How many the newest snapshot has."""
        return max(SNAPSHOTS, -(-self.files // 1000))

    def build(self) -> None:
        """Data files, orphans, metadata."""
        self.orphans = set(map(self._data, range(self.files, self.files + self.files // 10)))
        self.place.make(map(self._data, range(self.files + self.files // 10)))
        self.place.put(self._metadata())

    def _metadata(self) -> Iterator[tuple[str, bytes]]:
        fields = [{"id": n, "name": f"c{n}", "type": "BIGINT"} for n in range(_COLUMNS)]
        fields.append({"id": _COLUMNS, "name": "dt", "type": "STRING"})
        schema = {
            "version": 3,
            "id": 0,
            "fields": fields,
            "highestFieldId": _COLUMNS,
            "partitionKeys": ["dt"],
            "primaryKeys": [],
            "options": {"bucket": "-1"},
            "timeMillis": 1,
        }
        yield "schema/schema-0", json.dumps(schema).encode()
        before: list[dict[str, Any]] = []
        added = 0
        for number in range(SNAPSHOTS):
            fresh = []
            while added < self.manifests and added * SNAPSHOTS // self.manifests == number:
                name, data, row = self._manifest(added)
                fresh.append(row)
                added += 1
                yield f"manifest/{name}", data
            yield from self._snapshot(number + 1, before, fresh)
            before += fresh
        yield "snapshot/LATEST", str(SNAPSHOTS).encode()
        yield "snapshot/EARLIEST", b"1"

    def _manifest(self, index: int) -> tuple[str, bytes, dict[str, Any]]:
        """Its name, bytes and row of a list."""
        numbers = range(*(-(-at * self.files // self.manifests) for at in (index, index + 1)))
        day = self._day(numbers[0])
        names = [self._name(number).encode() for number in numbers]
        if not self._samples:
            holes = (encode_row([day], STRING), names[0])
            self._samples = [self._writer.split(self._record(holes[1].decode(), day), *holes) for _ in range(_SAMPLES)]
        partition = encode_row([day], STRING)
        rows = [
            before + partition + between + name + behind
            for name, (before, between, behind) in zip(
                names, self._dice.choices(self._samples, k=len(names)), strict=True
            )
        ]
        data, name = self._writer.container(rows), f"manifest-{self._unique()}-0"
        row = {
            "_VERSION": 2,
            "_FILE_NAME": name,
            "_FILE_SIZE": len(data),
            "_NUM_ADDED_FILES": len(rows),
            "_NUM_DELETED_FILES": 0,
            "_PARTITION_STATS": {"_MIN_VALUES": partition, "_MAX_VALUES": partition, "_NULL_COUNTS": [0]},
            "_SCHEMA_ID": 0,
            "_MIN_BUCKET": 0,
            "_MAX_BUCKET": 0,
            "_MIN_LEVEL": 0,
            "_MAX_LEVEL": 0,
        }
        return name, data, row

    def _record(self, name: str, day: str) -> dict[str, Any]:
        record = DataFile(name=name, partition=day, rows=_ROWS).entry(0)
        low = [self._dice.getrandbits(40) for _ in range(_COLUMNS)]
        high = [value + self._dice.getrandbits(20) for value in low]
        record["_FILE"] |= {"_MIN_KEY": encode_row([], []), "_MAX_KEY": encode_row([], [])}
        record["_FILE"]["_VALUE_STATS"] = {
            "_MIN_VALUES": encode_row([*low, day], [*_NUMBERS, *STRING]),
            "_MAX_VALUES": encode_row([*high, day], [*_NUMBERS, *STRING]),
            "_NULL_COUNTS": [self._dice.getrandbits(6) for _ in range(_COLUMNS + 1)],
        }
        return record

    def _snapshot(
        self, number: int, before: list[dict[str, Any]], fresh: list[dict[str, Any]]
    ) -> Iterator[tuple[str, bytes]]:
        """The two lists and the snapshot that names them."""
        lists = []
        for turn, rows in enumerate((before, fresh)):
            name, data = f"manifest-list-{self._unique()}-{turn}", avro.write(LIST_SCHEMA, rows)
            lists.append((name, len(data)))
            yield f"manifest/{name}", data
        (base, base_size), (delta, delta_size) = lists
        committed_at = datetime.now(UTC) - timedelta(hours=2) * (SNAPSHOTS + 1 - number)
        added, held = (sum(row["_NUM_ADDED_FILES"] for row in rows) * _ROWS for rows in (fresh, before))
        document = {
            "version": 3,
            "id": number,
            "schemaId": 0,
            "baseManifestList": base,
            "baseManifestListSize": base_size,
            "deltaManifestList": delta,
            "deltaManifestListSize": delta_size,
            "commitUser": "bench",
            "commitIdentifier": 2**63 - 1,
            "commitKind": "APPEND",
            "timeMillis": int(committed_at.timestamp() * 1000),
            "totalRecordCount": held + added,
            "deltaRecordCount": added,
        }
        yield f"snapshot/snapshot-{number}", json.dumps(document).encode()

    def _data(self, number: int) -> str:
        return f"dt={self._day(number)}/bucket-0/{self._name(number)}"

    def _name(self, number: int) -> str:
        return f"data-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}-0.parquet"

    def _day(self, number: int) -> str:
        partition = number * self.manifests // self.files % _PARTITIONS
        return f"{datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=partition):%Y-%m-%d}"

    def _unique(self) -> uuid.UUID:
        return uuid.UUID(int=self._dice.getrandbits(128))
