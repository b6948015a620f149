"""Small real Delta tables, written by our own tiny log writer: every byte and every time is the test's.

It knows just enough of the protocol to write commits and all kinds of checkpoints, and it remembers the state, so
that a test can ask what is live at any version it wrote.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from tests.builders.cycles import Bench, SetClock
from tests.builders.stores import GatedUnpublishedRemover, LocalStorage, StorageSpec

from lakesweep.cleanup import plan_file
from lakesweep.formats.delta.checkpoint import decode
from lakesweep.formats.delta.table import DeltaOptions, DeltaTable
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.references import References
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableState
from lakesweep.storage import memory
from lakesweep.storage.memory import MemoryStorage
from lakesweep.storage.registry import open_deleter

NOW = datetime(2026, 3, 15, 12, 0, tzinfo=UTC)
FEATURES_READ = ("deletionVectors", "columnMapping", "v2Checkpoint", "timestampNtz", "vacuumProtocolCheck")

_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_MAP = pa.map_(pa.string(), pa.string())
CHECKPOINT_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _MAP),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])),
    ]
)


class Place(Protocol):
    """Where a table is written to."""

    location: Location

    def put(self, name: str, data: bytes, at: datetime | None) -> None: ...
    def delete(self, name: str) -> None: ...
    def names(self) -> set[str]: ...


@dataclass
class MemoryPlace:
    """A table in the store in memory."""

    bucket: str = field(default_factory=lambda: f"delta-{uuid.uuid4().hex}")
    prefix: str = "lake/t"

    @property
    def location(self) -> Location:
        return Location.parse(f"memory://{self.bucket}/{self.prefix}")

    def put(self, name: str, data: bytes, at: datetime | None) -> None:
        memory.bucket(self.bucket).objects[f"{self.prefix}/{name}"] = memory.Held(data=data, modified_at=at)

    def delete(self, name: str) -> None:
        del memory.bucket(self.bucket).objects[f"{self.prefix}/{name}"]

    def names(self) -> set[str]:
        start = f"{self.prefix}/"
        return {key[len(start) :] for key in memory.bucket(self.bucket).objects if key.startswith(start)}


@dataclass
class LocalPlace:
    """A table on the local disk."""

    path: Path

    @property
    def location(self) -> Location:
        return Location.parse(str(self.path))

    def put(self, name: str, data: bytes, at: datetime | None) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if at is not None:
            os.utime(target, (at.timestamp(), at.timestamp()))

    def delete(self, name: str) -> None:
        (self.path / name).unlink()

    def names(self) -> set[str]:
        return {str(one.relative_to(self.path)) for one in self.path.rglob("*") if one.is_file()}


def millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


@dataclass
class DeltaWriter:
    """Writes one table. Times are given; nothing depends on the real clock."""

    place: Place
    configuration: dict[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    table_id: str = "0e2b3f4c-5d6e-4f70-8192-a3b4c5d6e7f8"
    version: int = -1
    live: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    tombstones: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    transactions: dict[str, dict[str, Any]] = field(default_factory=dict)

    # --- commits

    def create(self, at: datetime = NOW, **more: Any) -> int:
        return self.commit([{"protocol": self.protocol()}, {"metaData": self.metadata()}], at, **more)

    def commit(self, actions: list[dict[str, Any]], at: datetime = NOW, *, info: dict[str, Any] | None = None) -> int:
        self.version += 1
        lines = [{"commitInfo": {"timestamp": millis(at), "operation": "TEST", **(info or {})}}, *actions]
        self.log(f"{self.version:020d}.json", b"\n".join(json.dumps(line).encode() for line in lines) + b"\n", at)
        for action in actions:
            self._apply(action)
        return self.version

    def add(self, *paths: str, at: datetime = NOW, vector: dict[str, Any] | None = None, write: bool = True) -> int:
        """Append data files. Paths are raw; the log spells them encoded."""
        for path in paths if write else ():
            self.place.put(path, b"data", at)
        return self.commit([{"add": self.added(path, vector)} for path in paths], at)

    def remove(self, *paths: str, at: datetime = NOW, removed_at: datetime | None = None) -> int:
        return self.commit([self.removal(path, removed_at or at) for path in paths], at)

    def added(self, path: str, vector: dict[str, Any] | None = None, *, spelled: str | None = None) -> dict[str, Any]:
        action = {
            "path": spelled or quote(path),
            "partitionValues": {},
            "size": 4,
            "modificationTime": 0,
            "dataChange": True,
        }
        return {**action, "deletionVector": vector} if vector else action

    def removal(self, path: str, removed_at: datetime | None, vector: dict[str, Any] | None = None) -> dict[str, Any]:
        known = next((add for add in self.live.values() if add["path"] == quote(path)), {})
        vector = vector or known.get("deletionVector")
        action: dict[str, Any] = {"path": quote(path), "dataChange": True}
        if removed_at is not None:
            action["deletionTimestamp"] = millis(removed_at)
        return {"remove": {**action, "deletionVector": vector} if vector else action}

    def _apply(self, action: dict[str, Any]) -> None:
        for name, body in action.items():
            key = (body.get("path", ""), json.dumps(body.get("deletionVector"), sort_keys=True))
            if name == "add":
                self.live[key] = body
                self.tombstones.pop(key, None)
            elif name == "remove":
                self.live.pop(key, None)
                self.tombstones[key] = body
            elif name == "metaData":
                self.configuration = body["configuration"]
            elif name == "txn":
                self.transactions[body["appId"]] = body
            elif name == "protocol":
                self.features = tuple(body.get("writerFeatures") or ())

    def protocol(self) -> dict[str, Any]:
        if not self.features:
            return {"minReaderVersion": 1, "minWriterVersion": 2}
        readers = [name for name in self.features if name in FEATURES_READ]
        body: dict[str, Any] = {
            "minReaderVersion": 3 if readers else 1,
            "minWriterVersion": 7,
            "writerFeatures": list(self.features),
        }
        return {**body, "readerFeatures": readers} if readers else body

    def metadata(self) -> dict[str, Any]:
        return {
            "id": self.table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }

    # --- checkpoints

    def checkpoint(self, kind: str = "classic", at: datetime = NOW, *, hint: bool = True, parts: int = 2) -> list[str]:
        """Write a checkpoint of the present version: classic, multipart, v2-json or v2-parquet."""
        files = [{"add": add} for add in self.live.values()] + [
            {"remove": remove} for remove in self.tombstones.values()
        ]
        head = [{"protocol": self.protocol()}, {"metaData": self.metadata()}]
        head += [{"txn": one} for one in self.transactions.values()]
        stem = f"{self.version:020d}.checkpoint"
        match kind:
            case "classic":
                written = {f"{stem}.parquet": parquet(head + files)}
            case "multipart":
                rows = head + files
                written = {
                    f"{stem}.{part:010d}.{parts:010d}.parquet": parquet(rows[part - 1 :: parts])
                    for part in range(1, parts + 1)
                }
            case "v2-json" | "v2-parquet":
                written = self._v2(stem, kind.removeprefix("v2-"), head, files, at)
            case _:
                raise ValueError(kind)
        for name, data in written.items():
            self.log(name, data, at)
        if hint:
            self.hint(self.version, at)
        return list(written)

    def _v2(
        self, stem: str, encoding: str, head: list[dict[str, Any]], files: list[dict[str, Any]], at: datetime
    ) -> dict[str, bytes]:
        sidecar = f"{uuid.uuid4()}.parquet"
        data = parquet(files)
        self.log(f"_sidecars/{sidecar}", data, at)
        named = {"sidecar": {"path": sidecar, "sizeInBytes": len(data), "modificationTime": millis(at)}}
        rows = [*head, named]
        body = parquet(rows) if encoding == "parquet" else b"\n".join(json.dumps(row).encode() for row in rows)
        return {f"{stem}.{uuid.uuid4()}.{encoding}": body}

    def hint(self, version: int, at: datetime = NOW) -> None:
        self.log("_last_checkpoint", json.dumps({"version": version, "size": 1}).encode(), at)

    def checksum(self, at: datetime = NOW, *, files: int | None = None) -> None:
        body = {"numFiles": len(self.live) if files is None else files, "protocol": self.protocol()}
        self.log(f"{self.version:020d}.crc", json.dumps(body).encode(), at)

    def log(self, name: str, data: bytes, at: datetime | None) -> None:
        self.place.put(f"_delta_log/{name}", data, at)

    # --- what a test asks

    def logged(self) -> set[str]:
        """Names below `_delta_log`."""
        start = "_delta_log/"
        return {name[len(start) :] for name in self.place.names() if name.startswith(start)}


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Rows of actions as a checkpoint file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_as_rows(row) for row in rows], schema=CHECKPOINT_SCHEMA), sink)
    return sink.getvalue()


def _as_rows(row: dict[str, Any]) -> dict[str, Any]:
    """Maps are lists of pairs in Arrow."""
    return {
        name: {key: list(value.items()) if key in _MAPS else value for key, value in body.items()}
        for name, body in row.items()
    }


_MAPS = ("partitionValues", "configuration")


def inline_vector() -> dict[str, Any]:
    return {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "cardinality": 6,
    }


def stored_vector(text: str, offset: int = 1) -> dict[str, Any]:
    """A vector in a file that is named by an encoded UUID, with an optional prefix before it."""
    return {"storageType": "u", "pathOrInlineDv": text, "offset": offset, "sizeInBytes": 36, "cardinality": 2}


@dataclass
class Opened:
    """A table as the product sees it, with everything that its references keep, decoded on the spot."""

    table: DeltaTable
    state: TableState
    expiry: ExpiryPlan
    references: References
    live: set[str]
    tolerated: set[str]

    def relative(self, paths: set[str] | tuple[str, ...]) -> set[str]:
        start = self.state.location.as_directory().raw
        return {path.removeprefix(start) for path in paths}

    @property
    def live_data(self) -> set[str]:
        return {name for name in self.relative(self.live) if not name.startswith("_delta_log/")}

    @property
    def tolerated_data(self) -> set[str]:
        return {name for name in self.relative(self.tolerated) if not name.startswith("_delta_log/")}

    @property
    def expired(self) -> set[str]:
        return {name.removeprefix("_delta_log/") for name in self.relative(self.references.expired)}


def open_table(writer: DeltaWriter, storage: Storage, clock: Clock, options: DeltaOptions | None = None) -> DeltaTable:
    ref = TableRef(tenant=TenantId("acme"), dataset="bronze", name="t", format=FormatName.DELTA)
    return DeltaTable(ref, writer.place.location, storage, clock, options)


async def look(writer: DeltaWriter, *, now: datetime = NOW, policy: CleanupPolicy | None = None) -> Opened:
    """Load, plan the expiry and read all references, as a cycle would."""
    if isinstance(writer.place, MemoryPlace):
        memory.bucket(writer.place.bucket).clock = lambda: now
    storage: Storage = MemoryStorage() if isinstance(writer.place, MemoryPlace) else LocalStorage()
    table = open_table(writer, storage, SetClock(now))
    state = await table.load()
    expiry = state.plan_expiry(policy or CleanupPolicy(), now)
    references = await state.references(expiry)
    live, tolerated = set(references.retained), set(references.tolerated)
    for source in references.sources:
        for row in decode(source, await storage.read(source.location)).to_pylist():
            if row["path"] not in references.released and not row.get("elsewhere"):
                (tolerated if row["tolerated"] else live).add(row["path"])
    return Opened(table, state, expiry, references, live, tolerated)


@dataclass
class Swept:
    """One whole cycle and what it planned, as names below the table."""

    run: CleanupRun
    planned: dict[str, Candidate]

    @property
    def names(self) -> set[str]:
        return set(self.planned)

    @property
    def data(self) -> set[str]:
        return {name for name in self.planned if not name.startswith("_delta_log/")}

    @property
    def log(self) -> set[str]:
        return {name.removeprefix("_delta_log/") for name in self.planned if name.startswith("_delta_log/")}


async def sweep(
    place: LocalPlace,
    *,
    now: datetime = NOW,
    execute: bool = False,
    policy: CleanupPolicy | None = None,
    options: DeltaOptions | None = None,
    bench: Bench | None = None,
) -> Swept:
    """One cycle over a table on the local disk, with the real engine and, if executed, the real deleter."""
    home = place.path.parent
    bench = bench or Bench(root=home, clock=SetClock(now), scratch=home.parent / f"{home.name}-scratch")
    ref = TableRef(tenant=TenantId("acme"), dataset="bronze", name=place.path.name, format=FormatName.DELTA)
    remover = GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), Location.parse(str(home)))
    table = DeltaTable(ref, place.location, bench.storage, bench.clock, options, remover=remover)
    run = await bench.run(table, policy or CleanupPolicy(), execute=execute)
    rows: list[Candidate] = []
    if run.plan is not None:
        for batch in plan_file.read_batches(run.plan.rows_path):
            rows += batch
    start = place.location.as_directory().raw
    return Swept(run, {row.path.removeprefix(start): row for row in rows})
