"""Our own chain of metadata files, and whether a file outside it is a leftover or the tip of another chain. Pure. Each
metadata file names the ones it was made from, so a line can be followed back as long as one of them is left: also over
files that are gone, and for as many commits as the logs reach. Age proves nothing: another history of the table grows
old as ours goes on, and is as live as on its first day."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakesweep.formats.iceberg import layout
from lakesweep.formats.iceberg.json_fields import JsonFields
from lakesweep.formats.iceberg.metadata import TableMetadata, document, is_view, table_uuid
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What any metadata file says of itself, also one that is otherwise not understood."""

    uuid: str | None
    is_view: bool
    """Then it is nobody's history: a catalog may have it whatever tables there are."""
    location: str | None
    properties: Mapping[str, str]
    updated_ms: int | None
    metadata_log: tuple[str, ...]
    """The metadata files that it replaced, oldest first."""
    logged_ms: tuple[int | None, ...]
    """When each of them was written, by its writer's clock."""
    contents: frozenset[int | str | None]
    """Snapshots by their ids and refs by their names; None stands for what is not understood."""
    named: tuple[str, ...]
    """Manifest lists and statistics: what it keeps alive by their own addresses, wherever that is."""


def read_identity(address: str, data: bytes) -> Identity:
    top = JsonFields(address, document(address, data))
    contents, named = _contents(top)
    return Identity(
        uuid=table_uuid(top) or top.optional_text("view-uuid"),
        is_view=is_view(top),
        location=top.optional_text("location"),
        properties=top.strings("properties"),
        updated_ms=top.optional_integer("last-updated-ms"),
        metadata_log=tuple(entry.text("metadata-file") for entry in top.objects("metadata-log")),
        logged_ms=tuple(entry.optional_integer("timestamp-ms") for entry in top.objects("metadata-log")),
        contents=contents,
        named=named,
    )


def _contents(top: JsonFields) -> tuple[frozenset[int | str | None], tuple[str, ...]]:
    """Snapshots and refs, and files that are named directly. Some future version may arrange these otherwise."""
    try:
        snapshots = list(top.objects("snapshots"))
        statistics = [*top.objects("statistics"), *top.objects("partition-statistics")]
        named = [
            *(entry.optional_text("manifest-list") for entry in snapshots),
            *(entry.optional_text("statistics-path") for entry in statistics),
        ]
        ids = [entry.optional_integer("snapshot-id") for entry in snapshots]
    except Unreadable:
        return frozenset([None]), ()
    return frozenset([*ids, *_ref_names(top)]), tuple(path for path in named if path)


def _ref_names(top: JsonFields) -> list[str | None]:
    """By name. What they are arranged like says nothing of the files that are named."""
    try:
        return [*top.mapping("refs")]
    except Unreadable:
        return [None]


RACE_MS = timedelta(hours=1) // timedelta(milliseconds=1)
"""Commits that are written so close to each other may be in a race: Iceberg gives up after 30 minutes of retries by
default, and the clocks of two writers may differ."""

Log = tuple[tuple[str, int | None], ...]
"""Earlier metadata files by their match keys, oldest first, and when each was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What lineage needs of one metadata file."""

    location: Location
    updated_ms: int | None
    log: Log
    is_empty: bool
    """It has no snapshot, so that nothing hangs on it."""
    is_away: bool
    """A copy that is made ready for another place: it names nothing here."""

    @property
    def parent(self) -> str | None:
        return self.log[-1][0] if self.log else None


class Line:
    """The current metadata file and its ancestors, as far as they are known by name."""

    def __init__(self, own: TableMetadata) -> None:
        self.head = key(own.address)
        self._times: dict[str, int | None] = {self.head: own.updated_ms}
        self._next: dict[str, str] = {}
        self._read_names = {self.head}
        self._tail: Log = ()
        self.reaches_start = False
        """Was it followed to the table's first state?"""
        self.follow(self.head, tuple(zip(map(key, own.metadata_log), own.logged_ms, strict=True)))
        self.head_ms = own.updated_ms
        self._committed = [entry.timestamp_ms for entry in own.snapshots]

    def __contains__(self, name: object) -> bool:
        return name in self._times

    def follow(self, member: str, log: Log) -> None:
        self._tail, self.reaches_start = log, not log
        after = member
        for name, at in reversed(log):
            self._times.setdefault(name, at)
            self._next.setdefault(name, after)
            after = name

    def next_to_read(self, present: Container[str]) -> str | None:
        """The oldest known member that is still there. None where the line cannot be followed any further."""
        for name, _ in self._tail:
            if name in present and name not in self._read_names:
                self._read_names.add(name)
                return name
        return None

    def next_of(self, member: str) -> tuple[str, int | None]:
        after = self._next[member]
        return after, self._times[after]

    @property
    def begins_ms(self) -> int | None:
        return min((at for at in self._times.values() if at is not None), default=None)

    def committed_around(self, at_ms: int, since_ms: int | None) -> bool:
        """Did it commit around that time, after it had been in the state of `since_ms`? Where its oldest commits are
        not known any more, by how often it commits."""
        times = sorted(at for at in {*self._times.values(), *self._committed} if at is not None)
        later = [at for at in times if since_ms is not None and at > since_ms]
        if later and abs(later[0] - at_ms) <= RACE_MS:
            return True
        return len(times) > 1 and (times[-1] - times[0]) <= RACE_MS * (len(times) - 1)


