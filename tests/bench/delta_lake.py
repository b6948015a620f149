"""A Delta table of any size: a hundred commits, a checkpoint at version 90, empty data files.

Every add has statistics on ten columns. Files that were removed long ago are no longer in the checkpoint, files that
were removed this week still are; a tenth as many files again as the table has were never committed.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.bench.places import Place

VERSIONS = 100
CHECKPOINT = 90
_COLUMNS = 10
_PARTITIONS = 200
_SAMPLES = 1000
_FIELDS = [
    {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    *({"name": f"c{n}", "type": "long", "nullable": True, "metadata": {}} for n in range(_COLUMNS)),
]
_MAP = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _MAP),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL_TYPE = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


@dataclass(kw_only=True)
class DeltaLake:
    """Call `build` once. Vacuum finds `garbage`."""

    place: Place
    files: int
    garbage: set[str] = field(default_factory=set)
    _dice: random.Random = field(default_factory=lambda: random.Random(7))

    def build(self) -> None:
        """Data files and garbage, then the log."""
        count = self.files
        removed = range(count, count + count // 50)
        gone = range(removed.stop, removed.stop + count // 20 + count // 10)
        self.garbage = set(map(self._data, gone))
        self.place.make(map(self._data, range(gone.stop)))
        self.place.put(self._log(removed))

    def _log(self, removed: Sequence[int]) -> Iterator[tuple[str, bytes]]:
        stats = [self._stats() for _ in range(_SAMPLES)]
        made = int((datetime.now(UTC) - timedelta(days=20)).timestamp() * 1000)
        metadata = {
            "id": str(uuid.UUID(int=self.files)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _FIELDS}),
            "partitionColumns": ["day"],
            "configuration": {},
            "createdTime": made,
        }
        for version in range(VERSIONS):
            first, last = (at * self.files // VERSIONS for at in (version, version + 1))
            lines = [json.dumps({"commitInfo": {"timestamp": made, "operation": "WRITE"}})]
            if version == 0:
                lines += [json.dumps({"protocol": _PROTOCOL}), json.dumps({"metaData": metadata})]
            for number, text in zip(range(first, last), self._dice.choices(stats, k=last - first), strict=True):
                path, day = self._data(number), self._day(number)
                lines.append(
                    f'{{"add":{{"path":"{path}","partitionValues":{{"day":"{day}"}},"size":1000,'
                    f'"modificationTime":{made},"dataChange":true,"stats":{json.dumps(text)}}}}}'
                )
            yield f"_delta_log/{version:020d}.json", "\n".join(lines).encode()
        data = self._checkpoint(metadata, stats, removed, made)
        rows = (CHECKPOINT + 1) * self.files // VERSIONS + len(removed) + 2
        yield f"_delta_log/{CHECKPOINT:020d}.checkpoint.parquet", data
        yield "_delta_log/_last_checkpoint", json.dumps({"version": CHECKPOINT, "size": rows}).encode()

    def _checkpoint(self, metadata: dict[str, Any], stats: list[str], removed: Sequence[int], made: int) -> bytes:
        """Protocol, metadata, the live files of version 90, and what was removed this week, a row each."""
        live = range((CHECKPOINT + 1) * self.files // VERSIONS)
        added = [
            {
                "path": self._data(number),
                "partitionValues": [("day", self._day(number))],
                "size": 1000,
                "modificationTime": made,
                "dataChange": True,
                "stats": text,
                "tags": None,
            }
            for number, text in zip(live, self._dice.choices(stats, k=len(live)), strict=True)
        ]
        lately = int((datetime.now(UTC) - timedelta(days=2)).timestamp() * 1000)
        taken = [{"path": self._data(number), "deletionTimestamp": lately, "dataChange": True} for number in removed]
        rows = 2 + len(added) + len(taken)
        columns = {
            "protocol": _column([_PROTOCOL], 0, rows, _PROTOCOL_TYPE),
            "metaData": _column([_described(metadata)], 1, rows, _METADATA),
            "add": _column(added, 2, rows, _ADD),
            "remove": _column(taken, 2 + len(added), rows, _REMOVE),
        }
        out = BytesIO()
        pq.write_table(pa.table(columns), out, compression="snappy")
        return out.getvalue()

    def _stats(self) -> str:
        low = {f"c{n}": self._dice.getrandbits(30) for n in range(_COLUMNS)}
        high = {name: value + self._dice.getrandbits(20) for name, value in low.items()}
        nulls = {name: self._dice.getrandbits(8) for name in low}
        return json.dumps({"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": nulls})

    def _data(self, number: int) -> str:
        unique = uuid.uuid5(uuid.NAMESPACE_OID, str(number))
        return f"day={self._day(number)}/part-{number % 10**5:05d}-{unique}.c000.snappy.parquet"

    @staticmethod
    def _day(number: int) -> str:
        return f"{datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=number % _PARTITIONS):%Y-%m-%d}"


def _column(values: list[dict[str, Any]], first: int, rows: int, type_: pa.DataType) -> pa.Array:
    """Values in a row from `first` on, null everywhere else."""
    return pa.array([*[None] * first, *values, *[None] * (rows - first - len(values))], type_)


def _described(metadata: dict[str, Any]) -> dict[str, Any]:
    """Maps as Arrow wants them."""
    return metadata | {"format": metadata["format"] | {"options": []}, "configuration": []}
