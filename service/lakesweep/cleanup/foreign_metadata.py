"""Metadata in a table's place that an inventory is too old to know, or that no listing shows. Decides nothing.

Another table's metadata beside ours stops the table: what is an orphan for us may be live for it. A listing shows that
metadata as it is. An inventory shows it as it was hours ago, and metadata is written and removed with every commit. So
with an inventory, and without any listing, the few directories with metadata are still listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location
from lakesweep.ports.references import References
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Layout, TableState

_METADATA = "metadata"
"""The kind that layouts give to metadata, the table's own or another's."""


async def beside_head(storage: Storage, state: TableState) -> frozenset[str]:
    """Metadata beside the newest of the table's own, and in directories that only other formats have.

    To be called before the table is read for its references: what it commits later is not among it.
    """
    places = head_places(state)
    for root in state.roots:
        below = (root.join(name) for name in await storage.directories(root))
        places |= {one.as_directory() for one in below if _is_metadata(state.layout, one.join("any"))}
    return await listed(storage, state, places)


def head_places(state: TableState) -> set[Location]:
    """The directory of the newest of the table's own metadata, where the head is an address."""
    return _places(state.layout, (state.head,))


async def unreferenced(
    storage: Storage, state: TableState, references: References, known: Sequence[str], beside: frozenset[str]
) -> tuple[str, ...]:
    """What an inventory knows of unreferenced metadata and what was found beside the head, with its present neighbours:
    what an inventory knows may have been replaced since."""
    if not known and not beside:
        return ()
    kept = {place.match_key for place in _parsed(references.kept)}
    elsewhere = _places(state.layout, known) - _places(state.layout, references.kept)
    found = {*known, *beside, *await listed(storage, state, elsewhere)}
    return tuple(sorted(path for path in found if Location.parse(path).match_key not in kept))


async def listed(storage: Storage, state: TableState, places: Iterable[Location]) -> frozenset[str]:
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
    return layout.classify(place.raw).kind == _METADATA


def _parsed(paths: Iterable[str]) -> Iterable[Location]:
    """Those that are addresses: heads and references of some formats are names."""
    return filter(None, map(Location.parse_or_none, paths))
