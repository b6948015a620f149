"""The rows of a plan on disk: Parquet, sorted by stage and path, with a digest that every engine agrees on.

A plan is written completely or not at all, and read back in bounded memory. A file that is damaged, truncated or not a
plan raises Unreadable: rows are never guessed. Deletes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesweep.cleanup import arrow_json
from lakesweep.model.errors import Indeterminate, Unreadable
from lakesweep.model.files import Candidate, Reason
from lakesweep.ports.storage import LISTING_SCHEMA

PLAN_SCHEMA = pa.schema(
    [
        *LISTING_SCHEMA,
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("stage", pa.int32(), nullable=False),
    ]
)

_ROW_GROUP = 65_536
"""Rows that the reader of a plan holds at once."""

PlanSource = str | RawIOBase


class PlanWriter:
    """Writes rows that come in order. The file appears under its name on a clean exit, and only then."""

    def __init__(self, rows_path: str) -> None:
        self._target = Path(rows_path)
        self._partial = self._target.with_name(f"{self._target.name}.partial")
        self._hasher = hashlib.sha256()
        self._last: pa.RecordBatch | None = None
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            self._partial,
            PLAN_SCHEMA,
            compression="zstd",
            use_dictionary=["kind", "reason"],
            write_page_checksum=True,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of PLAN_SCHEMA that sort behind all rows before them."""
        if not rows.num_rows:
            return
        self._check_order(rows)
        self._hasher.update(_canonical(rows))
        self._writer.write_batch(rows, row_group_size=_ROW_GROUP)
        self._last = rows.slice(rows.num_rows - 1)

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._writer.close()
            if kind is None:
                with self._partial.open("rb") as written:
                    os.fsync(written.fileno())
                self._partial.replace(self._target)
        finally:
            self._partial.unlink(missing_ok=True)

    def _check_order(self, rows: pa.RecordBatch) -> None:
        """Strictly ascending: a path that was listed twice means that the listing is inconsistent."""
        table = pa.Table.from_batches([self._last, rows] if self._last is not None else [rows])
        stage, path = table.column("stage"), table.column("path")
        below, above = slice(0, table.num_rows - 1), slice(1, None)
        wrong = pc.or_(
            pc.greater(stage[below], stage[above]),
            pc.and_(pc.equal(stage[below], stage[above]), pc.greater_equal(path[below], path[above])),
        )
        if pc.any(wrong).as_py():
            first = path[above].filter(wrong)[0].as_py()
            raise Indeterminate(f"{first} is in the plan twice or out of order: the listing is inconsistent")


def read_page(plan_file: PlanSource, start: int, size: int) -> list[Candidate]:
    """At most `size` candidates from row `start` on. Nothing is read of row groups that hold none of them."""
    with _opened(plan_file) as plan:
        begins = list(
            accumulate((plan.metadata.row_group(at).num_rows for at in range(plan.num_row_groups)), initial=0)
        )
        groups = [at for at, (first, end) in enumerate(pairwise(begins)) if first < start + size and start < end]
        if not groups:
            return []
        rows = plan.read_row_groups(groups, use_threads=False).slice(start - begins[groups[0]], size)
        return [_candidate(row) for row in rows.to_pylist()]


def read_batches(rows_path: str, start: int = 0, size: int = 1000) -> Iterator[list[Candidate]]:
    """Candidates from row `start` on, in lists of `size` (the last one may be shorter)."""
    held: list[Candidate] = []
    with _opened(rows_path) as plan:
        for rows in _rows(plan, start, size):
            held.extend(candidates(rows))
            while len(held) >= size:
                yield held[:size]
                held = held[size:]
    if held:
        yield held


def read_cut(rows_path: str, size: int, digest: str) -> Iterator[list[pa.RecordBatch]]:
    """The rows with this digest in columns, cut by size and then at the border of every stage, many cuts at a time."""
    held = PLAN_SCHEMA.empty_table()
    for rows in read_checked(rows_path, digest):
        with damage_is_unreadable(rows_path):
            _check_values(rows)
            held = pa.concat_tables([held, pa.Table.from_batches([rows])])
            whole = held.num_rows - held.num_rows % size
            ready, held = held.slice(0, whole), held.slice(whole)
            cuts = _cut(ready, size)
        if cuts:
            yield cuts
    if held.num_rows:
        yield _cut(held, size)


def _cut(rows: pa.Table, size: int) -> list[pa.RecordBatch]:
    cuts: list[pa.RecordBatch] = []
    for batch in rows.combine_chunks().to_batches(max_chunksize=size):
        start = 0
        for end in pc.run_end_encode(batch.column("stage")).run_ends.to_pylist():
            cuts.append(batch.slice(start, end - start))
            start = end
    return cuts


def candidates(rows: pa.RecordBatch) -> list[Candidate]:
    return [_candidate(row) for row in rows.to_pylist()]


def read_rows(rows_path: str) -> Iterator[pa.RecordBatch]:
    """The same as batches of PLAN_SCHEMA, none of them empty."""
    with _opened(rows_path) as plan:
        yield from _rows(plan)


