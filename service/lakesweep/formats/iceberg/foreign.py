"""Signs that another table lives in the same place, found among listed files that nothing refers to.

Two tables on one location, a table inside another's directory, a table dropped and created anew, a Delta log over
the same data files: in each case files that look unreferenced to us are live to somebody else. Reads a bounded
number of metadata files; decides nothing about single files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from lakesweep.cleanup.ports import Storage
from lakesweep.formats.iceberg import layout, metadata
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.location import Location

READ_AT_MOST = 200
"""Metadata files read in our own directories, newest first, and again as many in others."""

_CONCURRENCY = 16
_VERSION = re.compile(r"v?(\d+)")


async def find(storage: Storage, own: TableMetadata, unreferenced: Sequence[str]) -> str | None:
    """A sentence naming the evidence, or None."""
    logs = [path for path in unreferenced if any(f"/{name}/" in path for name in layout.OTHER_LOGS)]
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
    for candidates, at_home in ((elsewhere, False), (ours, True)):
        evidence = await _first_foreign(storage, own, _newest(candidates), at_home=at_home)
        if evidence:
            return evidence
    return None


def _newest(locations: list[Location]) -> list[Location]:
    """By the version in the name; the first of every directory comes before the second of any."""
    turns: dict[str, int] = {}
    ranked = []
    for location in sorted(locations, key=_version, reverse=True):
        directory = location.path.rpartition("/")[0]
        turn = turns[directory] = turns.get(directory, 0) + 1
        ranked.append((turn, location))
    return [location for _, location in sorted(ranked, key=lambda pair: pair[0])[:READ_AT_MOST]]


def _version(location: Location) -> tuple[int, str]:
    found = _VERSION.match(location.name)
    return int(found.group(1)) if found else -1, location.name


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
        uuid, place = metadata.uuid_and_location(location.raw, await storage.read(location))
    except NotFound:
        return None
    except Unreadable as exc:
        return None if at_home else f"{location} looks like another table's metadata and cannot be read ({exc.why})"
    except StorageError as exc:
        raise Unreadable(location.raw, f"it may belong to another table, and storage says: {exc.why}") from exc
    if uuid is not None and own.uuid is not None:
        same = uuid == own.uuid
    else:
        same = at_home and (place is None or _same_place(place, own.location))
    if same:
        return None
    return f"{location} is the metadata of another table (uuid {uuid}, at {place}); this one has uuid {own.uuid}"


def _same_place(left: str, right: str) -> bool:
    try:
        places = [Location.parse(text).match_key.rstrip("/") for text in (left, right)]
    except ValueError:
        return False
    return places[0] == places[1]
