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
from lakesweep.formats.iceberg import layout, metadata
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, Identity, TableMetadata
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
        other = metadata.identity(location.raw, await storage.read(location))
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
    if _went_on_elsewhere(own, other):
        return (
            f"{location} is newer than what the catalog says is current and does not follow from it: "
            "the table goes on under another catalog"
        )
    return None


def _is_ours(own: TableMetadata, other: Identity, *, at_home: bool) -> bool:
    """Two tables without a uuid (version 1) on one location cannot be told apart except by their place."""
    if other.uuid is not None and own.uuid is not None:
        return other.uuid == own.uuid
    return at_home and (other.location is None or _same_place(other.location, own.location))


def _went_on_elsewhere(own: TableMetadata, other: Identity) -> bool:
    """A commit that lost its race is the child of a state we know. A newer one that is not is a history of its own."""
    if other.updated_ms is None or own.updated_ms is None or other.updated_ms <= own.updated_ms:
        return False
    known = {_key(own.address), *map(_key, own.metadata_log)}
    return other.parent is None or _key(other.parent) not in known


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
