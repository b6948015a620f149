"""Check live files outside the listed places by address, if there are few enough. Reads only.

What storage does not have is missing like any other live file. What may not be read, or does not answer, stays
unverified: it is counted and stops nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from lakesweep import aio
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import MISSING_SHOWN, OrphanPlan
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, stat_or_none

_ENDS = 8
"""Partition levels and a name: as many segments of an address are tried below a root."""


async def looked_up(
    plan: OrphanPlan, storage: Storage, roots: Sequence[Location], is_outdated: Callable[[], Awaitable[bool]]
) -> OrphanPlan:
    """The plan with what was found out. Unchanged if there are more of these files than a plan names, and where nothing
    was listed: such a cycle looks for no missing file."""
    paths = plan.unverified_shown
    if not plan.listed or not paths or len(paths) != plan.unverified:
        return plan

    async def look(path: str) -> bool | None:
        """Does it exist? None: unknown."""
        try:
            if await stat_or_none(storage, Location.parse(path)):
                return True
            # Writers join such names in their own way, or knew the table under another name.
            elsewhere = "//" in path.partition("://")[2] or await _is_below_a_root(storage, path, roots)
        except (LakesweepError, ValueError):
            return None
        return None if elsewhere else False

    there = dict(zip(paths, await aio.gather_bounded(paths, look), strict=True))
    gone = [path for path, seen in there.items() if seen is False]
    if gone and await is_outdated():
        gone = []  # others expire too, and files that they deleted are no damage
    unknown = [path for path, seen in there.items() if seen is not True and path not in set(gone)]
    return replace(
        plan,
        missing=tuple(sorted({*plan.missing, *gone})[:MISSING_SHOWN]),
        missing_count=plan.missing_count + len(gone),
        unverified=len(unknown),
        unverified_first=min(unknown, default=None),
        unverified_shown=tuple(unknown),
    )


async def _is_below_a_root(storage: Storage, path: str, roots: Sequence[Location]) -> bool:
    """Is there a file below a root at the end of this address? Then a link or mount may give the root two names."""
    segments = path.partition("://")[2].split("/")[1:]
    ends = ["/".join(segments[start:]) for start in range(max(0, len(segments) - _ENDS), len(segments))]
    for root in roots:
        for end in ends:
            if await stat_or_none(storage, root.join(end)):
                return True
    return False
