"""Bytes of manifests and manifest lists to what they name. Pure, picklable, the same in threads, processes and Spark.

A row that is not seen is a live file that gets deleted, so nothing is taken on trust: the container must be whole,
a manifest must have the length and the number of entries that its manifest list records, and a manifest list, whose
own length nothing records, must not fall short of what the snapshot's summary counts. Anything else is Unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.ports import REFERENCE_SCHEMA, ReferenceSource
from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns
from lakesweep.model.errors import Unreadable

MANIFEST = "manifest"
"""The kind of our only reference source."""

_STATUS = pa.field("status", pa.int32(), nullable=False)
_PATH = pa.field("path", pa.string(), nullable=False)
_ENTRY_FIELDS = {0: _STATUS, 100: _PATH}
_DELETED = 2
_STATUSES = frozenset((0, 1, _DELETED))

_LIST_FIELDS = {
    500: pa.field("path", pa.string(), nullable=False),
    501: pa.field("length", pa.int64(), nullable=False),
    517: pa.field("content", pa.int32()),
    504: pa.field("added", pa.int64()),
    505: pa.field("existing", pa.int64()),
    506: pa.field("deleted", pa.int64()),
    519: pa.field("key_metadata", pa.binary()),
}


class Content(NamedTuple):
    """The two kinds of manifests, and how a summary counts each."""

    code: int
    noun: str
    total: str
    added: str


_DATA, _DELETES = 0, 1
CONTENTS = (
    Content(_DATA, "data", "total-data-files", "added-data-files"),
    Content(_DELETES, "delete", "total-delete-files", "added-delete-files"),
)
_REWRITTEN_ENTRIES = "entries-processed"
"""Only a rewrite of manifests has this in its summary."""


class ManifestRow(NamedTuple):
    """A manifest as a manifest list records it; None where it records nothing."""

    path: str
    length: int | None
    content: int
    added: int | None
    existing: int | None
    deleted: int | None
    encrypted: bool = False

    @property
    def entries(self) -> int | None:
        """How many entries the manifest must have."""
        if self.added is None or self.existing is None or self.deleted is None:
            return None
        return self.added + self.existing + self.deleted

    @property
    def live(self) -> int | None:
        """How many of its entries are references."""
        return None if self.added is None or self.existing is None else self.added + self.existing


def decode(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    """The distinct files that a manifest's live entries name: data, deletes, and Puffin files of deletion vectors."""
    address = source.location.raw
    if source.size_bytes is not None and len(data) != source.size_bytes:
        raise Unreadable(address, f"it has {len(data)} bytes, its manifest list records {source.size_bytes}")
    entries = _read(address, data, _ENTRY_FIELDS)
    if source.entries is not None and entries.num_rows != source.entries:
        raise Unreadable(address, f"it has {entries.num_rows} entries, its manifest list records {source.entries}")
    status, live = entries.column("status"), entries.column("path")
    statuses = set(status.unique().to_pylist())
    if not statuses <= _STATUSES:
        raise Unreadable(address, "an entry has a status other than existing, added or deleted")
    if _DELETED in statuses:
        live = live.filter(pc.not_equal(status, pa.scalar(_DELETED, status.type)))
    return pa.RecordBatch.from_arrays([live.unique()], schema=REFERENCE_SCHEMA)


def decode_list(address: str, data: bytes, summary: Mapping[str, str]) -> tuple[ManifestRow, ...]:
    """Every manifest that a manifest list names, checked against the summary of its snapshot."""
    table = _read(address, data, _LIST_FIELDS)
    table = table.set_column(2, "content", pc.fill_null(table.column("content"), 0))
    table = table.set_column(6, "encrypted", pc.is_valid(table.column("key_metadata")))
    rows = tuple(map(ManifestRow._make, zip(*(column.to_pylist() for column in table.columns), strict=True)))
    for row in rows:
        if row.content not in (0, 1):
            raise Unreadable(address, f"manifest {row.path} has the unknown content {row.content}")
    _check_complete(address, rows, summary)
    return rows


def _read(address: str, data: bytes, wanted: Mapping[int, pa.Field]) -> pa.Table:
    try:
        return columns.read(data, wanted)
    except (avro.ContainerError, columns.FieldMissing, pa.ArrowException) as exc:
        raise Unreadable(address, str(exc)) from exc


def _check_complete(address: str, rows: tuple[ManifestRow, ...], summary: Mapping[str, str]) -> None:
    """A list cut behind a block looks whole, so it is held against its snapshot's summary.

    Fewer files or manifests than the summary counts: cut off, or a writer that miscounts. We cannot tell, so the
    list is not believed. More: no damage adds rows, while writers do undercount (pyiceberg and iceberg-rust have
    started totals anew in the middle of a history, and totals are summed up from commit to commit), so it is fine.
    Newer Java writers also count manifests; where that number is met exactly, the list is whole whatever the totals
    say (a path that was added twice and deleted once leaves them too high for ever). Java's rewrite of manifests has
    counted those of data only, with the delete manifests behind them in the list.
    """
    manifests = _sum_of(summary, "manifests-created", "manifests-kept")
    if manifests is not None and len(rows) < manifests:
        raise Unreadable(address, f"it names {len(rows)} manifests, its snapshot's summary counts {manifests}")
    unchecked = [content for content in CONTENTS if manifests != len(rows) or _is_uncounted(content, summary)]
    for content in unchecked:
        found = [row.live for row in rows if row.content == content.code]
        if any(live is None for live in found):
            continue
        live = sum(live or 0 for live in found)
        promised = max(_number(summary, content.total) or 0, _number(summary, content.added) or 0)
        if live < promised:
            raise Unreadable(
                address, f"it counts {live} {content.noun} files, its snapshot's summary counts {promised}"
            )


def _is_uncounted(content: Content, summary: Mapping[str, str]) -> bool:
    """May the number of manifests leave these out?"""
    return content.code == _DELETES and _REWRITTEN_ENTRIES in summary


def _sum_of(summary: Mapping[str, str], *names: str) -> int | None:
    numbers = [_number(summary, name) for name in names]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _number(summary: Mapping[str, str], name: str) -> int | None:
    text = summary.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
