"""Signs that another table lives in the same place, found among listed files that nothing refers to. Two tables on one
location, a table inside another's directory, one created anew, a Delta log over the same files, a second catalog: in
each case files that look unreferenced to us are live for somebody else. Every metadata file is read that the logs of
our own past do not name: a file that was not read proves nothing. Decides nothing about single files."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence

from lakesweep import aio
from lakesweep.formats import markers, reads
from lakesweep.formats.iceberg import layout, lineage, metadata
from lakesweep.formats.iceberg.lineage import Line, Link
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import LakesweepError, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, stat_or_none

_CONCURRENCY = 16
_SETTLE = "move that file away if nobody needs it"


async def find(
    storage: Storage, own: TableMetadata, unreferenced: Sequence[str], roots: Sequence[Location]
) -> str | None:
    logs = [path for path in unreferenced if _is_other_log(path)]
    if logs:
        return f"{logs[0]} is the log of a table in another format that shares this place"
    if len(unreferenced) >= METADATA_SHOWN:
        # A plan shows no more than that, so all metadata is listed again; our own logs name most of it.
        unreferenced = await _listed(storage, roots)
    return await Search(storage, roots, own).run(unreferenced)


class Search:
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

    async def beside(self, paths: Iterable[str], new: Container[str]) -> tuple[list[Location], str | None]:
        """What some metadata files around the table are that its own log does not name. Those of this table and not of
        its past; of those in `new` nothing but our own litter is left out. And the sentence that names another table's,
        if one is new."""
        if not (candidates := [one for one in _parsed(paths) if one.name.endswith(METADATA_SUFFIXES)]):
            return [], None
        present = {one.match_key: one for one in (*candidates, *_parsed(self._own.metadata_log))}
        unknown = [present[name] for name in sorted(await self._follow(present))]
        evidence = dict(zip((one.raw for one in unknown), await aio.gather_bounded(unknown, self._look), strict=True))
        await self._follow_to_the_end(present)
        strangers = {name: link for name, link in self._links.items() if name not in self._line}
        strangers = {name: link for name, link in strangers.items() if not lineage.is_own_expiry(link)}
        found = {link.location for link, _ in lineage.beside(self._line, strangers)}
        found |= {link.location for link in strangers.values() if link.location.raw in new}
        return sorted(found), next((text for path, text in evidence.items() if text and path in new), None)

    def _places_outside(self) -> list[Location]:
        """Where metadata goes now, outside the roots: read, never touched; another history may be there."""
        places = layout.current_metadata_directories(self._own)
        return [place for place in places if not any(root == place or root.contains(place) for root in self._roots)]

    async def _follow(self, present: dict[str, Location]) -> set[str]:
        """Walk back along our own logs as long as each names many files at once. Those that remain unknown."""
        unknown = {name for name in present if name not in self._line}
        while unknown and (name := self._line.next_to_read(present)) is not None:
            link = await self._own_link(present[name])
            if link is None:
                continue
            self._line.follow(name, link.log)
            settled = unknown & {earlier for earlier, _ in link.log}
            unknown -= settled
            if len(settled) <= _CONCURRENCY and len(unknown) < METADATA_SHOWN:
                break
        return unknown

    async def _own_link(self, location: Location) -> Link | None:
        """An earlier state of our own. Another table's file may lie where ours once was: its log proves nothing."""
        try:
            known = lineage.read_identity(location.raw, await self._storage.read(location))
        except LakesweepError:
            return None
        return self._link(location, known) if self._is_ours(location, known) else None

    async def _first_foreign(self, locations: Iterable[Location]) -> str | None:
        """Places that are not our own first: there a look at one file is often enough."""
        ordered = sorted(locations, key=lambda one: (self._is_home(one), one))
        for start in range(0, len(ordered), _CONCURRENCY):
            batch = ordered[start : start + _CONCURRENCY]
            for evidence in await aio.together(map(self._look, batch)):
                if evidence:
                    return evidence
        return None

    async def _look(self, location: Location) -> str | None:
        """Whose is it? Half a file at home is a writer that died; elsewhere it is a table we cannot identify."""
        data = await reads.read_or_none(self._storage, location, "it may belong to another table, and storage says: ")
        if data is None:
            return None
        try:
            other = await asyncio.to_thread(lineage.read_identity, location.raw, data)
        except Unreadable as exc:
            if self._is_home(location) and _is_truncated(location.raw, data):
                await self._check_whole(location, data)
                return None
            return f"{location} looks like another table's metadata and cannot be read ({exc.why})"
        if self._is_ours(location, other):
            self._links[location.match_key] = self._link(location, other)
            return None
        if not any(root.contains(location) for root in self._roots) and not lineage.reaches(other, self._roots):
            return None
        what = "a view" if other.is_view else "another table"
        return (
            f"{location} is the metadata of {what} (uuid {other.uuid}, at {other.location}); "
            f"this one has uuid {self._own.uuid}"
        )

    async def _check_whole(self, location: Location, data: bytes) -> None:
        """Raise Unreadable if the file is longer than what storage returned of it: then nothing shows whose it is."""
        with reads.must_answer(location.raw, "it may belong to another table, and storage says: "):
            found = await stat_or_none(self._storage, location)
        if found is not None and found.size_bytes != len(data):
            raise Unreadable(location.raw, f"storage returned {len(data)} of its {found.size_bytes} bytes")

    async def _another_history(self, present: Mapping[str, Location]) -> str | None:
        await self._follow_to_the_end(present)
        for link, why in lineage.judge(self._line, self._links):
            if why in (lineage.FOLLOWS, lineage.NO_RACE) and lineage.is_own_expiry(link):
                continue
            if why is lineage.FOLLOWS:
                return (
                    f"{link.location} follows the metadata file that the catalog says is current: a commit was "
                    "interrupted, or the table is also written through another catalog; the table's next commit "
                    f"resolves this, or {_SETTLE}"
                )
            return (
                f"{link.location} may be the table's current metadata under another catalog, or of commits from "
                f"before the catalog was rolled back: {why}; {_SETTLE}"
            )
        return None

    async def _follow_to_the_end(self, present: Mapping[str, Location]) -> None:
        name = self._line.next_to_read(present) if self._links else None
        while name is not None:
            link = self._links.get(name) or await self._own_link(present[name])
            if link is not None:
                self._line.follow(name, link.log)
            name = self._line.next_to_read(present)

    def _is_ours(self, location: Location, other: lineage.Identity) -> bool:
        """Two tables without a uuid (version 1) on one location differ only in their place."""
        if other.is_view:
            return False
        if other.uuid is not None and self._own.uuid is not None:
            return other.uuid == self._own.uuid
        return self._is_home(location) and (other.location is None or _same_place(other.location, self._own.location))

    def _is_home(self, location: Location) -> bool:
        return location.match_key.rpartition("/")[0] + "/" in self._homes

    def _link(self, location: Location, known: lineage.Identity) -> Link:
        return lineage.link_of(location, known, self._roots, self._names)


async def _listed(storage: Storage, places: Iterable[Location]) -> list[str]:
    found: list[str] = []
    for place in places:
        with reads.must_answer(place.raw, "another table's metadata may be there, and storage says: "):
            found += await reads.collect(storage, place, reads.paths(METADATA_SUFFIXES))
    return found


def _parsed(paths: Iterable[str]) -> Iterable[Location]:
    """Those that are addresses. A log may hold anything, and what no address names is not there."""
    return filter(None, map(Location.parse_or_none, paths))


def _is_other_log(path: str) -> bool:
    return layout.is_visible_log(path) or any(f"/{name}/" in path for name in markers.SIGNS.hidden_logs)


def _is_truncated(address: str, data: bytes) -> bool:
    """Is it cut off, so that it is not even JSON? What is whole and only not understood may be of a newer kind."""
    try:
        metadata.document(address, data)
    except Unreadable:
        return True
    return False


def _same_place(left: str, right: str) -> bool:
    one, other = Location.parse_or_none(left), Location.parse_or_none(right)
    return bool(one and other and one.match_key.rstrip("/") == other.match_key.rstrip("/"))
