"""In the place of Parquet for the files of plans and ledgers: the rows stay in memory, and the file holds only their
number.

They are written and read by the product's own `plan_file` and `ledger`, which check and digest them as always. Encoding
and decoding them takes longer than all of that together, and no story damages one; `tests/unit` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

_LONGEST = 100
_MARK = b"rows in memory "
_written: dict[bytes, _Rows] = {}


class _Rows(NamedTuple):
    schema: pa.Schema
    groups: list[pa.RecordBatch]


def forget() -> None:
    """A story has ended: nobody reads its plans any more."""
    _written.clear()


class ParquetWriter:
    """What the product uses of pyarrow's."""

    def __init__(self, where: Path, schema: pa.Schema, **_: Any) -> None:
        self._rows = _Rows(schema, [])
        self._file = os.open(where, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)

    def write_batch(self, rows: pa.RecordBatch, row_group_size: int = 1_000_000) -> None:
        """One row group, as long as it is small."""
        if rows.num_rows > row_group_size or not rows.schema.equals(self._rows.schema):
            raise pa.ArrowInvalid("these are not rows of a small plan")
        self._rows.groups.append(rows)

    def close(self) -> None:
        name = _MARK + b"%06d" % len(_written)
        _written[name] = self._rows
        os.write(self._file, name)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ParquetFile:
    """The same: `source` is a path or an open file."""

    def __init__(self, source: Any, **_: Any) -> None:
        found = _written.get(_content(source) if isinstance(source, str | Path) else source.read())
        if found is None:
            raise pa.ArrowInvalid("not a plan of this story")
        self.schema_arrow, self._groups = found
        self.num_row_groups = len(self._groups)
        self.metadata = self

    def row_group(self, at: int) -> pa.RecordBatch:
        """Knows how many rows it has."""
        return self._groups[at]

    def iter_batches(self, batch_size: int, row_groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        for at in range(self.num_row_groups) if row_groups is None else row_groups:
            rows = self._groups[at]
            if rows.num_rows <= batch_size:
                yield rows
            else:
                yield from (rows.slice(first, batch_size) for first in range(0, rows.num_rows, batch_size))

    def read_row_groups(self, groups: Sequence[int], **_: Any) -> pa.Table:
        return pa.Table.from_batches([self._groups[at] for at in groups], self.schema_arrow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


def _content(path: str | Path) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _LONGEST)
    finally:
        os.close(file)
