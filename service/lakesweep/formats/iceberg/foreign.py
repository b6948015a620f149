"""Signs that another table lives in the same place, found among listed files that nothing refers to.

Two tables on one location, a table inside another's directory, a table dropped and created anew, a Delta log over
the same data files, a table that went on under another catalog: in each case files that look unreferenced to us
are live to somebody else. Every metadata file is read that our own log does not name: what was not looked at proves
nothing. Decides nothing about single files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set

from lakesweep.cleanup.storage_ports import Storage
from lakesweep.formats.iceberg import identity, layout, metadata
from lakesweep.formats.iceberg.identity import Identity
from lakesweep.formats.iceberg.metadata import MAIN, METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import LakesweepError, NotFound, StorageError, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location

_CONCURRENCY = 16


async def find(storage: Storage, own: TableMetadata, unreferenced: Sequence[str]) -> str | None:
    """A sentence naming the evidence, or None."""
    logs = [path for path in unreferenced if _is_other_log(path)]
    if logs:
        return f"{logs[0]} is the log of a table in another format that shares this place"
    if len(unreferenced) >= METADATA_SHOWN:
        return (
            f"more than {METADATA_SHOWN} metadata files here belong to no known history, too many to look at: "
            "another table's may be among them"
        )
    candidates = {Location.parse(path) for path in unreferenced if path.endswith(METADATA_SUFFIXES)}
    candidates -= await _own_past(storage, own, candidates)
    directories = layout.metadata_directories(own)
    ours: list[Location] = []
    elsewhere: list[Location] = []
    for location in sorted(candidates):
        directory = location.match_key.rpartition("/")[0] + "/"
        (ours if directory in directories else elsewhere).append(location)
    for locations, at_home in ((elsewhere, False), (ours, True)):
        evidence = await _first_foreign(storage, own, locations, at_home=at_home)
        if evidence:
            return evidence
    return None


async def _own_past(storage: Storage, own: TableMetadata, candidates: Set[Location]) -> set[Location]:
    """Those that fell out of our log, by the log of the oldest state in it, and so on back. By default a table leaves a
    file behind with every commit, and one look at such a log tells a hundred of them."""
    past: set[Location] = set()
    log = own.metadata_log
    while log and own.uuid is not None and len(candidates) - len(past) > _CONCURRENCY:
        try:
            oldest = Location.parse(log[0])
            state = identity.read(oldest.raw, await storage.read(oldest))
            fallen = candidates & set(map(Location.parse, state.metadata_log)) - past
        except (LakesweepError, ValueError):
            break
        if state.uuid != own.uuid:
            break
        past |= fallen
        if len(fallen) <= _CONCURRENCY:
            break  # a short log: reading them side by side is quicker than walking back step by step
        log = state.metadata_log
    return past


def _is_other_log(path: str) -> bool:
    return layout.is_paimon_log(path) or any(f"/{name}/" in path for name in layout.OTHER_LOGS)


async def _first_foreign(
    storage: Storage, own: TableMetadata, locations: list[Location], *, at_home: bool
) -> str | None:
    for start in range(0, len(locations), _CONCURRENCY):
        batch = locations[start : start + _CONCURRENCY]
        for evidence in await asyncio.gather(*(_judge(storage, own, one, at_home=at_home) for one in batch)):
            if evidence:
                return evidence
    return None


async def _judge(storage: Storage, own: TableMetadata, location: Location, *, at_home: bool) -> str | None:
    """Half a file in our own directory is a writer that died; anywhere else it is a table we cannot identify."""
    try:
        data = await storage.read(location)
    except NotFound:
        return None
    except StorageError as exc:
        raise Unreadable(location.raw, f"it may belong to another table, and storage says: {exc.why}") from exc
    try:
        other = identity.read(location.raw, data)
    except Unreadable as exc:
        if at_home and _is_half(location.raw, data):
            return None
        return f"{location} looks like another table's metadata and cannot be read ({exc.why})"
    if not _is_ours(own, other, at_home=at_home):
        return (
            f"{location} is the metadata of another table (uuid {other.uuid}, at {other.location}); "
            f"this one has uuid {own.uuid}"
        )
    return _other_history(own, other, location)


def _is_half(address: str, data: bytes) -> bool:
    """Is it cut off, so that it is not even JSON? What is whole and only not understood may be of a newer kind."""
    try:
        metadata.document(address, data)
    except Unreadable:
        return True
    return False


def _is_ours(own: TableMetadata, other: Identity, *, at_home: bool) -> bool:
    """Two tables without a uuid (version 1) on one location cannot be told apart except by their place."""
    if other.uuid is not None and own.uuid is not None:
        return other.uuid == own.uuid
    return at_home and (other.location is None or _same_place(other.location, own.location))


def _other_history(own: TableMetadata, other: Identity, location: Location) -> str | None:
    """A commit that lost its race is the child of a state that we know and that was replaced. What follows from the
    current state, or from none that we know, may be current under another catalog."""
    parent = _key(other.metadata_log[-1]) if other.metadata_log else None
    if parent == _key(own.address):
        if _only_expires(own, other):
            return None
        return (
            f"{location} follows from what the catalog says is current: a commit ended half-way, or the table goes on "
            "under another catalog; the table's next commit settles it, or move that file away if nobody needs it"
        )
    if not _is_younger(other, own) or parent in {_key(path) for path in own.metadata_log}:
        return None
    return (
        f"{location} does not follow from what the catalog says is current and is not part of its past: the table goes "
        "on under another catalog; move that file away if nobody needs it"
    )


def _only_expires(own: TableMetadata, other: Identity) -> bool:
    """Is it what an expiry of our own leaves when it ends before its commit: fewer snapshots or refs, and nothing named
    that we do not keep? Any other change, of a property or a column, is somebody else's."""
    # Files older than refs do not name `main`, which we know all the same: that alone is nothing taken away.
    contents = {MAIN, *(entry.id for entry in own.snapshots), *(ref.name for ref in own.refs)}
    kept = {entry.manifest_list for entry in own.snapshots} | {entry.path for entry in own.statistics_files}
    return other.contents | {MAIN} < contents and kept.issuperset(other.named)


def _is_younger(other: Identity, own: TableMetadata) -> bool:
    """Is it too young to be a part of our own past that fell out of the log? A copy that is made ready for another
    place names that place, and is of no more interest than its original."""
    if other.updated_ms is None or own.updated_ms is None:
        return False
    begin = own.updated_ms
    if other.location is not None and _same_place(other.location, own.location):
        # Not the first entry: a commit that lost its race against that one follows from the state before.
        begin = min([begin, *(at for at in own.logged_ms[1:2] if at is not None)])
    return other.updated_ms > begin


def _key(address: str) -> str:
    try:
        return Location.parse(address).match_key
    except ValueError:
        return address


def _same_place(left: str, right: str) -> bool:
    try:
        places = [Location.parse(text).match_key.rstrip("/") for text in (left, right)]
    except ValueError:
        return False
    return places[0] == places[1]
