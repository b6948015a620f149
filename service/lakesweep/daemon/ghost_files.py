"""Which data files below a former table may be its own, by the places where its metadata names files.

If a log was created above plain files, or plain files were put below a table, there are files that no metadata names
and that look like any data file. So a directory in which the table names no file, and that is not a partition next to
such a one, belongs to somebody else. Reads only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from lakesweep.aio import gather_bounded
from lakesweep.cleanup import addresses
from lakesweep.engines import common
from lakesweep.formats import registry as formats
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableView

_AT_ONCE = 8
_ALWAYS = {
    None: re.compile(r"data(/.*)?"),
    FormatName.ICEBERG: re.compile(r"data(/.*)?"),
    FormatName.PAIMON: re.compile(r"([^/=]+=[^/]*/)*bucket-(\d+|postpone)"),
}
"""Directories that only this format makes below its tables."""
_CHANGES = "_change_data"
"""Delta's: partitioned as the table is."""


async def foreign(
    storage: Storage, state: TableView | None, layout: GhostLayout, directories: Mapping[str, str]
) -> str | None:
    """The first file that is not the former table's. `directories` gives one file for each, below the root; `state` is
    what its metadata lists, if there is any."""
    always = _ALWAYS.get(layout.format)
    odd = [one for one in directories if always is None or not always.fullmatch(one)]
    if not odd:
        return None
    own = await _named(storage, state, layout) if state is not None else frozenset()
    return next((directories[one] for one in sorted(odd) if _shape(one) not in own), None)


async def _named(storage: Storage, state: TableView, layout: GhostLayout) -> frozenset[str]:
    """The shapes of all directories in which it names files. What cannot be read names none."""
    read = partial(_directories_of, storage, state, Location.parse(layout.root).match_key)
    try:
        references = await state.references(ExpiryPlan(head=state.head))
        direct = _directories(pa.array(references.kept, pa.string()), state, Location.parse(layout.root).match_key)
    except LakesweepError:
        return frozenset()
    found = await gather_bounded(references.sources, read, limit=_AT_ONCE)
    return frozenset(_shape(one) for one in direct.union(*found))


async def _directories_of(storage: Storage, state: TableView, root: str, source: ReferenceSource) -> set[str]:
    try:
        data = await storage.read(source.location)
        decoded = await asyncio.to_thread(formats.decoder(source.format), source, data)
        return _directories(common.naming(source, decoded).column("path"), state, root)
    except LakesweepError:
        return set()


def _directories(paths: pa.Array, state: TableView, root: str) -> set[str]:
    if not len(paths):
        return set()
    placed = addresses.place(paths, addresses.Role.READ, state.layout.match_by, state.roots)
    keys = addresses.placed_keys(placed).to_pylist()
    return {key[len(root) :].rpartition("/")[0] for key in keys if key.startswith(root)}


def _shape(directory: str) -> str:
    """Alike for all partitions of one table."""
    parts = directory.removeprefix(_CHANGES).strip("/").split("/")
    return "/".join(re.sub(r"=.*|(?<=^bucket-)\d+$", "=", part) for part in parts)
