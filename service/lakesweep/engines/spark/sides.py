"""The comparison of what is listed with what is referenced, by fingerprint, in Spark's Python workers.

Fingerprints are divided by their first bits, so that equal ones come together; Spark moves them in blocks, not one by
one, and each task compares its share. Whether a reference counts at all has been decided before, by `plan.sql`. Lost or
changed blocks must never mean fewer references: every block has a digest, and tasks report how many fingerprints they
compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

import lakesweep
from lakesweep.engines.spark.errors import carried
from lakesweep.engines.spark.executor import Batches, Work, check_version
from lakesweep.model.errors import EngineFailed

Prints = npt.NDArray[np.int64]

LISTED, REFERENCED, INSIDE, STOOD_IN = 1, 2, 4, 8
"""Marks of a fingerprint: is listed; is referenced; should be listed; by a source of which there are only
fingerprints."""
NUMBERS = LISTED_ROWS, STOOD_IN_ROWS, HELD_ROWS, REFERENCES = -1, -2, -3, -4
"""Marks of rows that hold a number instead: how many listed objects, such fingerprints and other references were
compared, and how many different ones are referenced."""

SIDES = "print BIGINT, marks TINYINT"
"""Fingerprints on one side only: LISTED, or INSIDE for those that should have been listed; and the numbers."""
BLOCK = "bucket INT, marks TINYINT, digest BIGINT, prints BINARY"

BUCKETS_PER_TASK = 8
"""Spark deals out buckets by their hash. With several for each task no task gets much more than another."""
MOST_BUCKETS = 65_535
_DIVIDED_AT_ONCE = 2_000_000
_BYTES = 8
_SIDES_SCHEMA = pa.schema([("print", pa.int64()), ("marks", pa.int8())])
_BLOCK_SCHEMA = pa.schema(
    [("bucket", pa.int32()), ("marks", pa.int8()), ("digest", pa.int64()), ("prints", pa.binary())]
)


def dividing(marks: int, buckets: int) -> Work:
    """Blocks of the incoming fingerprints. `marks` are those of every row; a column `inside` adds INSIDE."""
    expected = lakesweep.__version__

    def work(rows: Batches) -> Batches:
        check_version(expected)
        held: dict[int, list[Prints]] = defaultdict(list)
        for batch in rows:
            for mark, prints in _by_marks(batch, marks):
                held[mark].append(prints)
                if sum(map(len, held[mark])) >= _DIVIDED_AT_ONCE:
                    yield divided(np.concatenate(held.pop(mark)), mark, buckets)
        for mark, left in held.items():
            yield divided(np.concatenate(left), mark, buckets)

    return work


def divided(prints: Prints, marks: int, buckets: int) -> pa.RecordBatch:
    """A block for every bucket that has fingerprints."""
    numbers = (((prints.view(np.uint64) >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)).astype(np.uint16)
    in_order = prints[np.argsort(numbers, kind="stable")]  # of 16-bit numbers: does not compare, and takes linear time
    counts = np.bincount(numbers, minlength=buckets)
    filled = np.flatnonzero(counts)
    ends = np.concatenate([[0], np.cumsum(counts[filled]) * _BYTES]).astype(np.int32)
    data = memoryview(in_order.data).cast("B")
    digests = [_digest(data[start:end]) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    blocks = pa.Array.from_buffers(pa.binary(), len(filled), [None, pa.py_buffer(ends), pa.py_buffer(in_order)])
    columns = [pa.array(filled, pa.int32()), pa.repeat(pa.scalar(marks, pa.int8()), len(filled))]
    return pa.RecordBatch.from_arrays([*columns, pa.array(digests, pa.int64()), blocks], schema=_BLOCK_SCHEMA)


def comparing() -> Work:
    """The rows of SIDES for all buckets of a task."""
    expected = lakesweep.__version__

    def work(blocks: Batches) -> Batches:
        check_version(expected)
        held: dict[int, list[Prints]] = defaultdict(list)
        for batch in blocks:
            for marks, prints in _opened(batch):
                held[marks].append(prints)
        if held:
            yield compared({marks: np.concatenate(some) for marks, some in held.items()})

    return work


def compared(held: dict[int, Prints]) -> pa.RecordBatch:
    """What is on one side only, among all fingerprints of some buckets by their marks."""
    listed, inside = _distinct(_with(held, LISTED)), _distinct(_with(held, INSIDE))
    elsewhere = [prints for marks, prints in held.items() if marks & REFERENCED and not marks & INSIDE]
    referenced = _distinct(np.concatenate([inside, *elsewhere])) if elsewhere else inside
    unkept, lost = listed[~_among(listed, referenced)], inside[~_among(inside, listed)]
    rows = [_rows(held, LISTED), _rows(held, STOOD_IN), _rows(held, REFERENCED) - _rows(held, STOOD_IN)]
    prints = np.concatenate([unkept, lost, [*rows, len(referenced)]])
    marks = np.repeat(np.array([LISTED, INSIDE, *NUMBERS], np.int8), [len(unkept), len(lost), 1, 1, 1, 1])
    return pa.RecordBatch.from_arrays([pa.array(prints), pa.array(marks)], schema=_SIDES_SCHEMA)


class Compared(NamedTuple):
    """What all tasks have found together."""

    rows: int
    """Of SIDES."""
    unkept: int
    """Fingerprints that are listed and not referenced."""
    lost: int
    """Fingerprints that should be listed and are not."""
    listed: int
    stood_in: int
    held: int
    """How many rows of these three kinds were compared."""
    references: int
    """Different fingerprints that are referenced."""


def counted(rows: Batches) -> Compared:
    """The rows of SIDES in this process, added up."""
    found = Counter[str]()
    for batch in rows:
        prints, marks = batch.column("print").to_numpy(), batch.column("marks").to_numpy()
        found["rows"] += len(marks)
        for name, mark in (("unkept", LISTED), ("lost", INSIDE)):
            found[name] += int(np.count_nonzero(marks == mark))
        for name, mark in zip(("listed", "stood_in", "held", "references"), NUMBERS, strict=True):
            found[name] += int(prints[marks == mark].sum())
    return Compared(*(found[name] for name in Compared._fields))


class Unkept:
    """The fingerprints that are listed and not referenced. `load` gives the rows of SIDES, and `count` is how many of
    them are LISTED."""

    def __init__(self, load: Callable[[], Batches], count: int) -> None:
        found = [batch.column("print").filter(pc.equal(batch.column("marks"), LISTED)).to_numpy() for batch in load()]
        self._prints = np.concatenate([np.empty(0, np.int64), *found]).view(np.uint64)
        self._prints.sort()
        if len(self._prints) != count:
            raise carried(EngineFailed(f"scratch has {len(self._prints)} unreferenced fingerprints, not {count}"))
        # One look at the first bits rules out most of the others, and searching takes many.
        self._shift = np.uint64(64 - min(26, (8 * count).bit_length() + 1))
        self._begun = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        self._begun[self._prints >> self._shift] = True

    def __call__(self, prints: pa.Array) -> pa.BooleanArray:
        """Which of these are among them?"""
        keys = prints.to_numpy().view(np.uint64)
        found = self._begun[keys >> self._shift]
        at = np.flatnonzero(found)
        found[at] = _among(keys[at], self._prints)
        return pa.array(found)


def _by_marks(batch: pa.RecordBatch, marks: int) -> Iterator[tuple[int, Prints]]:
    if not batch.num_rows:
        return
    prints = batch.column("print").to_numpy()
    if "inside" not in batch.schema.names:
        yield marks, prints
        return
    inside = batch.column("inside").to_numpy(zero_copy_only=False)
    for mark, chosen in ((marks | INSIDE, inside), (marks, ~inside)):
        if chosen.any():
            yield mark, prints[chosen]


def _opened(batch: pa.RecordBatch) -> Iterator[tuple[int, Prints]]:
    blocks = batch.column("prints")
    for row, (marks, digest) in enumerate(
        zip(*(batch.column(name).to_pylist() for name in ("marks", "digest")), strict=True)
    ):
        block = blocks[row].as_buffer()
        if _digest(block) != digest:
            raise carried(EngineFailed("a block of fingerprints was modified after it was written"))
        yield marks, np.frombuffer(block, np.int64)


def _digest(block: memoryview | pa.Buffer) -> int:
    return xxhash.xxh3_64_intdigest(block) - (1 << 63)


def _with(held: dict[int, Prints], mark: int) -> Prints:
    return np.concatenate([np.empty(0, np.int64), *(prints for marks, prints in held.items() if marks & mark)])


def _rows(held: dict[int, Prints], mark: int) -> int:
    return sum(len(prints) for marks, prints in held.items() if marks & mark)


def _distinct(prints: Prints) -> Prints:
    """In order. The array is the caller's own."""
    prints.sort()
    first = np.ones(len(prints), np.bool_)
    np.not_equal(prints[1:], prints[:-1], out=first[1:])
    return prints[first]


def _among(prints: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of these are among the others, which are in order?"""
    if not len(others):
        return np.zeros(len(prints), np.bool_)
    at = np.searchsorted(others, prints)
    at[at == len(others)] = 0
    found: npt.NDArray[np.bool_] = others[at] == prints
    return found