def read_checked(rows_path: str, digest: str) -> Iterator[pa.RecordBatch]:
    """The same, only of the plan with this digest. Opened once: what was checked is what is read."""
    with _opened(rows_path) as plan:
        if _digest(plan) != digest:
            raise Unreadable(rows_path, "its rows do not match the plan that was saved")
        yield from _rows(plan)


def digest(rows_path: str) -> str:
    with _opened(rows_path) as plan:
        return _digest(plan)


def _digest(plan: pq.ParquetFile) -> str:
    hasher = hashlib.sha256()
    for rows in _rows(plan):
        hasher.update(_canonical(rows))
    return hasher.hexdigest()


@contextmanager
def _opened(rows_path: PlanSource) -> Iterator[pq.ParquetFile]:
    name = rows_path if isinstance(rows_path, str) else "plan"
    with damage_is_unreadable(name), pq.ParquetFile(rows_path, page_checksum_verification=True) as plan:
        if not plan.schema_arrow.equals(PLAN_SCHEMA):
            raise Unreadable(name, "it is not a plan of this version")
        yield plan


def _rows(plan: pq.ParquetFile, start: int = 0, size: int | None = None) -> Iterator[pa.RecordBatch]:
    skip = start
    groups: list[int] = []
    for index in range(plan.num_row_groups):
        rows_inside = plan.metadata.row_group(index).num_rows
        if not groups and skip >= rows_inside:
            skip -= rows_inside
        else:
            groups.append(index)
    for rows in plan.iter_batches(batch_size=size or _ROW_GROUP, row_groups=groups) if groups else ():
        left = rows.slice(skip)
        skip = max(0, skip - rows.num_rows)
        if left.num_rows:
            yield left


@contextmanager
def damage_is_unreadable(path: str, what: str = "plan") -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as exc:
        raise Unreadable(path, f"the {what} is damaged or gone: {exc}") from exc


def _check_values(rows: pa.RecordBatch) -> None:
    """Raise ValueError unless every row makes a Candidate."""
    rows.validate(full=True)
    arrow_json.check_times(rows.column("modified_at"))
    for reason in rows.column("reason").unique().to_pylist():
        Reason(reason)


def _candidate(row: dict[str, Any]) -> Candidate:
    return Candidate(**{**row, "reason": Reason(row["reason"])})


def _canonical(rows: pa.RecordBatch) -> pa.Buffer:
    """Every row as text that reads only one way: texts carry their length, nothing depends on batch borders."""
    modified = rows.column("modified_at").view(pa.int64())
    lines = pc.binary_join_element_wise(
        _measured(rows.column("path")),
        _number(rows.column("size_bytes")),
        _number(modified),
        _measured(rows.column("etag")),
        _measured(rows.column("kind")),
        _measured(rows.column("reason")),
        _number(rows.column("stage")),
        "\n",
    )
    return arrow_json.joined(lines)


def _measured(texts: pa.Array) -> pa.Array:
    lengths = pc.binary_length(texts).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(lengths, texts, ":"), pa.scalar("-"))


def _number(values: pa.Array) -> pa.Array:
    return pc.coalesce(values.cast(pa.string()), pa.scalar("-"))


def look_up(
    rows: Iterator[pa.RecordBatch], known: Iterator[pa.RecordBatch], column: str
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Each batch of rows with the value of `column` that the known side has for the same object, else null.

    Both sides come sorted by stage and path, as plans are; one batch of each is in memory. An object is the same only
    if its path, size, time and etag are: one that was written anew under an old name is another object.
    """
    current = next(known, None)
    kind = current.schema.field(column).type if current is not None else pa.null()
    for batch in rows:
        found = pa.nulls(batch.num_rows, kind)
        while current is not None:
            found = pc.coalesce(found, _values(batch, current, column))
            if _last_key(current) > _last_key(batch):
                break
            current = next(known, None)
        yield batch, found


def _last_key(batch: pa.RecordBatch) -> tuple[int, bytes]:
    last = batch.num_rows - 1
    # Arrow orders texts by their bytes.
    return batch.column("stage")[last].as_py(), batch.column("path")[last].as_buffer().to_pybytes()


def _values(batch: pa.RecordBatch, known: pa.RecordBatch, column: str) -> pa.Array:
    index = pc.index_in(batch.column("path"), value_set=known.column("path"))
    other = known.take(index)
    same = pc.and_(
        pc.equal(batch.column("size_bytes"), other.column("size_bytes")),
        pc.and_(
            pc.equal(_moment(batch), _moment(other)),
            pc.equal(pc.coalesce(batch.column("etag"), ""), pc.coalesce(other.column("etag"), "")),
        ),
    )
    same = pc.and_(pc.is_valid(index), pc.fill_null(same, False))
    return pc.if_else(same, other.column(column), pa.scalar(None, other.column(column).type))


def _moment(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(batch.column("modified_at").cast(pa.int64()), -1)