def judge(line: Line, links: Mapping[str, Link]) -> list[tuple[Link, str]]:
    """Files that may be another history of this table, tips first and the youngest of them, and why. Followers of the
    head are among them, and those that lost no race: their names may still show that they are litter of our own."""
    found = [(link, why) for link, why in beside(line, links) if why is not LOST_A_RACE]
    return sorted(found, key=lambda pair: (pair[1] is _GOES_ON, -(pair[0].updated_ms or 0), pair[0].location))


def beside(line: Line, links: Mapping[str, Link]) -> list[tuple[Link, str]]:
    """Files that are not part of the line and not litter of its past, and why."""
    others = {name: link for name, link in links.items() if name not in line}
    continued = {name for link in others.values() for name, _ in link.log}
    return [
        (link, why)
        for name, link in others.items()
        if (why := _another(line, link, links) if name not in continued else _GOES_ON)
    ]


def is_own_expiry(link: Link) -> bool:
    """Did an expiry of ours write it? Then it is litter where it is not part of the line."""
    return link.parent is not None and _is_ours(link.location.name, link.parent)


_GOES_ON = "other metadata files continue from it that are not part of this table's history"
_NO_PAST = "it does not follow from what the catalog says is current and is not part of its past"
FOLLOWS = "it follows from what the catalog says is current"
LOST_A_RACE = "it follows from a state of this table that was replaced at about the same time"
NO_RACE = (
    "it follows from a state of this table that was replaced at quite another time, so it did not lose a commit race"
)


def _another(line: Line, link: Link, links: Mapping[str, Link]) -> str | None:
    """Why a file that nothing follows from is not plain litter; None if it is."""
    if link.is_away:
        return None if _is_before(link.updated_ms, line.head_ms) else _NO_PAST
    if link.parent is None:
        # Some writers keep no log: then only what is older than all that we know can be our past.
        return None if link.is_empty or _is_before(link.updated_ms, line.begins_ms) else _NO_PAST
    if link.parent == line.head:
        return FOLLOWS
    if link.parent in line:
        at_ms = line.next_of(link.parent)[1]
        if link.updated_ms is not None and at_ms is not None and abs(link.updated_ms - at_ms) <= RACE_MS:
            return LOST_A_RACE
        return NO_RACE
    return None if _is_old_leftover(line, link, links) else _NO_PAST


def _is_old_leftover(line: Line, link: Link, links: Mapping[str, Link]) -> bool:
    """Its parent is not known. A history keeps the parent of its newest state, so where that is gone, another history
    passed it, and dropped it from its log: ours, if it was before all that we know of it."""
    begins_ms = line.begins_ms
    if line.reaches_start or link.updated_ms is None or begins_ms is None or link.parent in links:
        return False
    return link.updated_ms <= begins_ms + RACE_MS and line.committed_around(link.updated_ms, link.log[-1][1])


def _is_before(at_ms: int | None, limit_ms: int | None) -> bool:
    return at_ms is None or limit_ms is None or at_ms <= limit_ms


def link_of(location: Location, known: Identity, roots: Iterable[Location], names: dict[str, str]) -> Link:
    """`names` remembers match keys by addresses: logs repeat them over and over."""
    return Link(
        location=location,
        updated_ms=known.updated_ms,
        log=tuple(
            (names.get(path) or names.setdefault(path, key(path)), at)
            for path, at in zip(known.metadata_log, known.logged_ms, strict=True)
        ),
        is_empty=not known.named and all(isinstance(one, str) for one in known.contents),
        is_away=not reaches(known, roots),
    )


def reaches(known: Identity, roots: Iterable[Location]) -> bool:
    roots = tuple(roots)
    if known.location is None or None in known.contents:
        return True
    places = layout.places_of(known.location, known.properties)
    if any(root.overlaps(place) for root in roots for place in places):
        return True
    return any(_is_here(path, roots) for path in (*known.metadata_log, *known.named))


def _is_here(path: str, roots: Iterable[Location]) -> bool:
    place = Location.parse_or_none(path)
    return place is None or any(root.overlaps(place) for root in roots)


def key(address: str) -> str:
    """How one file is known, however it is spelled."""
    place = Location.parse_or_none(address)
    return place.match_key if place else address


_VERSION = re.compile(r"v?(\d+)[.-]")


def version(address: str) -> int:
    """The number that a metadata file's name begins with, which grows with every commit; -1 if it has none."""
    found = _VERSION.match(address.rpartition("/")[2])
    return int(found.group(1)) if found else -1


_NAME = re.compile(r"\d+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.metadata\.json")
_HALF = 8
"""Bytes."""


def new_expiry_name(version: int, parent: str) -> str:
    """The name of a metadata file that our expiry makes from `parent`, a match key. What an expiry leaves that ended
    before its commit must be told from the live commit of a second catalog that has expired snapshots itself. So half
    of the uuid is random, and half is a digest of that half and of the parent: nobody else writes such a name."""
    return f"{version:05d}-{_marked(uuid.uuid4().bytes[:_HALF], parent)}.metadata.json"


def _is_ours(name: str, parent: str) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    known = uuid.UUID(found.group(1))
    return known == _marked(known.bytes[:_HALF], parent)


def _marked(chance: bytes, parent: str) -> uuid.UUID:
    digest = hashlib.sha256(b"lakesweep expiry\0" + chance + parent.encode()).digest()
    return uuid.UUID(bytes=chance + digest[:_HALF], version=4)
