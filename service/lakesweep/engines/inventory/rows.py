"""One data file of an inventory: bytes to rows of a listing. Pure; it runs in threads and in Spark workers.

Everything that a listing would not show is left out: what is outside the roots, directory markers, old versions and
delete markers, and what is newer than the inventory itself. Anything that cannot be read for certain raises Unreadable
with the file's address: an incomplete list must not look complete.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lakesweep.cleanup import addresses
from lakesweep.engines.inventory.lists import DataFile, FileList, Kind, md5
from lakesweep.formats import bounds, columnar
from lakesweep.model.errors import Indeterminate, Unreadable
from lakesweep.model.location import DOT_SEGMENT, Location
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.storage.key_encoding import decoded_keys

_CSV_BLOCK_BYTES = 1024 * 1024
_TIME = LISTING_SCHEMA.field("modified_at").type

_NAMES = {
    Kind.S3_CSV: ("Key", "Size", "LastModifiedDate", "ETag", "IsLatest", "IsDeleteMarker"),
    Kind.S3_PARQUET: ("key", "size", "last_modified_date", "e_tag", "is_latest", "is_delete_marker"),
    Kind.PLAIN_PARQUET: ("path", "size", "last_modified", "etag", "is_latest", "is_delete_marker"),
}
"""Columns by meaning. Address, size and time are required; etag and the two version columns are optional."""
_REQUIRED = 3


def read(source: FileList, file: DataFile, data: bytes, roots: Sequence[Location]) -> Iterator[pa.RecordBatch]:
    """The rows of one data file that lie below the roots, as LISTING_SCHEMA."""
    _check_bytes(file, data)
    try:
        for batch in _raw(source, file, data):
            yield _listed(source, batch, roots)
    except Unreadable:
        raise
    except (pa.ArrowException, OSError, EOFError, zlib.error, ValueError, Indeterminate) as exc:
        raise Unreadable(file.location.raw, f"it cannot be used as an inventory: {exc}") from exc


def _check_bytes(file: DataFile, data: bytes) -> None:
    if file.size_bytes is not None and len(data) != file.size_bytes:
        raise Unreadable(file.location.raw, f"it has {len(data)} bytes, the inventory says {file.size_bytes}")
    if file.md5 is not None and md5(data) != file.md5:
        raise Unreadable(file.location.raw, "its MD5 checksum does not match the inventory")


def _raw(source: FileList, file: DataFile, data: bytes) -> Iterator[pa.RecordBatch]:
    """Batches with only the columns that matter, renamed to those of a listing."""
    if source.kind is Kind.S3_CSV:
        yield from _csv(data, source.columns, _wanted(source.kind, source.columns, file))
        return
    with columnar.opened(data) as parquet:
        wanted = _wanted(source.kind, parquet.schema.names, file)
        yield from parquet.batches(wanted, at_most=bounds.expansion(len(data)))


def _wanted(kind: Kind, present: Sequence[str], file: DataFile) -> list[str]:
    names = _NAMES[kind]
    if missing := [name for name in names[:_REQUIRED] if name not in present]:
        raise Unreadable(file.location.raw, f"it has no column {', '.join(missing)}")
    return [name for name in names if name in present]


def _csv(data: bytes, columns: Sequence[str], wanted: list[str]) -> Iterator[pa.RecordBatch]:
    # Decompressed by Python's own reader: it notices a truncated stream.
    with gzip.open(io.BytesIO(data)) as plain:
        if not plain.peek(1):
            return
        texts = dict.fromkeys(columns, pa.string())
        with pacsv.open_csv(
            plain,
            read_options=pacsv.ReadOptions(column_names=list(columns), block_size=_CSV_BLOCK_BYTES),
            convert_options=pacsv.ConvertOptions(column_types=texts, include_columns=wanted, strings_can_be_null=False),
        ) as reader:
            yield from reader


def _listed(source: FileList, batch: pa.RecordBatch, roots: Sequence[Location]) -> pa.RecordBatch:
    """The rows that a listing of the roots would show, as far as the inventory knows."""
    address, size, modified, etag, latest, marker = _NAMES[source.kind]
    batch = _where(batch, latest, wanted=True)
    batch = _where(batch, marker, wanted=False)
    paths = _paths(source, batch.column(address))
    inside = _below(paths, roots)
    batch, paths = batch.filter(inside), paths.filter(inside)
    times = _times(batch.column(modified))
    etags = batch.column(etag) if etag in batch.schema.names else pa.nulls(len(paths), pa.string())
    listed = pa.RecordBatch.from_arrays(
        [paths, _sizes(batch.column(size)), times, _etags(etags)], schema=LISTING_SCHEMA
    )
    newer = pc.greater(times, pa.scalar(source.created_at, _TIME))
    return listed.filter(pc.invert(pc.fill_null(newer, False)))


def _where(batch: pa.RecordBatch, name: str, *, wanted: bool) -> pa.RecordBatch:
    """Rows whose flag, if the column exists, does not exclude them."""
    if name not in batch.schema.names:
        return batch
    flag = batch.column(name).cast(pa.bool_())
    return batch.filter(pc.fill_null(flag if wanted else pc.invert(flag), True))


def _paths(source: FileList, texts: pa.Array) -> pa.Array:
    """Full addresses, spelled as a listing spells them."""
    if texts.null_count:
        raise ValueError("a row has no address")
    texts = texts.cast(pa.string())
    if source.kind is Kind.PLAIN_PARQUET:
        return addresses.as_listed(texts)
    # A key that was decoded wrongly would name no object, or another one, whose size and time are compared before
    # anything is deleted.
    keys = decoded_keys(texts) if source.kind is Kind.S3_CSV else texts
    return pc.binary_join_element_wise(pa.scalar(source.store), keys, pa.scalar(""))


def _below(paths: pa.Array, roots: Sequence[Location]) -> pa.Array:
    """Below one of the roots, not a directory marker, and without dot segments, which may lead out again."""
    inside = pa.repeat(pa.scalar(False), len(paths))
    for root in roots:
        inside = pc.or_(inside, pc.starts_with(paths, root.as_directory().raw))
    inside = pc.and_not(inside, pc.ends_with(paths, "/"))
    return pc.and_not(inside, pc.match_substring_regex(paths, DOT_SEGMENT))


def _sizes(values: pa.Array) -> pa.Array:
    sizes = values.cast(pa.int64())
    if sizes.null_count or pc.any(pc.less(sizes, 0)).as_py():
        raise ValueError("a row has no size")
    return sizes


def _times(values: pa.Array) -> pa.Array:
    """Rounded up: an object may look a millisecond younger than it is, never older. Null is unknown, hence kept."""
    if pa.types.is_string(values.type):
        values = values.cast(pa.timestamp("us", tz="UTC"))
    if not pa.types.is_timestamp(values.type):
        raise ValueError(f"the modification time is stored as {values.type}, not as a time")
    if values.type.tz is None:
        values = values.cast(pa.timestamp(values.type.unit, tz="UTC"))
    return pc.ceil_temporal(values, unit="millisecond").cast(_TIME)


def _etags(values: pa.Array) -> pa.Array:
    texts = pc.utf8_trim(values.cast(pa.string()), characters='"')
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
