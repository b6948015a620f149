"""Use fingerprints instead of references wherever a plan compares nothing else.

The joins that keep files compare fingerprints anyway, so for them a source's fingerprints are as good as its
references. They take a tenth of the space, and if an earlier cycle left them in the cache, the source need not be read.
They do not replace references where exact addresses decide: for a source of the expired side, for one that may name an
address the format has released, for references that guard names elsewhere, and for live files outside the roots, which
are counted by address. Those are read completely, as are sources with missing files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import addresses
from lakesweep.engines import fingerprints
from lakesweep.engines.manifest_cache import PACK_SCHEMA, FingerprintCache, cacheable, falls_short
from lakesweep.model.location import Location
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.table import MatchBy

STAND_IN_SCHEMA = pa.schema(
    [
        pa.field("print", pa.uint64(), nullable=False),  # the fingerprint of a reference's match key
        pa.field("inside", pa.bool_(), nullable=False),  # see cleanup.addresses
        pa.field("source", pa.int32(), nullable=False),  # the place of its source in the list of all
    ]
)
"""Fingerprints that stand in for references."""

_HASHED_AT_ONCE = 65_536
"""Rows hashed together: one call takes DuckDB a millisecond for any number of rows, and a source has about a
thousand."""
_SAVED_AT_ONCE = 32 * 1024 * 1024
"""Bytes of new fingerprints that may wait to be saved: those of more than three million references."""
_PACKED_AT_ONCE = 1024 * 1024

_NOTHING = pa.RecordBatch.from_pylist([], schema=STAND_IN_SCHEMA)


class Ready(NamedTuple):
    """What is ready to be joined."""

    in_full: pa.RecordBatch | None = None
    """References of a source that need their addresses, as PLACED_SCHEMA."""
    stand_ins: pa.RecordBatch = _NOTHING
    """Fingerprints of any number of sources, as STAND_IN_SCHEMA."""


class SourceFingerprints:
    """The fingerprints of one plan. Call `stored` and consume it, then `rest`, `add` for each source read (from any
    thread), `flush` and `save`."""

    def __init__(
        self,
        cache: FingerprintCache | None,
        sources: Sequence[ReferenceSource],
        *,
        match_by: MatchBy,
        roots: Sequence[Location],
        released: pa.Array,
    ) -> None:
        """`released` are the match keys of what the format has released."""
        self._cache = cache
        self._numbers = {source: number for number, source in enumerate(sources)}
        self._fingerprints = fingerprints.shared()
        places = sorted(root.match_key.rstrip("/") for root in roots)
        guarded = ["names are guarded"] if len(places) > 1 else []
        self._scope = "|".join([self._fingerprints.identity, match_by, *guarded, *places])
        self._released = frozenset(released.to_pylist())
        self._known: set[str] = set()
        """Cache keys of sources that fingerprints stand in for."""
        self._lock = threading.RLock()
        self._waiting: list[tuple[ReferenceSource, pa.RecordBatch]] = []
        self._rows = 0
        self._new: list[pa.RecordBatch] = []
        self._new_bytes = 0

    def stored(self) -> Iterator[pa.RecordBatch]:
        """The fingerprints in the cache, as STAND_IN_SCHEMA."""
        if self._cache is None:
            return
        wanted = {source.cache_key: (source, number) for source, number in self._numbers.items() if _storable(source)}
        released = self._fingerprints.of(pa.array(self._released, pa.string()))
        for pack in self._cache.load_pack(self._scope):
            spell_released = pc.is_in(pack.column("prints").flatten(), value_set=released)
            doubtful = set(pc.list_parent_indices(pack.column("prints")).filter(spell_released).to_pylist())
            counts = pc.list_value_length(pack.column("prints")).to_pylist()
            found: list[int | None] = []
            for row, key in enumerate(pack.column("source").to_pylist()):
                source, number = wanted.get(key, (None, None))
                if source is None or row in doubtful or falls_short(source, counts[row]):
                    found.append(None)
                else:
                    found.append(number)
                    del wanted[key]
            yield _stand_ins(pack, pa.array(found, pa.int32()))
        self._known = {source.cache_key for source in self._numbers if _storable(source)} - wanted.keys()

    def all_inside(self) -> frozenset[str]:
        """Cache keys of those sources all of whose references are inside the roots, as an earlier plan found."""
        found: set[str] = set()
        wanted = {source.cache_key: source for source in self._numbers if _storable(source)}
        for pack in self._cache.load_pack(self._scope) if self._cache is not None else ():
            inside = pack.column("inside")
            doubtful = set(pc.list_parent_indices(inside).filter(pc.invert(inside.flatten())).to_pylist())
            counts = pc.list_value_length(inside).to_pylist()
            for row, key in enumerate(pack.column("source").to_pylist()):
                if key in wanted and row not in doubtful and not falls_short(wanted[key], counts[row]):
                    found.add(key)
        return frozenset(found)

    def rest(self) -> list[ReferenceSource]:
        return [source for source in self._numbers if not source.retained or source.cache_key not in self._known]

    def add(self, source: ReferenceSource, placed: pa.RecordBatch) -> Ready:
        if not source.retained or placed.column("guarded_name").null_count < placed.num_rows:
            return Ready(placed)
        if pc.any(placed.column("outside")).as_py():
            return Ready(placed)
        if self._released and not self._released.isdisjoint(addresses.placed_keys(placed).to_pylist()):
            return Ready(placed)
        with self._lock:
            self._waiting.append((source, placed))
            self._rows += placed.num_rows
            if self._rows < _HASHED_AT_ONCE:
                return Ready()
            waiting, self._waiting, self._rows = self._waiting, [], 0
        return Ready(stand_ins=self._hashed(waiting))

    def flush(self) -> pa.RecordBatch:
        waiting, self._waiting = self._waiting, []
        return self._hashed(waiting) if waiting else _NOTHING

    def learn(self, source: ReferenceSource, prints: pa.Array, inside: pa.Array) -> None:
        """Take all fingerprints of a source that another process has read with the same code."""
        if _storable(source) and not falls_short(source, len(prints)):
            self._keep(_pack([(source, len(prints))], prints, inside))

    def save(self) -> None:
        """Save new fingerprints for the next cycle, together with the old ones that are still of use."""
        with self._lock:
            new, self._new, self._new_bytes = self._new, [], 0
            if not new or self._cache is None:
                return
            replaced = {key for pack in new for key in pack.column("source").to_pylist()}
            kept = pa.array(self._known - replaced, pa.string())
            self._known |= replaced
            old = self._cache.load_pack(self._scope)
            left = (pack.filter(pc.is_in(pack.column("source"), value_set=kept)) for pack in old)
            self._cache.store_pack(self._scope, _larger(chain(new, left)))

    def forget(self) -> None:
        """Drop the cache entry, so that the next cycle reads everything again."""
        if self._cache is not None:
            self._cache.remove_pack(self._scope)

    def _hashed(self, waiting: Sequence[tuple[ReferenceSource, pa.RecordBatch]]) -> pa.RecordBatch:
        prints = self._fingerprints.of(pa.concat_arrays([addresses.placed_keys(placed) for _, placed in waiting]))
        inside = pa.concat_arrays([placed.column("inside") for _, placed in waiting])
        pack = _pack([(source, placed.num_rows) for source, placed in waiting], prints, inside)
        storable = pack.filter(pa.array([_storable(source) for source, _ in waiting]))
        self._keep(storable)
        return _stand_ins(pack, pa.array([self._numbers[source] for source, _ in waiting], pa.int32()))

    def _keep(self, pack: pa.RecordBatch) -> None:
        with self._lock:
            self._new += [pack] if pack.num_rows else []
            self._new_bytes += pack.nbytes
            if self._new_bytes >= _SAVED_AT_ONCE:
                self.save()


def _pack(sources: Sequence[tuple[ReferenceSource, int]], prints: pa.Array, inside: pa.Array) -> pa.RecordBatch:
    """Sources with so many fingerprints each, all of which are in these columns one after the other."""
    ends = pa.array(accumulate((rows for _, rows in sources), initial=0), pa.int32())
    keys = pa.array([source.cache_key for source, _ in sources], pa.string())
    lists = [pa.ListArray.from_arrays(ends, values) for values in (prints, inside)]
    return pa.RecordBatch.from_arrays([keys, *lists], schema=PACK_SCHEMA)


def _storable(source: ReferenceSource) -> bool:
    return source.retained and cacheable(source)


def _stand_ins(pack: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    """The rows of a pack with the given number for each source; sources without a number are left out."""
    prints = pack.column("prints")
    of_rows = numbers.take(pc.list_parent_indices(prints))
    columns = [prints.flatten(), pack.column("inside").flatten(), of_rows]
    rows = pa.RecordBatch.from_arrays(columns, schema=STAND_IN_SCHEMA)
    return rows.filter(of_rows.is_valid()) if of_rows.null_count else rows


def _larger(packs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: many cycles add a single source each."""
    held: list[pa.RecordBatch] = []
    for pack in packs:
        held.append(pack)
        if sum(one.nbytes for one in held) >= _PACKED_AT_ONCE:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
