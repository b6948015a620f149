"""Signs that another table lives in the same place, found among listed files that nothing refers to.

Two tables on one location, a table inside another's directory, a table dropped and created anew, a Delta log over
the same data files, a table that went on under another catalog: in each case files that look unreferenced to us
are live to somebody else. Every metadata file is read that the logs of our own past do not name: what was not looked
at proves nothing. Decides nothing about single files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

from lakesweep.formats.iceberg import identity, layout, lineage, metadata
from lakesweep.formats.iceberg.identity import Identity
from lakesweep.formats.iceberg.lineage import Line, Link
from lakesweep.formats.iceberg.metadata import MAIN, METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import LakesweepError, NotFound, StorageError, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage

_CONCURRENCY = 16
_SETTLE = "move that file away if nobody needs it"


async def find(
    storage: Storage, own: TableMetadata, unreferenced: Sequence[str], roots: Sequence[Location]
) -> str | None:
    """A sentence naming the evidence, or None."""
    logs = [path for path in unreferenced if _is_other_log(path)]
    if logs:
        return f"{logs[0]} is the log of a table in another format that shares this place"
    if len(unreferenced) >= METADATA_SHOWN:
        # A plan shows no more than that: the rest is listed anew, and most of it is known by our own logs.
        unreferenced = await _listed(storage, roots)
    return await _Search(storage, roots, own).run(unreferenced)


class _Search:
    """One search through the metadata files around a table."""

    def __init__(self, storage: Storage, roots: Iterable[Location], own: TableMetadata) -> None:
        self._storage = storage
        self._roots = tuple(roots)
        self._own = own
        self._homes = layout.metadata_directories(own)
        self._line = Line(own)
        self._links: dict[str, Link] = {}
        self._names: dict[str, str] = {}

    async def run(self, unreferenced: Iterable[str]) -> str | None:
        """Follow our own line through what is there, read what it does not explain, and judge that."""
        around = [*unreferenced, *await _listed(self._storage, self._places_outside()), *self._own.metadata_log]
        present = {one.match_key: one for one in _parsed(around) if one.name.endswith(METADATA_SUFFIXES)}
        unknown = await self._follow(present)
        if len(unknown) >= METADATA_SHOWN:
            return (
                f"more than {METADATA_SHOWN} metadata files here belong to no known history, too many to look at: "
                "another table's may be among them"
            )
        # Where the logs are short, reading side by side is quicker than walking back step by step.
        evidence = await self._first_foreign(present[name] for name in unknown)
        return evidence or await self._another_history(present)

    def _places_outside(self) -> list[Location]:
        """Where the table's metadata goes now, if that is not in its roots: it is read and never touched,
        since another history may go on there."""
        places = layout.current_metadata_directories(self._own)
        return [place for place in places if not any(root == place or root.contains(place) for root in self._roots)]

    async def _follow(self, present: dict[str, Location]) -> set[str]:
        """Walk back along our own logs as long as each tells many files at once. Those that remain unknown."""
        unknown = {name for name in present if name not in self._line}
        while unknown and (name := self._line.next_to_read(present)) is not None:
            link = await self._own_link(present[name])
            if link is None:
                continue
            self._line.follow(name, link.log)
            told = unknown & {earlier for earlier, _ in link.log}
            unknown -= told
            if len(told) <= _CONCURRENCY and len(unknown) < METADATA_SHOWN:
                break
        return unknown

    async def _own_link(self, location: Location) -> Link | None:
        """An earlier state of our own. Another table's file may lie where ours once was: its log proves nothing."""
        try:
            known = identity.read(location.raw, await self._storage.read(location))
        except LakesweepError:
            return None
        return self._link(location, known) if self._is_ours(location, known) else None

    async def _first_foreign(self, locations: Iterable[Location]) -> str | None:
        """Places that are not our own first: there a look at one file is often enough."""
        ordered = sorted(locations, key=lambda one: (self._is_home(one), one))
        for start in range(0, len(ordered), _CONCURRENCY):
            batch = ordered[start : start + _CONCURRENCY]
            for evidence in await asyncio.gather(*map(self._look, batch)):
                if evidence:
                    return evidence
        return None

    async def _look(self, location: Location) -> str | None:
        """Whose is it? Half a file in our own directory is a writer that died; anywhere else it is a table we cannot
        identify."""
        try:
            data = await self._storage.read(location)
        except NotFound:
            return None
        except StorageError as exc:
            raise Unreadable(location.raw, f"it may belong to another table, and storage says: {exc.why}") from exc
        try:
            other = await asyncio.to_thread(identity.read, location.raw, data)
        except Unreadable as exc:
            if self._is_home(location) and _is_half(location.raw, data):
                return None
            return f"{location} looks like another table's metadata and cannot be read ({exc.why})"
        if self._is_ours(location, other):
            self._links[location.match_key] = self._link(location, other)
            return None
        if not self._is_in_roots(location) and not lineage.reaches(other, self._roots):
            return None
        return (
            f"{location} is the metadata of another table (uuid {other.uuid}, at {other.location}); "
            f"this one has uuid {self._own.uuid}"
        )

    async def _another_history(self, present: Mapping[str, Location]) -> str | None:
        name = self._line.next_to_read(present) if self._links else None
        while name is not None:
            link = self._links.get(name) or await self._own_link(present[name])
            if link is not None:
                self._line.follow(name, link.log)
            name = self._line.next_to_read(present)
        for link, why in lineage.judge(self._line, self._links):
            if why is lineage.FOLLOWS and not await self._only_expires(link):
                return (
                    f"{link.location} follows from what the catalog says is current: a commit ended half-way, or the "
                    "table goes on under another catalog; the table's next commit soon after settles it, or "
                    f"{_SETTLE}"
                )
            if why is lineage.NO_RIVAL and await self._only_expires(link):
                continue
            if why is not lineage.FOLLOWS:
                return (
                    f"{link.location} may be the table's current metadata under another catalog, or of commits from "
                    f"before the catalog was set back: {why}; {_SETTLE}"
                )
        return None

    async def _only_expires(self, link: Link) -> bool:
        """Is it what an expiry of our own leaves when it ends before its commit: fewer snapshots or refs, and nothing
        named that its parent does not name? Any other change, of a property or a column, is somebody else's."""
        other = await self._identity(link.location)
        parent = _Contents.of_table(self._own)
        if other is not None and link.parent != self._line.head:
            before = await self._identity(Location.parse(other.metadata_log[-1]))
            if before is None or not self._is_ours(link.location, before):
                return False
            parent = _Contents(frozenset(before.contents), frozenset(before.named))
        # Files older than refs do not name `main`, which we know all the same: that alone is nothing taken away.
        return (
            other is not None
            and other.contents | {MAIN} < parent.held | {MAIN}
            and parent.named.issuperset(other.named)
        )

    async def _identity(self, location: Location) -> Identity | None:
        try:
            return identity.read(location.raw, await self._storage.read(location))
        except LakesweepError:
            return None

    def _is_ours(self, location: Location, other: Identity) -> bool:
        """Two tables without a uuid (version 1) on one location cannot be told apart except by their place."""
        if other.uuid is not None and self._own.uuid is not None:
            return other.uuid == self._own.uuid
        return self._is_home(location) and (other.location is None or _same_place(other.location, self._own.location))

    def _is_home(self, location: Location) -> bool:
        return location.match_key.rpartition("/")[0] + "/" in self._homes

    def _is_in_roots(self, location: Location) -> bool:
        return any(root.contains(location) for root in self._roots)

    def _link(self, location: Location, known: Identity) -> Link:
        return lineage.link_of(location, known, self._roots, self._names)


