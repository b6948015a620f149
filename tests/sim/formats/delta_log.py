"""Writes the log of one Delta table as its own engines do, and remembers what each version has. No product code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.sim.formats import delta_bytes
from tests.sim.formats.delta_bytes import Action
from tests.sim.formats.place import Place

LOG = "_delta_log/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One deletion vector inside a file of them."""

    file: str
    text: str
    offset: int

    def descriptor(self) -> Action:
        return {
            "storageType": "u",
            "pathOrInlineDv": self.text,
            "offset": self.offset,
            "sizeInBytes": 36,
            "cardinality": 2,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A data file as one add names it."""

    spelled: str
    """As the log has it."""
    path: str | None
    """As storage has it below the table; None for a file of another table."""
    vector: Vector | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        vector = self.vector
        return (self.spelled, vector.text, vector.offset) if vector else (self.spelled, "", 0)

    def files(self) -> Iterable[str]:
        """What a reader of it opens below the table."""
        if self.path is not None:
            yield self.path
        if self.vector is not None:
            yield self.vector.file

    def action(self) -> Action:
        body: Action = {
            "path": self.spelled,
            "partitionValues": {"k": "a"},
            "size": 6,
            "modificationTime": 0,
            "dataChange": True,
        }
        return {**body, "deletionVector": self.vector.descriptor()} if self.vector else body

    def removal(self, at_ms: int | None) -> Action:
        body: Action = {"path": self.spelled, "dataChange": True}
        if at_ms is not None:
            body["deletionTimestamp"] = at_ms
        return {**body, "deletionVector": self.vector.descriptor()} if self.vector else body


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What one commit made of the table."""

    at_ms: int
    """Of its file, and never before the version before it: so time travel sees it."""
    stated_ms: int
    """By its own word, on tables with in-commit timestamps; else 0."""
    live: tuple[Added, ...]
    files: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete one: its own files and what they name, below the table."""

    version: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """A checkpoint with sidecars of which only the sidecar is written."""

    version: int
    sidecar: str
    head: list[Action]


@dataclass(kw_only=True)
class DeltaLog:
    """The table's state at its newest version, and every version that was ever written."""

    place: Place
    configuration: dict[str, str]
    features: tuple[str, ...]
    table_id: str = ""
    columns: int = 0
    """Beside the partition column."""
    partition: str = "k"
    version: int = -1
    live: dict[tuple[str, str, int], Added] = field(default_factory=dict)
    tombstones: dict[tuple[str, str, int], tuple[Added, int]] = field(default_factory=dict)
    removed_ms: dict[str, int] = field(default_factory=dict)
    """When a file below the table was last removed, for files that are not live."""
    transactions: dict[str, int] = field(default_factory=dict)
    versions: dict[int, Version] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    before: tuple[dict[Any, Any], dict[Any, Any], dict[str, int]] | None = None
    """What the newest commit has changed, as it was; None if that commit said more than which files there are."""

    def __post_init__(self) -> None:
        self.table_id = self.table_id or self.place.uuid()

    # --- commits

    def create(self, added: Sequence[Added] = ()) -> None:
        self.commit(
            added=added, more=[{"protocol": delta_bytes.protocol(self.features)}, {"metaData": self.metadata()}]
        )

    def metadata(self) -> Action:
        return delta_bytes.metadata(self.table_id, self.configuration, self.columns, self.partition)

    def data(self, stem: str = "part", directory: str = "", ending: str = ".parquet") -> Added:
        """A new data file, written and not committed."""
        name = f"{directory}{stem}-{self.place.uuid()}{ending}"
        self.place.put(name, b"data " + name.encode()[-36:])
        return Added(spelled=quote(name), path=name)

    def vector(self) -> Vector:
        """A new file of deletion vectors, written and not committed."""
        raw = bytes.fromhex(self.place.uuid().replace("-", ""))
        name = delta_bytes.vector_file(raw)
        self.place.put(name, b"vector " + raw)
        return Vector(file=name, text=delta_bytes.vector_text(raw), offset=1)

    def commit(
        self,
        *,
        added: Sequence[Added] = (),
        removed: Sequence[Added] = (),
        more: Sequence[Action] = (),
        operation: str = "WRITE",
        removed_ms: int | None = None,
        dated: bool = True,
        late_ms: int = 0,
    ) -> None:
        """The next version. `removed_ms` is the writer's own clock; a remove that is not dated counts from here. The
        file looks `late_ms` older than it is."""
        now = self.place.ms()
        name, body = self.drafted(added, removed, more, operation, (removed_ms or now) if dated else None)
        self.before = None if more else (dict(self.live), dict(self.tombstones), dict(self.removed_ms))
        self.place.put(LOG + name, body, late_ms)
        self.version += 1
        for one in removed:
            self.live.pop(one.key, None)
            self.tombstones[one.key] = (one, removed_ms or now)
        for one in added:
            self.live[one.key] = one
            self.tombstones.pop(one.key, None)
        self._remember(removed, removed_ms or now, now - late_ms)

    def take_back(self) -> bool:
        """Forget the newest commit, for another of its version. Not if it said more than which files there are."""
        if self.before is None:
            return False
        (self.live, self.tombstones, self.removed_ms), self.before = self.before, None
        del self.versions[self.version]
        self.version -= 1
        return True

    def drafted(
        self,
        added: Sequence[Added],
        removed: Sequence[Added],
        more: Sequence[Action],
        operation: str,
        removed_ms: int | None,
    ) -> tuple[str, bytes]:
        """The name and the bytes of the next commit."""
        head: Action = {"timestamp": self.place.ms(), "operation": operation}
        if "inCommitTimestamp" in self.features:
            head["inCommitTimestamp"] = self.place.ms()
        rows: list[Action] = [{"commitInfo": head}, *more]
        rows += [{"remove": one.removal(removed_ms)} for one in removed]
        rows += [{"add": one.action()} for one in added]
        return f"{self.version + 1:020d}.json", delta_bytes.lines(rows)

    def _remember(self, removed: Sequence[Added], removed_ms: int, at_ms: int) -> None:
        live = tuple(self.live.values())
        files = frozenset(name for one in live for name in one.files())
        for one in removed:
            for name in one.files():
                self.removed_ms[name] = removed_ms
        for name in files:
            self.removed_ms.pop(name, None)
        before = self.versions.get(self.version - 1)
        stated_ms = self.place.ms() if "inCommitTimestamp" in self.features else 0
        at_ms = max(at_ms, before.at_ms if before else 0)
        self.versions[self.version] = Version(at_ms=at_ms, stated_ms=stated_ms, live=live, files=files)

    # --- checkpoints

    def checkpoint(self, kind: str, *, hint: bool = True, parts: int = 2, keep_removed_ms: int = 0) -> Checkpoint:
        """One of the newest version: classic, multipart, v2-json or v2-parquet. Tombstones that its writer takes for
        expired, those before `keep_removed_ms`, are left out."""
        head: list[Action] = [{"protocol": delta_bytes.protocol(self.features)}, {"metaData": self.metadata()}]
        head += [{"txn": {"appId": name, "version": number}} for name, number in self.transactions.items()]
        files: list[Action] = [{"add": one.action()} for one in self.live.values()]
        files += [{"remove": one.removal(at_ms)} for one, at_ms in self.tombstones.values() if at_ms >= keep_removed_ms]
        stem = f"{LOG}{self.version:020d}.checkpoint"
        names: list[str] = []
        if kind == "classic":
            names.append(self._put(f"{stem}.parquet", delta_bytes.parquet(head + files)))
        elif kind == "multipart":
            rows = head + files
            for part in range(1, parts + 1):
                name = f"{stem}.{part:010d}.{parts:010d}.parquet"
                names.append(self._put(name, delta_bytes.parquet(rows[part - 1 :: parts])))
        else:
            names += self._v2(stem, kind.removeprefix("v2-"), head, files)
        made = Checkpoint(version=self.version, files=tuple(names))
        self.checkpoints.append(made)
        if hint:
            self.hint()
        return made

    def sidecar(self) -> Making:
        """The first half of a checkpoint of the newest version."""
        rows: list[Action] = [{"add": one.action()} for one in self.live.values()]
        rows += [{"remove": one.removal(at_ms)} for one, at_ms in self.tombstones.values()]
        name, data = f"{LOG}_sidecars/{self.place.uuid()}.parquet", delta_bytes.parquet(rows)
        self._put(name, data)
        named = {"path": name.rpartition("/")[2], "sizeInBytes": len(data), "modificationTime": self.place.ms()}
        head: list[Action] = [{"protocol": delta_bytes.protocol(self.features)}, {"metaData": self.metadata()}]
        head += [{"txn": {"appId": one, "version": number}} for one, number in self.transactions.items()]
        return Making(version=self.version, sidecar=name, head=[*head, {"sidecar": named}])

    def finish(self, making: Making) -> None:
        """The second half, of a version that may not be the newest any more."""
        rows: list[Action] = [{"checkpointMetadata": {"version": making.version}}, *making.head]
        name = f"{LOG}{making.version:020d}.checkpoint.{self.place.uuid()}.json"
        self._put(name, delta_bytes.lines(rows))
        self.checkpoints.append(Checkpoint(version=making.version, files=(making.sidecar, name)))

    def _v2(self, stem: str, encoding: str, head: list[Action], files: list[Action]) -> list[str]:
        sidecar = f"{self.place.uuid()}.parquet"
        data = delta_bytes.parquet(files)
        named = {"sidecar": {"path": sidecar, "sizeInBytes": len(data), "modificationTime": self.place.ms()}}
        rows: list[Action] = [{"checkpointMetadata": {"version": self.version}}, *head, named]
        body = delta_bytes.parquet(rows[1:]) if encoding == "parquet" else delta_bytes.lines(rows)
        return [
            self._put(f"{LOG}_sidecars/{sidecar}", data),
            self._put(f"{stem}.{self.place.uuid()}.{encoding}", body),
        ]

    def _put(self, name: str, data: bytes) -> str:
        self.place.put(name, data)
        return name

    def hint(self) -> None:
        self.place.put(f"{LOG}_last_checkpoint", delta_bytes.lines([{"version": self.version, "size": 1}]))

    def checksum(self) -> None:
        body: dict[str, Any] = {"numFiles": len(self.live), "protocol": delta_bytes.protocol(self.features)}
        self.place.put(f"{LOG}{self.version:020d}.crc", delta_bytes.lines([body]))

    def compact_log(self, first: int) -> None:
        """One file beside the commits from `first` to the newest, as deltalake and Kernel write it."""
        was = self.versions[first - 1].live if first else ()
        before, now = {one.key: one for one in was}, self.live
        rows: list[Action] = [{"add": one.action()} for key, one in now.items() if key not in before]
        rows += [
            {"remove": one.removal(self.tombstones[key][1])}
            for key, one in before.items()
            if key not in now and key in self.tombstones
        ]
        rows += [{"metaData": self.metadata()}, {"protocol": delta_bytes.protocol(self.features)}]
        self.place.put(f"{LOG}{first:020d}.{self.version:020d}.compacted.json", delta_bytes.lines(rows))
