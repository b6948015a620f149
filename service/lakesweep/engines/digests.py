"""Fingerprints of cached sources in place of their references, wherever a plan would look at nothing else.

The joins that keep files compare fingerprints anyway, so for them a source's digest is as good as its references, and
reading it costs next to nothing. It may not stand in where exact addresses decide: for a source of the expired side,
for one that may spell an address the format has released, and for references that guard names elsewhere. Those are
read in full, as are sources of which something turns out to be missing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import addresses
from lakesweep.cleanup.ports import MatchBy, ReferenceSource
from lakesweep.engines import fingerprints
from lakesweep.engines.cache import DIGEST_SCHEMA, DigestCache
from lakesweep.model.location import Location

STAND_IN_SCHEMA = DIGEST_SCHEMA.append(pa.field("source", pa.int32(), nullable=False))
"""Fingerprints of many sources; `source` is the place of each in the list of all."""

_HASHED_AT_ONCE = 65_536
"""Rows that wait to be hashed together: DuckDB takes a millisecond for any number, a source has a thousand."""

Numbered = tuple[int, ReferenceSource]
_Placed = tuple[ReferenceSource, pa.Array, pa.Array]
"""A source, the match keys of its references, and which of them are inside."""


class Digests:
    """The digests of one plan. `remember` may be called from several threads."""

    def __init__(
        self,
        cache: DigestCache,
        *,
        match_by: MatchBy,
        roots: Sequence[Location],
        released: pa.Array,
    ) -> None:
        """`released` are the match keys of what the format has released."""
        self._cache = cache
        self._fingerprints = fingerprints.shared()
        places = sorted(root.match_key.rstrip("/") for root in roots)
        self._scope = "|".join([self._fingerprints.identity, match_by, *places])
        self._released = self._fingerprints.of(released)
        self._lock = threading.Lock()
        self._unknown: set[ReferenceSource] = set()
        self._waiting: list[_Placed] = []
        self._rows = 0

    def stand_ins(self, sources: Sequence[Numbered]) -> tuple[pa.RecordBatch, list[ReferenceSource]]:
        """Fingerprints of those sources that need no more, and the other sources."""
        rest: list[ReferenceSource] = []
        found: list[pa.RecordBatch] = []
        for number, source in sources:
            digest = self._cache.load_digest(source, self._scope) if source.retained else None
            if digest is None:
                self._unknown.add(source)
                rest.append(source)
            else:
                numbers = pa.repeat(pa.scalar(number, pa.int32()), digest.num_rows)
                found.append(pa.RecordBatch.from_arrays([*digest.columns, numbers], schema=STAND_IN_SCHEMA))
        rows = pa.concat_batches([pa.RecordBatch.from_pylist([], schema=STAND_IN_SCHEMA), *found])
        doubtful = self._doubtful(rows)
        if not len(doubtful):
            return rows, rest
        named = set(doubtful.to_pylist())
        rest += [source for number, source in sources if number in named]
        return rows.filter(pc.invert(pc.is_in(rows.column("source"), value_set=doubtful))), rest

    def remember(self, source: ReferenceSource, placed: pa.RecordBatch) -> None:
        """Keep the digest of a source that was read in full, if it has none yet and may be stood in for."""
        if not source.retained or source not in self._unknown:
            return
        if placed.column("guarded_name").null_count < placed.num_rows:
            return
        keys = addresses.placed_keys(placed)
        with self._lock:
            self._waiting.append((source, keys, placed.column("inside")))
            self._rows += placed.num_rows
            if self._rows < _HASHED_AT_ONCE:
                return
        self.flush()

    def flush(self) -> None:
        """Write what still waits."""
        with self._lock:
            waiting, self._waiting, self._rows = self._waiting, [], 0
        if not waiting:
            return
        prints = self._fingerprints.of(pa.concat_arrays([keys for _, keys, _ in waiting]))
        start = 0
        for source, keys, inside in waiting:
            columns = [prints.slice(start, len(keys)), inside]
            self._cache.store_digest(source, self._scope, pa.RecordBatch.from_arrays(columns, schema=DIGEST_SCHEMA))
            start += len(keys)

    def _doubtful(self, rows: pa.RecordBatch) -> pa.Array:
        """Sources that may spell something released."""
        if not len(self._released):
            return pa.array([], pa.int32())
        hits = pc.is_in(rows.column("print"), value_set=self._released)
        return rows.column("source").filter(hits).unique()
