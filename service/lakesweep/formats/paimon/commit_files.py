"""New manifests and lists on their way into a snapshot. Keeps track of everything written, so that it can go again.
Minimum and maximum in statistics are of the values by their type, never of the bytes: readers skip manifests by them,
and a wrong range silently hides rows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from lakesweep.formats.paimon import avro_schemas, manifests
from lakesweep.formats.paimon.avro_schemas import Shape
from lakesweep.formats.paimon.binaryrow import Value, decode_row, encode_row, sort_key
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.schema import FieldType, Kind
from lakesweep.ports.storage import Writer


def list_record(
    name: str, size_bytes: int, entries: Sequence[Mapping[str, Any]], types: Sequence[FieldType], fields: Iterable[str]
) -> dict[str, Any]:
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
    totals = {entry["_TOTAL_BUCKETS"] for entry in entries}
    optional = {
        "_MIN_BUCKET": min(buckets),
        "_MAX_BUCKET": max(buckets),
        "_MIN_LEVEL": min(levels),
        "_MAX_LEVEL": max(levels),
        "_MIN_ROW_ID": low,
        "_MAX_ROW_ID": high,
        "_TOTAL_BUCKETS": totals.pop() if len(totals) == 1 else None,
    }
    present = set(fields)
    return record | {field: value for field, value in optional.items() if field in present}


def partition_stats(partitions: Iterable[bytes], types: Sequence[FieldType]) -> dict[str, Any]:
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
    first = [file.get("_FIRST_ROW_ID") for file in files]
    if not files or any(value is None for value in first):
        return None, None
    starts = [(file["_FIRST_ROW_ID"], file["_ROW_COUNT"]) for file in files]
    return min(start for start, _ in starts), max(start + rows - 1 for start, rows in starts)


class Draft:
    """The files of one commit. Names are new, so nothing existing is ever touched."""

    def __init__(
        self,
        files: TableFiles,
        writer: Writer,
        *,
        types: Sequence[FieldType],
        list_shape: Shape,
        target_size: int,
        compression: str,
    ) -> None:
        self.token = str(uuid.uuid4())
        self.written: list[str] = []
        self._files = files
        self._writer = writer
        self._types = types
        self._list_shape = list_shape
        self._list_fields = avro_schemas.field_names(list_shape)
        self._target_size = target_size
        self._compression = compression

    async def write_list(self, records: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
        return await self._write("manifest-list", self._list_shape, records)

    async def write_index(self, shape: Shape, records: Sequence[Mapping[str, Any]]) -> str:
        name, _ = await self._write("index-manifest", shape, records)
        return name

    async def write_manifests(
        self, shape: Shape, entries: AsyncIterator[Entry], *, bytes_per_entry: float
    ) -> list[dict[str, Any]]:
        """As many manifests of about the target size as needed; their records for a list."""
        per_file = max(1, int(self._target_size / max(1.0, bytes_per_entry)))
        records: list[dict[str, Any]] = []
        waiting: list[Entry] = []
        async for entry in entries:
            waiting.append(entry)
            if len(waiting) >= per_file:
                records.append(await self._write_manifest(shape, waiting))
                waiting = []
        if waiting:
            records.append(await self._write_manifest(shape, waiting))
        return records

    async def _write_manifest(self, shape: Shape, entries: list[Entry]) -> dict[str, Any]:
        name, size = await self._write("manifest", shape, entries)
        return list_record(name, size, entries, self._types, self._list_fields)

    async def _write(self, prefix: str, shape: Shape, records: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
        name = f"{prefix}-{self.token}-{len(self.written)}"
        data = await asyncio.to_thread(avro_schemas.write, shape, records, compression=self._compression)
        location = self._files.manifest(name)
        self.written.append(location.raw)  # before the write: a write that failed may have left something
        await self._writer.put(location, data, create_only=False)  # the name is new, and a retry may repeat it
        return name, len(data)
