"""Bytes of manifests and manifest lists to what they name. Pure, picklable, the same in threads, processes and Spark.

A row that is not seen is a live file that gets deleted, so nothing is assumed. Every block must be consumed to its last
byte by the rows that it claims. That does not show a cut right behind a block. So a manifest must have the length or
the number of entries that its list records (some writers record one of the two wrongly, but a cut changes both), and a
list must not fall short of what the snapshot's summary counts. Anything else is Unreadable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns
from lakesweep.model.errors import Unreadable
from lakesweep.ports.references import REFERENCE_SCHEMA, TOLERATED, Decode, ReferenceSource

MANIFEST = "manifest"
"""The kind of our only reference source."""

_MAY_BE_ABSENT = ("absent", "tolerated")
"""In the context of a source."""

_SIZES = ("sizes", "recorded")
"""The same: what a manifest records of its files' lengths is wanted too."""
SIZE_BYTES = pa.field("size_bytes", pa.int64())

_STATUS = pa.field("status", pa.int32(), nullable=False)
_PATH = pa.field("path", pa.string(), nullable=False)
_ENTRY_FIELDS = {0: _STATUS, 100: _PATH}
_SIZED_FIELDS = {**_ENTRY_FIELDS, 104: SIZE_BYTES}
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
    length: int | None = None
    content: int = 0
    added: int | None = None
    existing: int | None = None
    deleted: int | None = None
    encrypted: bool = False

    @property
    def entries(self) -> int | None:
        if self.added is None or self.existing is None or self.deleted is None:
            return None
        return self.added + self.existing + self.deleted

    @property
    def live(self) -> int | None:
        return None if self.added is None or self.existing is None else self.added + self.existing


def decode(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    """The distinct files that a manifest's live entries name: data, deletes, and Puffin files of deletion vectors."""
    if _SIZES in source.context:
        return _sized(source, data)
    paths = _live(source, data).column("path").unique()
    if _MAY_BE_ABSENT not in source.context:
        return pa.RecordBatch.from_arrays([paths], schema=REFERENCE_SCHEMA)
    flags = pa.repeat(pa.scalar(value=True), len(paths))
    return pa.RecordBatch.from_arrays([paths, flags], schema=REFERENCE_SCHEMA.append(TOLERATED))


def decoder() -> Decode:
    return decode


def may_be_absent(source: ReferenceSource) -> ReferenceSource:
    """The same source, where what it names stays and yet may be gone: it belongs to no state of the table's own."""
    return replace(source, context=(*source.context, _MAY_BE_ABSENT))


def with_sizes(source: ReferenceSource) -> ReferenceSource:
    return replace(source, context=(*source.context, _SIZES))


def _sized(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    """Each file once. Deletion vectors of one Puffin file agree on its length; where entries do not, nobody knows."""
    live = _live(source, data, _SIZED_FIELDS).select(["path", "size_bytes"])
    found = live.group_by("path").aggregate([("size_bytes", "min"), ("size_bytes", "max")])
    least, most = found.column("size_bytes_min"), found.column("size_bytes_max")
    sizes = pc.if_else(pc.equal(least, most), least, pa.scalar(None, pa.int64()))
    schema = REFERENCE_SCHEMA.append(SIZE_BYTES)
    table = pa.table([found.column("path"), sizes], schema=schema).combine_chunks()
    return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], schema=schema))


def count_live(source: ReferenceSource, data: bytes) -> int:
    found: int = _live(source, data).num_rows
    return found


def _live(source: ReferenceSource, data: bytes, fields: Mapping[int, pa.Field] = _ENTRY_FIELDS) -> pa.Table:
    address = source.location.raw
    live = _read(address, data, fields)
    _check_whole(source, len(data), live.num_rows)
    status = live.column("status")
    statuses = set(status.unique().to_pylist())
    if not statuses <= _STATUSES:
        raise Unreadable(address, "an entry has a status other than existing, added or deleted")
    if _DELETED in statuses:
        live = live.filter(pc.not_equal(status, pa.scalar(_DELETED, status.type)))
    return live


