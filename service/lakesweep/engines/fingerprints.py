"""The 64-bit fingerprints that the in-process engine joins on, computed by DuckDB for whole columns at a time.

Both sides of a join must be hashed by the same function, or live files look unreferenced, and DuckDB may change its
hash from one version to the next. So stored fingerprints count only under the identity of the function that made them.
Every process determines that identity by hashing probes, not from a version number.
"""

from __future__ import annotations

import functools
import threading

import duckdb
import pyarrow as pa
import xxhash

EXPRESSION = "hash(text)"
"""The fingerprint of `text`, in DuckDB's SQL."""

_MEMORY = "64MB"
_PROBED_LENGTHS = 1200
"""Hash functions treat strings differently by length. No address on S3 is longer than this, and the treatment no longer
changes beyond it."""
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz-_=/.:ä漢😀"


class Fingerprints:
    """Hashes string columns. Thread-safe."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        # One thread keeps the order of rows; a hundred thousand rows take a few milliseconds.
        self._db = duckdb.connect(config={"threads": 1, "preserve_insertion_order": True, "memory_limit": _MEMORY})
        self._lock = threading.Lock()
        self.identity = xxhash.xxh3_128_hexdigest(self.of(_probes()).buffers()[1])
        """Different as soon as a single probe is hashed differently."""

    def of(self, texts: pa.Array) -> pa.UInt64Array:
        with self._lock:
            column = self._db.from_arrow(pa.table({"text": texts}))
            prints = column.project(f"CAST({self._expression} AS UBIGINT) AS print").to_arrow_table().column("print")
        return pa.concat_arrays([pa.array([], pa.uint64()), *prints.chunks])


def shared() -> Fingerprints:
    """Shared by this process: creating one costs more than hashing the new references of most cycles."""
    return _opened(EXPRESSION)


@functools.cache
def _opened(expression: str) -> Fingerprints:
    return Fingerprints(expression)


def _probes() -> pa.Array:
    """A string of every length, and each character at the start of a short string."""
    endless = _ALPHABET * (_PROBED_LENGTHS // len(_ALPHABET) + 2)
    turns = [endless[turn:] for turn in range(len(_ALPHABET))]
    lengths = [turns[length % len(turns)][:length] for length in range(_PROBED_LENGTHS)]
    return pa.array([*lengths, *(turn[:12] for turn in turns)], pa.string())
