"""Files that tables use outside their own roots: clones, `add_files`, tables that were moved. In every other table that
we clean they count as live.

One way for all formats: every table of a tenant is loaded, and what its retained metadata names is placed against its
own roots; what lies outside is shared. A table whose head has not moved is not read again, and neither is a manifest
or checkpoint that was read before, or of which an engine's cache says that all of it is inside. A table that is never
cleaned is read all the same: one with `gc.enabled=false` is most likely one that uses the files of others. What can
never be read (damage, encryption) is logged and skipped: its location still counts as a neighbour's. What may be
readable later raises. A bucket may have other names; for those of a local directory see `linked_files`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.cleanup import addresses
from lakesweep.engines import common
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.manifest_fingerprints import SourceFingerprints
from lakesweep.formats import registry as formats
from lakesweep.model.errors import (
    CatalogUnavailable,
    CommitConflict,
    Denied,
    Indeterminate,
    LakesweepError,
    NotFound,
    StorageError,
    Unreadable,
)
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FACTS, TableRef
from lakesweep.ports.references import ELSEWHERE, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import MatchBy, ReadsAnyway, Table, TableState

log = structlog.get_logger()

_TABLES_AT_ONCE = 8
_MOST_SOURCES = 500_000
"""Remembered at one time, some 50 MB; beyond, they are read again."""
_MOST_DIRECTORIES = 200
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

    def local_paths(self) -> list[str]:
        """Those that are, or may be, on a disk."""
        places = filter(None, map(Location.parse_or_none, self.addresses.to_pylist()))
        return [one.path for one in places if one.is_local] + [f"/{key}" for key in self.keys.to_pylist()]

    def below(self, root: Location) -> list[str]:
        """Those that are, or may be, below a root."""
        matched = addresses.match_keys(self.addresses, MatchBy.ADDRESS)
        found: list[str] = self.addresses.filter(pc.starts_with(matched, root.match_key.rstrip("/") + "/")).to_pylist()
        found += under_other_names(self.addresses, root)
        key = root.as_directory().key_in_bucket.lstrip("/")
        keys = self.keys.filter(pc.starts_with(self.keys, key)).to_pylist()
        return found + [root.as_directory().raw + one.removeprefix(key) for one in keys]

    def directories_outside(self, root: str) -> list[str]:
        """Where these files are, outside a tenant's root; if there are too many, the directories above."""
        own = Location.parse(root).as_directory().match_key
        paths = addresses.match_keys(self.addresses, MatchBy.ADDRESS)
        found = paths.filter(pc.invert(pc.starts_with(paths, own)))
        while True:
            found = pc.unique(pc.replace_substring_regex(found, r"/[^/]*/?$", "/"))
            if len(found) <= _MOST_DIRECTORIES:
                return sorted(found.to_pylist())


_NOTHING = Uses(_NONE, _NONE)


class SharedFileIndex:
    """What the tables of one dataset use outside their roots, remembered by head and by source."""

    def __init__(self, storage: Storage, cache: Callable[[], FingerprintCache | None] = lambda: None) -> None:
        self._storage = storage
        self._cache = cache
        self._tables: dict[TableRef, tuple[tuple[str, str], Uses]] = {}
        """With the head that was read and the places that mattered then."""
        self._sources: dict[int, Uses] = {}
        self.unread: dict[TableRef, str] = {}
        """Tables of which something stays unreadable, and why: they may use more than is known."""
        self.whole: set[TableRef] = set()
        """Tables that were read completely at least once."""
        self.empty = False
        """Had the dataset no tables at all when it was last queried?"""

    async def of(
        self, tables: Sequence[Table], begins: pa.Array, unread: TableRef | None = None
    ) -> dict[TableRef, Uses]:
        """By table, without those that share nothing; of `unread` as last read. `begins` are the first segments of all
        places that matter. What is known of other tables is forgotten, unless there are none at all: then a disk or a
        catalog is away."""
        self.empty = not tables
        if not tables and self.last():
            raise CatalogUnavailable("the dataset had tables and now has none at all")
        wanted = [table for table in tables if table.ref != unread]
        await gather_bounded(wanted, partial(self.read_one, begins), limit=_TABLES_AT_ONCE)
        present = {table.ref for table in tables}
        self._tables = {ref: known for ref, known in self._tables.items() if ref in present}
        self.unread = {ref: why for ref, why in self.unread.items() if ref in present}
        self.whole &= present
        return self.last()

    def last(self) -> dict[TableRef, Uses]:
        return {ref: uses for ref, (_, uses) in self._tables.items() if len(uses)}

    async def read_one(self, begins: pa.Array, table: Table) -> None:
        known = self._tables.get(table.ref)
        if isinstance(table, ReadsAnyway):
            table.read_anyway()
        try:
            at = (await table.head(), "|".join(begins.to_pylist()))
            if known is None or known[0] != at or table.ref in self.unread:
                read, whole = await self._read(table, begins)
                if known is not None and not whole:
                    read = _together([known[1], read])
                self._tables[table.ref] = (at, read)
                if whole:
                    self.unread.pop(table.ref, None)
                    self.whole.add(table.ref)
        except Exception as exc:  # a bug that one table meets must not stop the others either
            if isinstance(exc, LakesweepError) and _may_pass(exc):
                raise
            log.warning("borrowed_files_unknown", table=table.ref.label, reason=str(exc))
            self.unread[table.ref] = str(exc)

    async def _read(self, table: Table, begins: pa.Array) -> tuple[Uses, bool]:
        """What it uses, as far as its manifests or checkpoints can be read, and whether all of them can."""
        state = await table.load()
        references = await state.references(ExpiryPlan(head=state.head))
        named = pa.array(references.kept, pa.string())
        tolerated = pa.array([False] * len(references.retained) + [True] * len(references.tolerated), pa.bool_())
        direct = _together([_outside(named, tolerated, state, begins), _spelled(list(references.elsewhere))])
        roots = "|".join([*sorted(root.match_key for root in state.roots), *begins.to_pylist()])
        new = [source for source in references.sources if hash((roots, source.cache_key)) not in self._sources]
        inside = await asyncio.to_thread(_all_inside, self._cache(), state, new)
        sources = [source for source in references.sources if source.cache_key not in inside]
        read = await gather_bounded(sources, partial(self._source_if_whole, state, begins, roots))
        found = [one for one in read if one is not None]
        return _together([direct, *found]), len(found) == len(read)

    async def _source_if_whole(
        self, state: TableState, begins: pa.Array, roots: str, source: ReferenceSource
    ) -> Uses | None:
        """None if it can never be read: the others still say what they know."""
        try:
            return await self._source(state, begins, roots, source)
        except LakesweepError as exc:
            if _may_pass(exc):
                raise
            log.warning("borrowed_files_unknown", table=state.ref.label, source=source.location.raw, reason=str(exc))
            self.unread[state.ref] = f"{source.location.raw}: {exc}"
            return None

    async def _source(self, state: TableState, begins: pa.Array, roots: str, source: ReferenceSource) -> Uses:
        key = hash((roots, source.cache_key))
        if key not in self._sources:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            data = await self._storage.read(source.location)
            decoded = await asyncio.to_thread(formats.decoder(source.format), source, data)
            batch = common.naming(source, decoded)
            flags = (
                batch.column("tolerated")
                if "tolerated" in batch.schema.names
                else pa.repeat(pa.scalar(value=False), batch.num_rows)
            )
            found = _outside(batch.column("path"), flags, state, begins)
            if batch.num_rows < decoded.num_rows:
                away = decoded.column("path").filter(decoded.column(ELSEWHERE.name))
                found = _together([found, _spelled(away.to_pylist())])
            self._sources[key] = found if len(found) else _NOTHING
        return self._sources[key]


