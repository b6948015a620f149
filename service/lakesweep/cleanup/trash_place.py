"""Is the trash in a place where it may be? Checked with each plan, and again before anything changes.

The trash lies outside every table, so that no listing descends into it, and files get there by a rename or a copy
inside the store: on a local disk on the same file system, by a way without links.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Refusal
from lakesweep.model.trash import RunTrash
from lakesweep.ports.surroundings import Neighbours
from lakesweep.ports.table import TableState

_SET_IT = "set orphan_cleanup.trash to a place outside every table"


async def check(trash: RunTrash | None, state: TableState, neighbours: Neighbours) -> Refusal | None:
    """Why files of this table cannot be moved to the trash, if so."""
    if trash is None:
        return None
    why = next(_overlaps(trash.place, state, neighbours), None)
    if why is None and trash.place.is_local:
        why = await asyncio.to_thread(_elsewhere, trash.place, state.roots)
    return Refusal(code=RefusalCode.TRASH_PLACE.value, reason=why) if why else None


def _overlaps(place: Location, state: TableState, neighbours: Neighbours) -> Iterator[str]:
    for root in state.roots:
        if root.overlaps(place):
            wider = "or give a bare location a wider --root"
            yield f"the trash {place} overlaps the table's own {root}: {_SET_IT}, {wider}"
        if root.scheme != place.scheme:
            yield f"the trash {place} is in another store than the table's {root}: {_SET_IT} in the same store"
    for other, places in neighbours.places.items():
        for theirs in places:
            if theirs.contains(place) or theirs.as_directory() == place.as_directory() or place.contains(theirs):
                yield f"the trash {place} overlaps {other} ({theirs}): {_SET_IT}"


def _elsewhere(place: Location, roots: tuple[Location, ...]) -> str | None:
    path = place.path.rstrip("/") or "/"
    standing = next(one for one in (Path(path), *Path(path).parents) if one.exists())
    if os.path.realpath(standing) != str(standing):
        return f"the trash {place} is reached by a link: {_SET_IT} by its real path"
    device = standing.stat().st_dev
    for root in roots:
        there = Path(root.path)
        if there.exists() and there.stat().st_dev != device:
            return (
                f"the trash {place} and the table's {root} are on different file systems, and files are renamed, "
                "never copied: set orphan_cleanup.trash to a place on the same one"
            )
    return None