class _Contents:
    """Snapshots and refs of a state, and the files that it names."""

    def __init__(self, held: frozenset[int | str | None], named: frozenset[str]) -> None:
        self.held = held
        self.named = named

    @classmethod
    def of_table(cls, own: TableMetadata) -> _Contents:
        lists = {entry.manifest_list for entry in own.snapshots if entry.manifest_list is not None}
        return cls(
            frozenset([*(entry.id for entry in own.snapshots), *(ref.name for ref in own.refs)]),
            frozenset(lists | {entry.path for entry in own.statistics_files}),
        )


async def _listed(storage: Storage, places: Iterable[Location]) -> list[str]:
    """All metadata files in these places."""
    found: list[str] = []
    for place in places:
        try:
            async with aclosing(storage.list(place)) as pages:
                async for page in pages:
                    paths = page.column("path").to_pylist()
                    found += [path for path in paths if path.endswith(METADATA_SUFFIXES)]
        except StorageError as exc:
            raise Unreadable(place.raw, f"another table's metadata may be there, and storage says: {exc.why}") from exc
    return found


def _parsed(paths: Iterable[str]) -> Iterable[Location]:
    """Those that are addresses. A log may hold anything, and what no address names is not there."""
    for path in paths:
        with suppress(ValueError):
            yield Location.parse(path)


def _is_other_log(path: str) -> bool:
    return layout.is_paimon_log(path) or any(f"/{name}/" in path for name in layout.OTHER_LOGS)


def _is_half(address: str, data: bytes) -> bool:
    """Is it cut off, so that it is not even JSON? What is whole and only not understood may be of a newer kind."""
    try:
        metadata.document(address, data)
    except Unreadable:
        return True
    return False


def _same_place(left: str, right: str) -> bool:
    try:
        places = [Location.parse(text).match_key.rstrip("/") for text in (left, right)]
    except ValueError:
        return False
    return places[0] == places[1]
