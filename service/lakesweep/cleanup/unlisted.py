"""What no listing shows: live files outside the listed places, and metadata that an inventory is too old to know.

Another table's metadata beside ours stops the table: what is an orphan for us may be live for it. A listing shows that
metadata as it is. An inventory shows it as it was hours ago, and metadata is written and removed with every commit. So
with an inventory, and without any listing, the few directories with metadata are still listed. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from lakesweep import aio
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import METADATA_SHOWN, MISSING_SHOWN, OrphanPlan
from lakesweep.model.location import Location
from lakesweep.ports.references import References
from lakesweep.ports.storage import Storage, stat_or_none
from lakesweep.ports.table import Layout, TableState

METADATA = "metadata"
"""The kind that layouts give to metadata, the table's own or another's."""
_ENDS = 8
"""Partition levels and a name: as many segments of an address are tried below a root."""


async def beside_head(storage: Storage, state: TableState) -> frozenset[str]:
    """Metadata beside the newest of the table's own, and in directories that only other formats have.

    To be called before the table is read for its references: what it commits later is not among it.
    """
    places = head_places(state)
    for root in state.roots:
        below = (root.join(name) for name in await storage.directories(root))
        places |= {one.as_directory() for one in below if _is_metadata(state.layout, one.join("any"))}
    return await metadata_in(storage, state, places)


def head_places(state: TableState) -> set[Location]:
    """The directory of the newest of the table's own metadata, where the head is an address."""
    return _places(state.layout, (state.head,))


async def unreferenced_metadata(
    storage: Storage, state: TableState, references: References, known: Sequence[str], beside: frozenset[str]
) -> tuple[str, ...]:
    """What an inventory knows of unreferenced metadata and what was found beside the head, with its present neighbours:
    what an inventory knows may have been replaced since."""
    if not known and not beside:
        return ()
    kept = {place.match_key for place in _parsed(references.kept)}
    elsewhere = _places(state.layout, known) - _places(state.layout, references.kept)
    found = {*known, *beside, *await metadata_in(storage, state, elsewhere)}
    return tuple(sorted(path for path in found if Location.parse(path).match_key not in kept))


async def metadata_in(storage: Storage, state: TableState, places: Iterable[Location]) -> frozenset[str]:
    """Metadata in these places; no more of it than anybody would look at."""
    found: set[str] = set()
    for place in sorted(places):
        async with aclosing(storage.list(place)) as pages:
            async for page in pages:
                paths = _parsed(page.column("path").to_pylist())
                found.update(one.raw for one in paths if _is_metadata(state.layout, one))
                if len(found) >= METADATA_SHOWN:
                    return frozenset(found)
    return frozenset(found)


def _places(layout: Layout, paths: Iterable[str]) -> set[Location]:
    return {_directory(one) for one in _parsed(paths) if _is_metadata(layout, one)}


def _directory(file: Location) -> Location:
    return Location(file.scheme, file.authority, file.path.rpartition("/")[0]).as_directory()


def _is_metadata(layout: Layout, place: Location) -> bool:
    return layout.classify(place.raw).kind == METADATA


def _parsed(paths: Iterable[str]) -> Iterable[Location]:
    """Those that are addresses: heads and references of some formats are names."""
    return filter(None, map(Location.parse_or_none, paths))


async def outside_files(
    plan: OrphanPlan, storage: Storage, roots: Sequence[Location], is_outdated: Callable[[], Awaitable[bool]]
) -> OrphanPlan:
    """The plan after live files outside the listed places were checked by address. Unchanged if there are more of them
    than a plan names, and where nothing was listed: such a cycle looks for no missing file.

    What storage does not have is missing like any other live file. What may not be read, or does not answer, stays
    unverified: it is counted and stops nothing.
    """
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