def _check_whole(source: ReferenceSource, length: int, rows: int) -> None:
    """Rewritten and some other writers' manifests have one of the two recorded wrongly."""
    wrong = [
        f"it has {found} {noun}, its manifest list records {recorded}"
        for found, noun, recorded in ((length, "bytes", source.size_bytes), (rows, "entries", source.entries))
        if recorded is not None and found != recorded
    ]
    fits = source.size_bytes == length or source.entries == rows
    if wrong and not fits:
        raise Unreadable(source.location.raw, "; ".join(wrong))


class Shortfall(NamedTuple):
    """A manifest list that counts fewer live files than the totals of its snapshot's summary."""

    content: Content
    found: int
    promised: int

    def why(self) -> str:
        return f"it counts {self.found} {self.content.noun} files, its snapshot's summary counts {self.promised}"


def decode_list(address: str, data: bytes, summary: Mapping[str, str]) -> tuple[ManifestRow, ...]:
    """Every manifest that a manifest list names, checked against the summary of its snapshot."""
    rows, short = decode_counted(address, data, summary)
    if short:
        raise Unreadable(address, short[0].why())
    return rows


def decode_counted(
    address: str, data: bytes, summary: Mapping[str, str]
) -> tuple[tuple[ManifestRow, ...], tuple[Shortfall, ...]]:
    """The same, with what the totals of the summary promise beyond it: those are carried on from commit to commit."""
    table = _read(address, data, _LIST_FIELDS)
    table = table.set_column(2, "content", pc.fill_null(table.column("content"), 0))
    table = table.set_column(6, "encrypted", pc.is_valid(table.column("key_metadata")))
    rows = tuple(map(ManifestRow._make, zip(*(column.to_pylist() for column in table.columns), strict=True)))
    for row in rows:
        if row.content not in (0, 1):
            raise Unreadable(address, f"manifest {row.path} has the unknown content {row.content}")
    return rows, tuple(_shortfalls(address, rows, summary))


def _read(address: str, data: bytes, wanted: Mapping[int, pa.Field]) -> pa.Table:
    try:
        return columns.read(data, wanted)
    except (avro.ContainerError, columns.FieldMissing, pa.ArrowException) as exc:
        raise Unreadable(address, str(exc)) from exc


def _shortfalls(address: str, rows: tuple[ManifestRow, ...], summary: Mapping[str, str]) -> Iterator[Shortfall]:
    """A list that is truncated after a block looks complete, so it is checked against its snapshot's summary. Fewer
    manifests than the summary counts: cut off. Fewer files: cut off, or a writer that miscounts; the list alone cannot
    know. More: no damage adds rows, while writers do undercount (pyiceberg and iceberg-rust have started totals anew in
    the middle of a history, and totals are summed up from commit to commit), so it is fine. Newer Java writers also
    count manifests; where that number is met exactly, the list is whole whatever the totals say (a path that was added
    twice and deleted once leaves them too high for ever). Java's rewrite of manifests has counted those of data only,
    with the delete manifests behind them in the list."""
    manifests = _sum_of(summary, "manifests-created", "manifests-kept")
    if manifests is not None and len(rows) < manifests:
        raise Unreadable(address, f"it names {len(rows)} manifests, its snapshot's summary counts {manifests}")
    for content in (one for one in CONTENTS if manifests != len(rows) or _is_uncounted(one, summary)):
        found = [row.live for row in rows if row.content == content.code]
        if any(live is None for live in found):
            continue
        live = sum(live or 0 for live in found)
        promised = max(_number(summary, content.total) or 0, _number(summary, content.added) or 0)
        if live < promised:
            yield Shortfall(content, live, promised)


def added(content: Content, summary: Mapping[str, str]) -> int:
    """What a snapshot itself added. No commit carries this on to the next."""
    return _number(summary, content.added) or 0


def _is_uncounted(content: Content, summary: Mapping[str, str]) -> bool:
    """May the number of manifests leave these out?"""
    return content.code == _DELETES and _REWRITTEN_ENTRIES in summary


def _sum_of(summary: Mapping[str, str], *names: str) -> int | None:
    numbers = [_number(summary, name) for name in names]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _number(summary: Mapping[str, str], name: str) -> int | None:
    text = summary.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
