"""Signs that another table lives in the same place, found among listed files that nothing refers to.

Two tables on one location, a table inside another's directory, a table dropped and created anew, a Delta log over
the same data files, a table that went on under another catalog: in each case files that look unreferenced to us
are live to somebody else. Every metadata file is read: what was not looked at proves nothing. Decides nothing
about single files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakesweep.cleanup.storage_ports import Storage
from lakesweep.formats.iceberg import identity, layout
from lakesweep.formats.iceberg.identity import Identity
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location

_CONCURRENCY = 16


async def find(storage: Storage, own: TableMetadata, unreferenced: Sequence[str]) -> str | None:
    """A sentence naming the evidence, or None."""
    logs = [path for path in unreferenced if _is_other_log(path)]
    if logs:
        return f"{logs[0]} is the log of a table in another format that shares this place"
    directories = layout.metadata_directories(own)
    ours: list[Location] = []
    elsewhere: list[Location] = []
    for path in unreferenced:
        if path.endswith(METADATA_SUFFIXES):
            location = Location.parse(path)
            directory = location.match_key.rpartition("/")[0] + "/"
            (ours if directory in directories else elsewhere).append(location)
    if len(unreferenced) >= METADATA_SHOWN:
        return (
            f"more than {METADATA_SHOWN} metadata files here belong to no known history, too many to look at: "
            "another table's may be among them"
        )
    for candidates, at_home in ((elsewhere, False), (ours, True)):
        evidence = await _first_foreign(storage, own, candidates, at_home=at_home)
        if evidence:
            return evidence
    return None


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
        other = identity.read(location.raw, await storage.read(location))
    except NotFound:
        return None
    except Unreadable as exc:
        return None if at_home else f"{location} looks like another table's metadata and cannot be read ({exc.why})"
    except StorageError as exc:
        raise Unreadable(location.raw, f"it may belong to another table, and storage says: {exc.why}") from exc
    if not _is_ours(own, other, at_home=at_home):
        return (
            f"{location} is the metadata of another table (uuid {other.uuid}, at {other.location}); "
            f"this one has uuid {own.uuid}"
        )
    return _other_history(own, other, location)


def _is_ours(own: TableMetadata, other: Identity, *, at_home: bool) -> bool:
    """Two tables without a uuid (version 1) on one location cannot be told apart except by their place."""
    if other.uuid is not None and own.uuid is not None:
        return other.uuid == own.uuid
    return at_home and (other.location is None or _same_place(other.location, own.location))


def _other_history(own: TableMetadata, other: Identity, location: Location) -> str | None:
    """A commit that lost its race is the child of a state that we know and that was replaced. What follows from the
    current state, or from none that we know, may be current under another catalog."""
    parent = other.parent and _key(other.parent)
    if parent == _key(own.address):
        # One that takes snapshots away (an expiry that ended half-way) names nothing that we do not keep.
        if other.snapshots <= {entry.id for entry in own.snapshots}:
            return None
        return (
            f"{location} follows from what the catalog says is current and adds a snapshot: a commit ended half-way, "
            "or the table goes on under another catalog; move that file away if nobody needs it"
        )
    if not _is_younger(other, own) or parent in {_key(path) for path in own.metadata_log}:
        return None
    return (
        f"{location} does not follow from what the catalog says is current and is not part of its past: the table goes "
        "on under another catalog; move that file away if nobody needs it"
    )


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
