"""The record that a manifest list keeps of a new manifest: counts, ranges, partition statistics. Pure.

Minimum and maximum are of the values by their type, never of the bytes: readers skip manifests by them, and a
wrong range silently hides rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakesweep.formats.paimon import manifests
from lakesweep.formats.paimon.binaryrow import Value, decode_row, encode_row, sort_key
from lakesweep.formats.paimon.schema import FieldType, Kind


def list_record(
    name: str,
    size_bytes: int,
    entries: Sequence[Mapping[str, Any]],
    types: Sequence[FieldType],
    fields: Iterable[str],
) -> dict[str, Any]:
    """The record of a manifest with these entries, with those of the optional fields that the list has."""
    kinds = [entry["_KIND"] for entry in entries]
    files = [entry["_FILE"] for entry in entries]
    record: dict[str, Any] = {
        "_VERSION": manifests.MANIFEST_VERSION,
        "_FILE_NAME": name,
        "_FILE_SIZE": size_bytes,
        "_NUM_ADDED_FILES": kinds.count(manifests.ADD),
        "_NUM_DELETED_FILES": kinds.count(manifests.DELETE),
        "_PARTITION_STATS": partition_stats([entry["_PARTITION"] for entry in entries], types),
        "_SCHEMA_ID": max(file["_SCHEMA_ID"] for file in files),
    }
    buckets, levels = [entry["_BUCKET"] for entry in entries], [file["_LEVEL"] for file in files]
    low, high = _row_ids(files)
    optional = {
        "_MIN_BUCKET": min(buckets),
        "_MAX_BUCKET": max(buckets),
        "_MIN_LEVEL": min(levels),
        "_MAX_LEVEL": max(levels),
        "_MIN_ROW_ID": low,
        "_MAX_ROW_ID": high,
        "_TOTAL_BUCKETS": _only({entry["_TOTAL_BUCKETS"] for entry in entries}),
    }
    present = set(fields)
    return record | {field: value for field, value in optional.items() if field in present}


def partition_stats(partitions: Iterable[bytes], types: Sequence[FieldType]) -> dict[str, Any]:
    """Minimum, maximum and number of nulls of each partition key over all entries."""
    counts: dict[bytes, int] = {}
    for raw in partitions:
        counts[raw] = counts.get(raw, 0) + 1
    rows = [(decode_row(raw, types), count) for raw, count in counts.items()]
    low: list[Value] = []
    high: list[Value] = []
    nulls: list[int] = []
    for index, type_ in enumerate(types):
        values = [row[index] for row, _ in rows if row[index] is not None]
        known = bool(values) and type_.kind is not Kind.BYTES  # no range for bytes, as in Java
        low.append(min(values, key=sort_key) if known else None)
        high.append(max(values, key=sort_key) if known else None)
        nulls.append(sum(count for row, count in rows if row[index] is None))
    return {"_MIN_VALUES": encode_row(low, types), "_MAX_VALUES": encode_row(high, types), "_NULL_COUNTS": nulls}


def _row_ids(files: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    """The range of row ids, where every file has them."""
    first = [file.get("_FIRST_ROW_ID") for file in files]
    if not files or any(value is None for value in first):
        return None, None
    starts = [(file["_FIRST_ROW_ID"], file["_ROW_COUNT"]) for file in files]
    return min(start for start, _ in starts), max(start + rows - 1 for start, rows in starts)


def _only(values: set[int]) -> int | None:
    return next(iter(values)) if len(values) == 1 else None
