"""Files that tables use outside their own roots: clones, `add_files`, tables that were moved. In every other table that
we clean they count as live.

One way for all formats: every table of a tenant is loaded, and what its retained metadata names is placed against its
own roots; what lies outside is borrowed. A table whose head has not moved is not read again, and neither is a manifest
or checkpoint that was read before. What cannot be read for good (damage, a refused kind) is told and passed over: its
place still counts as a neighbour's. What may be readable later raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.cleanup import addresses
from lakesweep.engines import common
from lakesweep.formats import registry as formats
from lakesweep.model.errors import CatalogUnavailable, CommitConflict, Denied, LakesweepError, NotFound, StorageError
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FACTS, TableRef
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import MatchBy, Table, TableState

log = structlog.get_logger()

_TABLES_AT_ONCE = 8
_MOST_SOURCES = 500_000
"""Remembered at one time, some 50 MB; beyond, they are read again."""
_NONE = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Uses:
    """What one table uses outside its own roots."""

    addresses: pa.Array
    """In full."""
    keys: pa.Array
    """Without their store: Delta says of a path outside the root only what it may mean below the root, which is the
    root and then the whole path. Which bucket it was is not known, so it counts in every one."""

    def __len__(self) -> int:
        return len(self.addresses) + len(self.keys)

    def below(self, root: Location) -> list[str]:
        """Those that are, or may be, below a root."""
        matched = addresses.match_keys(self.addresses, MatchBy.ADDRESS)
        found: list[str] = self.addresses.filter(pc.starts_with(matched, root.match_key.rstrip("/") + "/")).to_pylist()
        key = f"{root.path.strip('/')}/"
        keys = self.keys.filter(pc.starts_with(self.keys, key)).to_pylist()
        return found + [root.as_directory().raw + one.removeprefix(key) for one in keys]


_NOTHING = Uses(_NONE, _NONE)


class Borrowed:
    """What the tables of one dataset borrow, remembered by head and by source."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._tables: dict[TableRef, tuple[str, Uses]] = {}
        self._sources: dict[int, Uses] = {}

    async def of(self, tables: Sequence[Table], begins: pa.Array) -> dict[TableRef, Uses]:
        """By table, those that borrow nothing left out. `begins` are the first segments of all places that matter."""
        found = await gather_bounded(tables, partial(self._of_one, begins), limit=_TABLES_AT_ONCE)
        present = {table.ref for table in tables}
        self._tables = {ref: known for ref, known in self._tables.items() if ref in present}
        return {table.ref: uses for table, uses in zip(tables, found, strict=True) if len(uses)}

    def last(self) -> dict[TableRef, Uses]:
        """What is known from before."""
        return {ref: uses for ref, (_, uses) in self._tables.items() if len(uses)}

    async def _of_one(self, begins: pa.Array, table: Table) -> Uses:
        known = self._tables.get(table.ref)
        try:
            head = await table.head()
            if known is None or known[0] != head:
                known = self._tables[table.ref] = (head, await self._read(table, begins))
        except Exception as exc:  # a bug that one table meets must not stop the others either
            if isinstance(exc, LakesweepError) and _may_pass(exc):
                raise
            log.warning("borrowed_files_unknown", table=table.ref.label, reason=str(exc))
        return known[1] if known else _NOTHING

    async def _read(self, table: Table, begins: pa.Array) -> Uses:
        state = await table.load()
        references = await state.references(ExpiryPlan(head=state.head))
        named = pa.array(references.kept, pa.string())
        tolerated = pa.array([False] * len(references.retained) + [True] * len(references.tolerated), pa.bool_())
        direct = _outside(named, tolerated, state, begins)
        roots = "|".join([*sorted(root.match_key for root in state.roots), *begins.to_pylist()])
        read = await gather_bounded(references.sources, partial(self._source, state, begins, roots))
        parts = [direct, *read]
        return Uses(pa.concat_arrays([one.addresses for one in parts]), pa.concat_arrays([one.keys for one in parts]))

    async def _source(self, state: TableState, begins: pa.Array, roots: str, source: ReferenceSource) -> Uses:
        key = hash((roots, source.cache_key))
        if key not in self._sources:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            data = await self._storage.read(source.location)
            decoded = await asyncio.to_thread(formats.decoder(source.format), source, data)
            batch = common.naming(source, decoded)
            flags = batch.column("tolerated") if "tolerated" in batch.schema.names else _no(batch.num_rows)
            found = _outside(batch.column("path"), flags, state, begins)
            self._sources[key] = found if len(found) else _NOTHING
        return self._sources[key]


def inside(borrowed: dict[TableRef, Uses], roots: Iterable[Location], own: TableRef) -> dict[TableRef, list[str]]:
    """By borrower: what lies below these roots of the table `own`."""
    places = tuple(roots)
    found = {ref: [path for root in places for path in uses.below(root)] for ref, uses in borrowed.items()}
    return {ref: paths for ref, paths in found.items() if paths and ref != own}


def first_segments(places: Iterable[Location]) -> pa.Array:
    """How the paths of all these places begin."""
    return pa.array(sorted({place.path.strip("/").partition("/")[0] for place in places}), pa.string())


def _outside(paths: pa.Array, tolerated: pa.Array, state: TableState, begins: pa.Array) -> Uses:
    """What is in none of the table's roots; a bare name is always inside."""
    if not len(paths):
        return _NOTHING
    placed = addresses.place(paths, addresses.Role.READ, state.layout.match_by, state.roots)
    inner, known = placed.column("inside"), pc.is_valid(placed.column("address"))
    away = placed.column("address").filter(pc.and_(pc.invert(inner), known))
    keys = _NONE
    if FACTS[state.ref.format].clones_by_name:
        root = state.location.as_directory().raw
        maybe = placed.column("address").filter(pc.and_(pc.and_(inner, known), tolerated))
        maybe = pc.utf8_slice_codeunits(maybe.filter(pc.starts_with(maybe, root)), start=len(root))
        first = pc.list_element(pc.split_pattern(maybe, "/", max_splits=1), 0) if len(maybe) else maybe
        keys = maybe.filter(pc.is_in(first, begins))
    return Uses(away, keys)


def _no(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value=False), count)


def _may_pass(exc: LakesweepError) -> bool:
    """May the same question be answered later?"""
    if isinstance(exc, StorageError):
        return not isinstance(exc, Denied | NotFound)
    return isinstance(exc, CatalogUnavailable | CommitConflict)
