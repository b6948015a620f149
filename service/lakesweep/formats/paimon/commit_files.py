"""New manifests and lists on their way into a snapshot. Keeps track of everything written, so that it can go again."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from lakesweep.formats.paimon import avro_schemas, manifest_stats
from lakesweep.formats.paimon.avro_schemas import Shape
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.schema import FieldType
from lakesweep.ports.storage import Writer


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
        """A manifest list; its name and length."""
        return await self._write("manifest-list", self._list_shape, records)

    async def write_index(self, shape: Shape, records: Sequence[Mapping[str, Any]]) -> str:
        """An index manifest; its name."""
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
        return manifest_stats.list_record(name, size, entries, self._types, self._list_fields)

    async def _write(self, prefix: str, shape: Shape, records: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
        name = f"{prefix}-{self.token}-{len(self.written)}"
        data = await asyncio.to_thread(avro_schemas.write, shape, records, compression=self._compression)
        location = self._files.manifest(name)
        self.written.append(location.raw)  # before the write: a write that failed may have left something
        await self._writer.put(location, data, create_only=False)  # the name is new, and a retry may repeat it
        return name, len(data)