def _all_inside(
    cache: FingerprintCache | None, state: TableState, sources: Sequence[ReferenceSource]
) -> frozenset[str]:
    """Sources that need not be read: an engine has read them. Not where a path below the root may mean another."""
    if not sources or FACTS[state.ref.format].clones_by_name:
        return frozenset()
    match_by = state.layout.match_by
    try:
        return SourceFingerprints(cache, sources, match_by=match_by, roots=state.roots, released=_NONE).all_inside()
    except Exception as exc:  # noqa: BLE001 - a cache that fails only costs time
        log.warning("cache_unusable", table=state.ref.label, reason=str(exc))
        return frozenset()


def _together(parts: Sequence[Uses]) -> Uses:
    return Uses(pa.concat_arrays([one.addresses for one in parts]), pa.concat_arrays([one.keys for one in parts]))


def _spelled(paths: Iterable[str]) -> Uses:
    places = filter(None, map(Location.parse_or_none, paths))
    return Uses(pa.array([place.raw for place in places], pa.string()), _NONE)


def inside(used: dict[TableRef, Uses], roots: Iterable[Location], own: TableRef) -> dict[TableRef, list[str]]:
    """By the table that uses it: what lies below these roots of the table `own`."""
    places = tuple(roots)
    found = {
        ref: list(dict.fromkeys(path for root in places for path in uses.below(root))) for ref, uses in used.items()
    }
    return {ref: paths for ref, paths in found.items() if paths and ref != own}


def file_names(used: dict[TableRef, Uses]) -> dict[str, TableRef]:
    """By name of a file that is used: who uses it."""
    return {
        path.rpartition("/")[2]: ref
        for ref, uses in used.items()
        for paths in (uses.addresses, uses.keys)
        for path in paths.to_pylist()
    }


def first_segments(places: Iterable[Location]) -> pa.Array:
    return pa.array(sorted({place.key_in_bucket.lstrip("/").partition("/")[0] for place in places}), pa.string())


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


def _may_pass(exc: LakesweepError) -> bool:
    """May the same question be answered later?"""
    if isinstance(exc, Indeterminate) and not isinstance(exc, Unreadable) and isinstance(exc.__cause__, StorageError):
        exc = exc.__cause__
    if isinstance(exc, StorageError):
        return not isinstance(exc, Denied | NotFound)
    return isinstance(exc, CatalogUnavailable | CommitConflict)


_STORE = r"^([^/]+//[^/]+/).*$"


def under_other_names(used: pa.Array, root: Location) -> list[str]:
    """Those that may be below a root, as the root spells them: with the same key in another bucket. It may be the same
    bucket under another name: an access point, or an alias that only some writers know. A copy in another region, with
    the same keys, only keeps files that could go."""
    if root.is_local:
        return []
    root = root.as_directory()
    stores = pc.replace_substring_regex(used, _STORE, r"\1")
    found: list[str] = []
    for text in pc.unique(stores).to_pylist():
        store = Location.parse_or_none(text)
        if store is None or store.is_local:
            continue
        access_point = store.authority.endswith(":accesspoint")  # arn:…:accesspoint/NAME/key
        if not access_point and (store.scheme, store.authority) == (root.scheme, root.authority):
            continue
        keys = pc.utf8_slice_codeunits(used.filter(pc.equal(stores, text)), start=len(text))
        keys = pc.utf8_ltrim(pc.replace_substring_regex(keys, "/+", "/"), characters="/")
        if access_point:
            keys = pc.replace_substring_regex(keys, "^[^/]*/", "")
        below = keys.filter(pc.starts_with(keys, root.key_in_bucket))
        found += [root.raw + key.removeprefix(root.key_in_bucket) for key in below.to_pylist()]
    return found
