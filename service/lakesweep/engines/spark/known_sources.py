"""What the cache knows of a table's sources: executors read only the others, and what they read is kept in turn.

The cache is this process's own and never leaves it; its rules are those of the in-process engine
(`manifest_fingerprints`, `manifest_cache`). Its rows become one more relation of the plan, which is counted like any
other. Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.manifest_fingerprints import SourceFingerprints
from lakesweep.engines.spark import worker_rows
from lakesweep.engines.spark.worker_rows import OTHER_CODE, STAND_IN
from lakesweep.model.errors import Indeterminate
from lakesweep.ports.references import ReferenceSource

LEARNED = ("role", "print", "inside", "source")
"""The columns of what was read that `learn` needs."""
_CHUNK_ROWS = 1_000_000

Place = Callable[[ReferenceSource, pa.RecordBatch], pa.RecordBatch]


class KnownSources:
    """The cached references of one plan. Consume `rows`, read `rest`, then call `learn`."""

    def __init__(
        self,
        cache: FingerprintCache,
        fingerprints: SourceFingerprints,
        sources: Sequence[ReferenceSource],
        place: Place,
    ) -> None:
        self.numbered = sources
        """By their numbers in `rows`."""
        self._cache = cache
        self._fingerprints = fingerprints
        self._place = place
        self._rest: list[ReferenceSource] = []

    def rows(self) -> Iterator[pa.RecordBatch]:
        """References of sources in the cache, as worker_rows.READ_SCHEMA."""
        held: list[pa.RecordBatch] = []
        for batch in self._all():
            held.append(batch)
            if sum(one.num_rows for one in held) >= _CHUNK_ROWS:
                yield from _by_kind(held)
                held = []
        yield from _by_kind(held)

    @property
    def rest(self) -> list[ReferenceSource]:
        """Which sources must be read."""
        return self._rest

    def learn(self, batches: Iterable[pa.RecordBatch], sources: Sequence[ReferenceSource]) -> None:
        """Keep the fingerprints that executors have made, for the next cycle. `sources` are by their numbers in these
        rows. The rows of a source are together."""
        done: set[int] = set()
        for number, rows in _by_source(batches):
            if rows is None or number in done:
                self.forget()  # made by other code than ours, or not in one piece: nothing of it may be used again
                return
            done.add(number)
            self._fingerprints.learn(sources[number], rows.column("print").view(pa.uint64()), rows.column("inside"))
        self._fingerprints.save()

    def forget(self) -> None:
        """Drop what the cache knows, so that the next cycle reads everything again."""
        self._fingerprints.forget()

    def _all(self) -> Iterator[pa.RecordBatch]:
        for stand_ins in self._fingerprints.stored():
            yield worker_rows.stood_in(stand_ins, 0)
        for source in self._fingerprints.rest():
            batch = self._cache.load(source)
            try:
                placed = None if batch is None else self._place(source, batch)
            except Indeterminate:
                placed = None  # its reader says what is wrong with it
            if placed is None:
                self._rest.append(source)
                continue
            full, stand_ins = self._fingerprints.add(source, placed)
            yield worker_rows.stood_in(stand_ins, 0) if full is None else worker_rows.in_full(full)
        yield worker_rows.stood_in(self._fingerprints.flush(), 0)


def _by_kind(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in two batches at the most; none has both fingerprints and references in full."""
    if batches:
        rows = pa.concat_batches(batches)
        standing = pc.equal(rows.column("role"), STAND_IN)
        yield from (some for some in (rows.filter(standing), rows.filter(pc.invert(standing))) if some.num_rows)


def _by_source(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """The fingerprints of each source, as long as its rows come together. None stands for those of other code."""
    left: pa.RecordBatch | None = None
    for batch in batches:
        if pc.any(pc.equal(batch.column("role"), OTHER_CODE)).as_py():
            yield -1, None
        rows = batch.filter(pc.equal(batch.column("role"), STAND_IN))
        if left is not None:
            rows = pa.concat_batches([left, rows])
        *whole, left = _runs(rows) or [None]
        yield from ((run.column("source")[0].as_py(), run) for run in whole)
    if left is not None:
        yield left.column("source")[0].as_py(), left


def _runs(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Rows of one source each, in their order."""
    ends = pc.run_end_encode(rows.column("source")).run_ends.to_pylist()
    return [rows.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
