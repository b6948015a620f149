"""One Iceberg table as its writers know it: snapshots, refs, files, and commits that change them. No product code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.formats import iceberg_bytes as encode
from tests.sim.formats.iceberg_bytes import ADDED, DATA, DELETED, EXISTING, Entry, ListedManifest
from tests.sim.world import Stored, World

MAIN = "main"
MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_KEPT = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True, eq=False)
class DataFile:
    """A data file, delete file or deletion vector."""

    path: str
    content: int
    stored: Stored
    spelled: str | None = None
    """What the table calls it, where that is another name of the same place."""


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """A manifest and what it says of each file."""

    path: str
    stored: Stored
    deletes: bool
    entries: tuple[tuple[int, DataFile], ...]
    snapshot_id: int
    sequence: int

    @property
    def live(self) -> list[DataFile]:
        return [one for status, one in self.entries if status != DELETED]

    def listed(self) -> ListedManifest:
        counts = [status for status, _ in self.entries]
        return ListedManifest(
            self.path,
            len(self.stored.data),
            int(self.deletes),
            self.sequence,
            self.snapshot_id,
            counts.count(ADDED),
            counts.count(EXISTING),
            counts.count(DELETED),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot, and every object that a reader of it asks for."""

    id: int
    parent: int | None
    at_ms: int
    summary: Mapping[str, str]
    manifests: tuple[Manifest, ...]
    json: str
    files: Mapping[str, Stored]

    @property
    def live(self) -> list[DataFile]:
        return [one for manifest in self.manifests for one in manifest.live]


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag, with its own retention in ms."""

    kind: str
    snapshot_id: int
    min_kept: int | None = None
    max_age: int | None = None
    max_ref_age: int | None = None

    def document(self) -> dict[str, Any]:
        extra = {
            "min-snapshots-to-keep": self.min_kept,
            "max-snapshot-age-ms": self.max_age,
            "max-ref-age-ms": self.max_ref_age,
        }
        own = {"type": self.kind, "snapshot-id": self.snapshot_id}
        return own | {name: value for name, value in extra.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """A statistics file of a snapshot."""

    snapshot_id: int
    path: str
    stored: Stored
    of_partitions: bool


@dataclass(frozen=True, slots=True)
class View:
    """What one metadata file says: enough to judge an expiry, and to go back to it."""

    path: str
    stored: Stored
    uuid: str
    location: str
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, Ref]
    statistics: tuple[Statistics, ...]
    log: tuple[tuple[str, int], ...]
    sequence: int
    at_ms: int
    history: tuple[tuple[int, int], ...]


@dataclass
class Table:
    """A table of a catalog. Change the fields, then `commit`."""

    world: World
    name: str
    location: str
    version: int
    who: str = "writer"
    properties: dict[str, str] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    refs: dict[str, Ref] = field(default_factory=dict)
    statistics: list[Statistics] = field(default_factory=list)
    uuid: str = ""
    spec: int = 0
    schema: int = 0
    sequence: int = 0
    commits: int = 0
    views: dict[str, View] = field(default_factory=dict)
    """Every metadata file that was ever current, by its address."""
    log: tuple[tuple[str, int], ...] = ()
    current: View | None = None
    removed: set[str] = field(default_factory=set)
    """Metadata files that its own writers deleted."""
    history: tuple[tuple[int, int], ...] = ()
    """What was current, each with the time from which on it was."""
    logs_history: bool = False
    """Is that in its metadata, for time travel by date?"""
    lazy: bool = False
    """Does its catalog have commits in its own database only, and write their metadata file later?"""
    hint: bool = False
    """Do its writers keep a version hint?"""
    hinted: Stored | None = None

    def create(self) -> None:
        """The first commit."""
        self.uuid = self.world.uuid()
        self.commit()

    # ---- places

    @property
    def data_place(self) -> str:
        return self.properties.get("write.data.path", f"{self.location}/data")

    @property
    def metadata_place(self) -> str:
        return self.properties.get("write.metadata.path", f"{self.location}/metadata")

    def write_data(self, content: int = DATA, ending: str = "") -> DataFile:
        """A new file that nothing refers to yet."""
        name = f"{self.world.uuid()}{ending or '.parquet' if content == DATA else ending or '-deletes.parquet'}"
        partition = f"p={self.world.random.randrange(3)}/" if self.spec % 2 else ""
        path = f"{self.data_place}/{partition}{name}"
        return DataFile(path, content, self.world.put(path, name.encode() * 3, self.who))

    # ---- snapshots

    def head(self, branch: str = MAIN) -> Snapshot | None:
        ref = self.refs.get(branch)
        return self.snapshots.get(ref.snapshot_id) if ref else None

    def ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        yield from ancestors(self.snapshots, snapshot_id)

    def make_snapshot(
        self,
        parent: Snapshot | None,
        added: Sequence[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        operation: str = "append",
        summary: Mapping[str, str] | None = None,
        merge: bool = False,
    ) -> Snapshot:
        """Write the files of a snapshot; it is in no metadata yet."""
        world = self.world
        snapshot_id = int(world.uuid().replace("-", "")[:15], 16)
        self.sequence += 1
        gone = {one.path for one in removed}
        kept: list[Manifest] = []
        merged: dict[bool, list[tuple[int, DataFile]]] = {False: [], True: []}
        for manifest in parent.manifests if parent else ():
            if gone.isdisjoint(one.path for one in manifest.live):
                if not merge and manifest.live:
                    kept.append(manifest)
                elif merge:
                    merged[manifest.deletes] += [(EXISTING, one) for one in manifest.live]
                continue
            entries = [(DELETED if one.path in gone else EXISTING, one) for one in manifest.live]
            if merge:
                merged[manifest.deletes] += entries
            else:
                kept.append(self._manifest(snapshot_id, manifest.deletes, entries))
        for deletes in (False, True):
            fresh = [(ADDED, one) for one in added if (one.content != DATA) == deletes]
            if merged[deletes] + fresh:
                kept.insert(0, self._manifest(snapshot_id, deletes, merged[deletes] + fresh))
        return self._listed(snapshot_id, parent, tuple(kept), operation, summary or {}, added)

    def _manifest(self, snapshot_id: int, deletes: bool, entries: Sequence[tuple[int, DataFile]]) -> Manifest:
        path = f"{self.metadata_place}/{self.world.uuid()}-m0.avro"
        rows = [
            Entry(status, snapshot_id, self.sequence, one.content, one.spelled or one.path, len(one.stored.data))
            for status, one in entries
        ]
        stored = self.world.put(path, encode.manifest(self.version, deletes, rows), self.who)
        return Manifest(path, stored, deletes, tuple(entries), snapshot_id, self.sequence)

    def _listed(
        self,
        snapshot_id: int,
        parent: Snapshot | None,
        manifests: tuple[Manifest, ...],
        operation: str,
        summary: Mapping[str, str],
        added: Sequence[DataFile],
    ) -> Snapshot:
        path = f"{self.metadata_place}/snap-{snapshot_id}-1-{self.world.uuid()}.avro"
        data = encode.manifest_list(self.version, [one.listed() for one in manifests])
        files = {path: self.world.put(path, data, self.who)}
        for manifest in manifests:
            files[manifest.path] = manifest.stored
            files.update((one.path, one.stored) for one in manifest.live)
        live = [one for manifest in manifests for one in manifest.live]
        counts = {
            "total-data-files": sum(one.content == DATA for one in live),
            "total-delete-files": sum(one.content != DATA for one in live),
            "added-data-files": sum(one.content == DATA for one in added),
            # As newer Java writers do: without them a list of no live file that is cut short looks whole.
            "manifests-created": sum(one.snapshot_id == snapshot_id for one in manifests),
            "manifests-kept": sum(one.snapshot_id != snapshot_id for one in manifests),
        }
        told = {"operation": operation, **{name: str(count) for name, count in counts.items()}, **summary}
        at_ms = self.world.ms()
        json = encode.snapshot_json(snapshot_id, parent.id if parent else None, self.sequence, at_ms, path, told)
        return Snapshot(snapshot_id, parent.id if parent else None, at_ms, told, manifests, json, files)

    def add(self, snapshot: Snapshot, branch: str | None = MAIN) -> None:
        """Take a snapshot in, as the head of a branch unless it is staged."""
        self.snapshots[snapshot.id] = snapshot
        if branch is not None:
            known = self.refs.get(branch) or Ref("branch", snapshot.id)
            self.refs[branch] = replace(known, snapshot_id=snapshot.id)

    # ---- commits

    def commit(self) -> None:
        """Write the metadata file and point the catalog at it."""
        world = self.world
        path = f"{self.metadata_place}/{self.commits:05d}-{world.uuid()}.metadata.json"
        self.commits += 1
        at_ms = world.ms()
        main = self.refs.get(MAIN)
        if main is not None and (not self.history or self.history[-1][1] != main.snapshot_id):
            self.history = (*self.history, (at_ms, main.snapshot_id))
        if self.current is not None and not self.lazy:
            most = int(self.properties.get("write.metadata.previous-versions-max", "100"))
            self.log = (*self.log, (self.current.path, self.current.at_ms))[-most:]
        stored = world.put(path, encode.metadata_json(self._document(at_ms), self._snapshot_texts()), self.who)
        if self.hint:
            self.hinted = world.put(self._hint_path, str(self.commits).encode(), self.who)
        before = self.current
        self.current = self.views[path] = View(
            path,
            stored,
            self.uuid,
            self.location,
            dict(self.properties),
            dict(self.snapshots),
            dict(self.refs),
            tuple(self.statistics),
            self.log,
            self.sequence,
            at_ms,
            self.history,
        )
        if self.lazy:
            self.keep_back()
        if before and self.properties.get("write.metadata.delete-after-commit.enabled") == "true":
            kept = {one for one, _ in self.log} | {path}
            for old in (one for one, _ in before.log if one not in kept):
                world.remove(old)
                self.removed.add(old)

    def keep_back(self) -> None:
        """The newest commit is in the catalog's database only."""
        self.lazy = True
        self.world.remove(self.current.path)
        self.removed.add(self.current.path)

    def write_down(self) -> None:
        """The catalog writes the metadata file of the newest commit. Those in between it never writes."""
        if self.lazy:
            self.lazy = False
            self.world.put(self.current.path, self.current.stored.data, "catalog")
            self.removed.discard(self.current.path)

    @property
    def _hint_path(self) -> str:
        return f"{self.location}/metadata/version-hint.text"

    def go_back_to(self, view: View) -> None:
        """The catalog points at an earlier metadata file again. What its owner had let go by then nobody owes it."""
        named = [*(path for path, _ in view.log), *(one.path for one in view.statistics)]
        self.removed.update(path for path in named if path not in self.world.objects)
        self.current, self.uuid, self.location = view, view.uuid, view.location
        self.properties, self.snapshots, self.refs = dict(view.properties), dict(view.snapshots), dict(view.refs)
        self.statistics, self.log, self.history = list(view.statistics), view.log, view.history

    def forget(self, going: Iterable[int]) -> None:
        """Take snapshots out, with the refs and statistics that hang on them, as servers do."""
        gone = set(going)
        self.snapshots = {one: snapshot for one, snapshot in self.snapshots.items() if one not in gone}
        self.refs = {name: ref for name, ref in self.refs.items() if ref.snapshot_id not in gone}
        self.statistics = [one for one in self.statistics if one.snapshot_id not in gone]

    def _snapshot_texts(self) -> list[str]:
        return [one.json for one in self.snapshots.values()]

    def _document(self, at_ms: int) -> dict[str, Any]:
        main = self.refs.get(MAIN)
        fields = [{"source-id": 1, "field-id": 1000, "name": "p", "transform": "identity"}] if self.spec % 2 else []
        # What new files are partitioned by is a column: no writer drops it before the field.
        column = {"id": 1, "name": "p", "required": False, "type": "int"}
        columns = [column] if self.logs_history or fields else []
        return {
            "format-version": self.version,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-sequence-number": self.sequence,
            "last-updated-ms": at_ms,
            "last-column-id": 1 + self.schema,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": columns}],
            "default-spec-id": self.spec,
            "partition-specs": [{"spec-id": self.spec, "fields": fields}],
            "last-partition-id": 1000,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
            "current-snapshot-id": main.snapshot_id if main else -1,
            "refs": {name: ref.document() for name, ref in self.refs.items()},
            "snapshot-log": self._snapshot_log(),
            "metadata-log": [{"metadata-file": path, "timestamp-ms": at} for path, at in self.log],
            "statistics": [_statistics(one) for one in self.statistics if not one.of_partitions],
            "partition-statistics": [_statistics(one) for one in self.statistics if one.of_partitions],
        }

    def _snapshot_log(self) -> list[dict[str, int]]:
        """Up to the first that is gone: a gap would make another one look current for longer than it was."""
        if not self.logs_history:
            return []
        found: list[dict[str, int]] = []
        for at_ms, snapshot_id in reversed(self.history):
            if snapshot_id not in self.snapshots:
                break
            found.insert(0, {"timestamp-ms": at_ms, "snapshot-id": snapshot_id})
        return found

    # ---- who reads

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        """Each snapshot, statistics file and metadata file that the current metadata names."""
        view = self.current
        if view is None:
            return
        if view.path not in self.removed:
            yield f"{self.name}: its metadata", {view.path: view.stored}
        if self.hinted is not None and self.location == view.location:
            yield f"{self.name}: those who open it by its version hint", {self._hint_path: self.hinted}
        for path, _ in view.log:
            known = self.views.get(path)
            if known is not None and path not in self.removed:
                yield f"{self.name}: its metadata log", {path: known.stored}
        for snapshot in view.snapshots.values():
            yield f"{self.name}: snapshot {snapshot.id}", snapshot.files
        for one in view.statistics:
            if one.path in self.removed:
                continue
            yield f"{self.name}: statistics of snapshot {one.snapshot_id}", {one.path: one.stored}


def _statistics(one: Statistics) -> dict[str, Any]:
    size = len(one.stored.data)
    common = {"snapshot-id": one.snapshot_id, "statistics-path": one.path, "file-size-in-bytes": size}
    return common if one.of_partitions else common | {"file-footer-size-in-bytes": 1, "blob-metadata": []}


def ancestors(snapshots: Mapping[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    """A snapshot and its parents, as far as they are there."""
    while snapshot_id is not None and (found := snapshots.get(snapshot_id)) is not None:
        yield found
        snapshot_id = found.parent
