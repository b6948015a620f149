"""The Delta table of the demo's lake: JSON commits, a Parquet checkpoint and data files by pyarrow.

Six weeks of history are written with the times they would have had. Reading goes from the newest usable checkpoint
through the commits behind it, as every reader does.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.cli.demo import tables
from lakesweep.cli.demo.tables import HEAD, DemoTable, Rows

_LABEL = "initech/raw/clicks"
_LOG = "_delta_log"
_FILES_PER_COMMIT = 20
_ROWS_PER_FILE = 5
_DAY = "2026-01-01"
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_COLUMNS = [
    {"name": name, "type": type_, "nullable": True, "metadata": {}}
    for name, type_ in (("id", "long"), ("day", "string"), ("what", "string"))
]
_MAP = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
    }
)


def dataset(tenant: Path) -> dict[str, Any]:
    return {"id": "raw", "format": "delta", "location": f"file://{tenant}/delta"}


def build(tenant: Path) -> DemoTable:
    place = tenant / "delta/clicks"
    writer = _TableWriter(place)
    for number in range(5):
        writer.append(number * 1000, _FILES_PER_COMMIT, 45 - number)
    writer.compact(_FILES_PER_COMMIT, 39)
    checkpoint = writer.checkpoint(38)
    writer.append(10_000, 2, 3)
    removed = writer.compact(2, 1)
    planted = tables.plant_old(*(place / f"part-0000{number}-{uuid.uuid4()}-c000.parquet" for number in range(4)))
    tables.plant_young(place / f"part-00000-{uuid.uuid4()}-c000.parquet")
    tables.plant_old(place / "_spark_metadata/0")
    return DemoTable(
        label=_LABEL,
        format="delta",
        about="many small files, compacted twice",
        read=partial(read, place, checkpoint),
        planted=planted,
        curious=removed[:1],
    )


def read(place: Path, version: int) -> Rows:
    newest = max(int(path.stem) for path in (place / _LOG).glob("*.json"))
    return {HEAD: _read_version(place, newest), f"version {version}": _read_version(place, version)}


def _read_version(place: Path, version: int) -> tuple[int, ...]:
    checkpoints = [int(path.name[:20]) for path in (place / _LOG).glob("*.checkpoint.parquet")]
    start = max((found for found in checkpoints if found <= version), default=-1)
    actions = pq.read_table(_checkpoint_path(place, start)).to_pylist() if start >= 0 else []
    for number in range(start + 1, version + 1):
        actions += [json.loads(line) for line in _commit_path(place, number).read_text().splitlines()]
    live: set[str] = set()
    for action in actions:
        if action.get("add"):
            live.add(action["add"]["path"])
        if action.get("remove"):
            live.discard(action["remove"]["path"])
    return tables.ids_of(pa.concat_tables([pq.read_table(place / name) for name in sorted(live)]))


def _commit_path(place: Path, version: int) -> Path:
    return place / _LOG / f"{version:020d}.json"


def _checkpoint_path(place: Path, version: int) -> Path:
    return place / _LOG / f"{version:020d}.checkpoint.parquet"


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class _TableWriter:
    def __init__(self, place: Path) -> None:
        self._place = place
        self._version = -1
        self._live: dict[str, dict[str, Any]] = {}
        self._removed: list[dict[str, Any]] = []
        (place / _LOG).mkdir(parents=True)
        created = tables.days_ago(46)
        self._metadata: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": _COLUMNS}),
            "partitionColumns": [],
            "configuration": {},
            "createdTime": _millis(created),
        }
        self._commit("CREATE TABLE", [{"protocol": _PROTOCOL}, {"metaData": self._metadata}], created)

    def append(self, first: int, files: int, days: float) -> None:
        moment = tables.days_ago(days)
        chunks = (tables.rows(first + number * _ROWS_PER_FILE, _ROWS_PER_FILE, _DAY) for number in range(files))
        self._commit("WRITE", [self._add(chunk, moment, changes=True) for chunk in chunks], moment)

    def compact(self, files: int, days: float) -> tuple[Path, ...]:
        """One file instead of the oldest few. Returns those that are no longer used."""
        moment = tables.days_ago(days)
        old = list(self._live)[:files]
        whole = pa.concat_tables([pq.read_table(self._place / name) for name in old])
        removes = [
            {"remove": {"path": name, "deletionTimestamp": _millis(moment), "dataChange": False}} for name in old
        ]
        self._commit("OPTIMIZE", [*removes, self._add(whole, moment, changes=False)], moment)
        return tuple(self._place / name for name in old)

    def checkpoint(self, days: float) -> int:
        moment = tables.days_ago(days)
        metadata = {**self._metadata, "format": {"provider": "parquet", "options": []}, "configuration": []}
        adds = [{"add": {**add, "partitionValues": []}} for add in self._live.values()]
        rows = [{"protocol": _PROTOCOL}, {"metaData": metadata}, *adds, *self._removed]
        path = _checkpoint_path(self._place, self._version)
        pq.write_table(pa.Table.from_pylist(rows, schema=_CHECKPOINT), path)
        tables.set_time(path, moment)
        hint = self._place / _LOG / "_last_checkpoint"
        hint.write_text(json.dumps({"version": self._version, "size": len(rows)}))
        return self._version

    def _add(self, rows: pa.Table, moment: datetime, *, changes: bool) -> dict[str, Any]:
        path = self._place / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        pq.write_table(rows, path)
        tables.set_time(path, moment)
        return {
            "add": {
                "path": path.name,
                "partitionValues": {},
                "size": path.stat().st_size,
                "modificationTime": _millis(moment),
                "dataChange": changes,
                "stats": json.dumps({"numRecords": rows.num_rows}),
            }
        }

    def _commit(self, operation: str, actions: list[dict[str, Any]], moment: datetime) -> None:
        self._version += 1
        lines = [{"commitInfo": {"timestamp": _millis(moment), "operation": operation}}, *actions]
        path = _commit_path(self._place, self._version)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        tables.set_time(path, moment)
        for action in actions:
            if "add" in action:
                self._live[action["add"]["path"]] = action["add"]
            if "remove" in action:
                del self._live[action["remove"]["path"]]
                self._removed.append(action)
        self._checksum(moment)

    def _checksum(self, moment: datetime) -> None:
        """The file beside a commit that says how many files the version has."""
        sizes = [add["size"] for add in self._live.values()]
        body = {
            "tableSizeBytes": sum(sizes),
            "numFiles": len(sizes),
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": self._metadata,
            "protocol": _PROTOCOL,
        }
        path = _commit_path(self._place, self._version).with_suffix(".crc")
        path.write_text(json.dumps(body))
        tables.set_time(path, moment)
