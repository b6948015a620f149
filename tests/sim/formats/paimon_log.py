"""Writes one Paimon table as Java does, and keeps its own books of what every root needs. Knows no product code.

A root is a snapshot, a tag or a long-lived changelog, of the main table or of a branch. What it needs is noted when it
is written, never read back from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.formats import paimon_bytes
from tests.sim.world import Stored, World

BATCH = 2**63 - 1
"""The commit identifier of a commit that belongs to no stream."""
Key = tuple[str | None, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data or changelog file. Addresses are whole."""

    address: str
    partition: str | None
    level: int = 0
    source: int = 0
    created_ms: int = 0
    extras: tuple[str, ...] = ()
    external: bool = False

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def key(self) -> Key:
        return (self.partition, self.level, self.address)

    def addresses(self) -> tuple[str, ...]:
        return (self.address, *self.extras)

    def entry(self, kind: int) -> bytes:
        return paimon_bytes.entry(
            kind,
            self.partition,
            self.name,
            size=4,
            rows=10,
            level=self.level,
            extras=[one.rpartition("/")[2] for one in self.extras],
            created_ms=self.created_ms,
            source=self.source,
            external=self.address if self.external else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Its address, and how a list names it."""

    address: str
    listed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A hash index, or deletion vectors of one data file."""

    address: str
    record: bytes
    partition: str | None
    of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the next commit builds on."""

    manifests: tuple[Manifest, ...] = ()
    live: dict[Key, DataFile] = field(default_factory=dict)
    index: tuple[IndexFile, ...] = ()
    index_manifest: str | None = None
    statistics: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Root:
    """One snapshot, tag or changelog. Equal only to itself: an id may be used again."""

    address: str
    kind: str
    number: int
    made_ms: int
    stream: str | None
    document: dict[str, Any]
    stored: Stored
    state: State
    whole: frozenset[str]
    """What reading it needs."""
    changelog: frozenset[str]
    """What streams need of it if there is a changelog beside the data."""
    delta: frozenset[str]
    """What streams read instead where there is none: all that its delta adds or deletes."""
    logged: frozenset[str]
    """The changelog that its document names, although a tag does not protect it."""


class Roots(dict[str, Root]):
    """By address. Those of one directory are sorted once until something changes."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: dict[str, list[Root]] = {}

    def __setitem__(self, address: str, root: Root) -> None:
        self._sorted.clear()
        super().__setitem__(address, root)

    def pop(self, address: str, default: Any = None) -> Any:  # type: ignore[override]
        self._sorted.clear()
        return super().pop(address, default)

    def in_order(self, start: str) -> list[Root]:
        """Those whose addresses begin so, in order of their ids. Nobody may change the list."""
        if (known := self._sorted.get(start)) is None:
            found = (one for name, one in self.items() if name.startswith(start))
            known = self._sorted[start] = sorted(found, key=lambda one: one.number)
        return known


class PaimonLog:
    """`written` has every object that somebody may want, as it was written; whoever removes one takes it out."""

    def __init__(self, world: World, address: str, options: dict[str, str]) -> None:
        self.world, self.address, self.options = world, address, options
        self.written: dict[str, Stored] = {}
        self.roots = Roots()
        self.states: dict[str, State] = {"": State()}
        """By branch; the main table is the one without a name."""
        self.schemas = self.columns = 0
        self.external = ""
        self.fields: dict[str, Any] = {}
        self.needs: frozenset[str] = frozenset()
        """Fields of the next snapshot that only its writer knows, and the files that these name."""
        self.write_schema()

    # ---- files

    def put(self, address: str, data: bytes) -> str:
        self.written[address] = self.world.put(address, data, "writer")
        return address

    def at(self, name: str, branch: str = "") -> str:
        return f"{self.address}/branch/branch-{branch}/{name}" if branch else f"{self.address}/{name}"

    def remove(self, address: str) -> None:
        """A writer or another cleaner removes it."""
        self.written.pop(address, None)
        self.roots.pop(address, None)
        self.world.remove(address)

    def named(self, directory: str, kind: str, data: bytes) -> str:
        return self.put(self.at(f"{directory}/{kind}-{self.world.uuid()}-0"), data)

    def data(
        self, partition: str | None, *, stem: str = "data", level: int = 0, source: int = 0, extras: int = 0
    ) -> DataFile:
        """A new file, written and not committed."""
        top = self.external if self.external and self.world.random.random() < 0.5 else self.address
        directory = f"{top}/dt={partition or '__DEFAULT_PARTITION__'}/bucket-0"
        address = self.put(f"{directory}/{stem}-{self.world.uuid()}-0.orc", b"data")
        more = tuple(self.put(f"{address}.{number}.index", b"more") for number in range(extras))
        return DataFile(
            address=address,
            partition=partition,
            level=level,
            source=source,
            created_ms=self.world.ms(),
            extras=more,
            external=top != self.address,
        )

    # ---- commits

    def write_schema(self, branch: str = "") -> None:
        """The next schema, with the options as they are."""
        number = 0 if branch else self.schemas
        fields = [{"id": 0, "name": "k", "type": "INT"}, {"id": 1, "name": "dt", "type": "STRING"}]
        fields += [{"id": 2 + more, "name": f"c{more}", "type": "BIGINT"} for more in range(self.columns)]
        document = {
            "version": 3,
            "id": number,
            "fields": fields,
            "highestFieldId": 1 + self.columns,
            "partitionKeys": ["dt"],
            "primaryKeys": [],
            "options": {"bucket": "1", **self.options},
            "timeMillis": self.world.ms(),
        }
        self.put(self.at(f"schema/schema-{number}", branch), paimon_bytes.document(document))
        if not branch:
            self.schemas += 1

    def commit(
        self,
        branch: str = "",
        *,
        adds: Sequence[DataFile] = (),
        deletes: Sequence[DataFile] = (),
        changelog: Sequence[DataFile] = (),
        kind: str = "APPEND",
        merge: bool = False,
        index: tuple[IndexFile, ...] | None = None,
        statistics: str | None = None,
        stream: tuple[str, int] | None = None,
    ) -> Root:
        """The next snapshot."""
        before = self.states[branch]
        base = self._merged(before) if merge else before.manifests
        delta = self._manifests([(1, one) for one in deletes] + [(0, one) for one in adds])
        logged = self._manifests([(0, one) for one in changelog])
        live = dict(before.live)
        for one in deletes:
            live.pop(one.key, None)
        live.update((one.key, one) for one in adds)
        names = [self._list(base), self._list(delta), self._list(logged) if changelog else None]
        kept = before.index if index is None else index
        kept = tuple(one for one in kept if one.of is None or any(file.address == one.of for file in live.values()))
        state = State(
            manifests=(*base, *delta),
            live=live,
            index=kept,
            index_manifest=before.index_manifest if kept == before.index else self._index(kept),
            statistics=statistics or before.statistics,
        )
        self.states[branch] = state
        user, identifier = stream or (f"batch-{self.world.uuid()}", BATCH)
        rows = 10 * (len(adds) - len(deletes))
        document = self._document(branch, state, names, rows, kind, bool(changelog))
        document |= {"commitUser": user, "commitIdentifier": identifier}
        return self._stand(
            branch,
            document,
            state,
            stream=stream and user,
            lists=names,
            delta=frozenset(
                [names[1] or "", *(one.address for one in delta)]
                + [name for one in (*adds, *deletes) for name in one.addresses()]
            ),
            changelog=frozenset(
                [names[2], *(one.address for one in logged), *(name for one in changelog for name in one.addresses())]
                if names[2]
                else []
            ),
        )

    def _document(
        self, branch: str, state: State, lists: Sequence[str | None], rows: int, kind: str, changelog: bool
    ) -> dict[str, Any]:
        latest = self.latest(branch)
        document: dict[str, Any] = {
            "version": 3,
            "id": latest.number + 1 if latest else 1,
            "schemaId": 0 if branch else self.schemas - 1,
            "commitKind": kind,
            "timeMillis": self.world.ms(),
            "totalRecordCount": 10 * len(state.live),
            "deltaRecordCount": rows,
        }
        for name, address in zip(("base", "delta", "changelog"), lists, strict=True):
            if address:
                document[f"{name}ManifestList"] = address.rpartition("/")[2]
                document[f"{name}ManifestListSize"] = len(self.written[address].data)
        if changelog:
            document["changelogRecordCount"] = 10
        if state.index_manifest:
            document["indexManifest"] = state.index_manifest.rpartition("/")[2]
        if state.statistics:
            document["statistics"] = state.statistics.rpartition("/")[2]
        if self.world.random.random() < 0.7:
            document["uuid"] = self.world.uuid()  # Java before 2.0 gives none
        return document | self.fields

    def _stand(
        self,
        branch: str,
        document: dict[str, Any],
        state: State,
        *,
        stream: str | None,
        lists: Sequence[str | None],
        delta: frozenset[str],
        changelog: frozenset[str],
    ) -> Root:
        number = document["id"]
        address = self.put(self.at(f"snapshot/snapshot-{number}", branch), paimon_bytes.document(document))
        whole = {name for name in (*lists[:2], state.index_manifest, state.statistics) if name}
        whole.update(one.address for one in (*state.manifests, *state.index))
        whole.update(name for one in state.live.values() for name in one.addresses())
        whole |= self.needs
        root = Root(
            address=address,
            kind="snapshot",
            number=number,
            made_ms=document["timeMillis"],
            stream=stream,
            document=document,
            stored=self.written[address],
            state=state,
            whole=frozenset(whole),
            changelog=changelog,
            delta=delta,
            logged=changelog,
        )
        self.roots[address] = root
        self.hint("LATEST", number, branch)
        return root

    def hint(self, name: str, number: int, branch: str = "") -> None:
        self.world.put(self.at(f"snapshot/{name}", branch), str(number).encode(), "writer")

    def copy(self, root: Root, name: str, kind: str, branch: str = "", **more: Any) -> Root:
        """The same root in another place: a tag, a changelog, a branch's first snapshot."""
        document = {**root.document, **more}
        address = self.put(self.at(name, branch), paimon_bytes.document(document))
        return self.take_over(root, address, kind)

    def take_over(self, root: Root, address: str, kind: str) -> Root:
        """Somebody has written a copy of a root."""
        stored = self.written[address]
        changelog = root.changelog if kind != "tag" else frozenset[str]()
        made = replace(root, address=address, kind=kind, stored=stored, changelog=changelog)
        self.roots[address] = made
        return made

    # ---- what there is

    def snapshots(self, branch: str = "", kind: str = "snapshot") -> list[Root]:
        """In order of their ids."""
        return self.roots.in_order(self.at(f"{kind}/{kind}-", branch))

    def latest(self, branch: str = "") -> Root | None:
        found = self.snapshots(branch)
        return found[-1] if found else None

    # ---- lists and manifests

    def _merged(self, state: State) -> tuple[Manifest, ...]:
        return self._manifests([(0, one) for one in state.live.values()])

    def _manifests(self, entries: Sequence[tuple[int, DataFile]]) -> tuple[Manifest, ...]:
        if not entries:
            return ()
        data = paimon_bytes.container("manifest", [one.entry(kind) for kind, one in entries])
        address = self.named("manifest", "manifest", data)
        deleted = sum(kind for kind, _ in entries)
        partitions = [one.partition for _, one in entries]
        name = address.rpartition("/")[2]
        listed = paimon_bytes.listed(name, len(data), len(entries) - deleted, deleted, partitions)
        return (Manifest(address=address, listed=listed),)

    def _list(self, manifests: Iterable[Manifest]) -> str:
        data = paimon_bytes.container("list", [one.listed for one in manifests])
        return self.named("manifest", "manifest-list", data)

    def _index(self, files: Sequence[IndexFile]) -> str | None:
        if not files:
            return None
        return self.named("manifest", "index-manifest", paimon_bytes.container("index", [one.record for one in files]))
