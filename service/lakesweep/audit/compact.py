"""Pack old segments of the audit trail into Parquet files, so that the trail stays small.

A packed segment is the same to the last byte: its lines are rows, and joined they are the segment again. So digests,
signatures and the chain stay valid. A pack is written, read back and compared before its segments are removed. Packing
needs permission to delete below `artifacts`; without it nothing is packed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesweep.audit import chain
from lakesweep.audit.chain import Broken, Segment
from lakesweep.model.errors import AlreadyThere, AuditFailed
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer

PACK_BYTES = 64 * 1024 * 1024
"""A pack is closed when its segments reach this size."""
PACK_SEGMENTS = 2000
"""Or this number."""

_SCHEMA = pa.schema([pa.field("segment", pa.int64(), nullable=False), pa.field("line", pa.binary(), nullable=False)])
_NAME = re.compile(r"packed-(\d{10})-(\d{10})\.parquet")


def pack_range(name: str) -> range | None:
    found = _NAME.fullmatch(name)
    return range(int(found[1]), int(found[2]) + 1) if found else None


def pack(some: dict[int, bytes]) -> bytes:
    lines = {number: data.splitlines(keepends=True) for number, data in some.items()}
    table = pa.table(
        [
            pa.array([number for number, parts in lines.items() for _ in parts], pa.int64()),
            pa.array([line for parts in lines.values() for line in parts], pa.binary()),
        ],
        schema=_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=12, use_dictionary=False)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def unpack(data: bytes) -> dict[int, bytes]:
    """The segments of a pack by number. Raises Broken if it is not one."""
    try:
        table = pq.read_table(pa.BufferReader(data), schema=_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise Broken(f"it is not a pack of segments: {exc}") from exc
    found: dict[int, bytes] = {}
    for number in pc.unique(table.column("segment")).to_pylist():
        rows = table.filter(pc.equal(table.column("segment"), number))
        found[number] = b"".join(rows.column("line").to_pylist())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The result of packing one table's trail."""

    segments: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """Packs the old part of one table's chain, starting at its beginning."""

    artifacts: Location
    key: bytes
    storage: Storage
    writer: Writer
    remove: Callable[[Sequence[str]], Awaitable[None]]

    async def pack(self, table: str, numbers: Sequence[int], before: datetime) -> Packed:
        """Pack those of these unpacked segments that were written before then. The newest segment always stays."""
        done = Packed()
        batch: dict[int, bytes] = {}
        for number in numbers[:-1]:
            data = await self.storage.read(chain.segment_place(self.artifacts, table, number))
            if not self._packable(data, number, before) or (batch and number != max(batch) + 1):
                break
            batch[number] = data
            if len(batch) >= PACK_SEGMENTS or sum(map(len, batch.values())) >= PACK_BYTES:
                done = await self._close(table, batch, done)
                batch = {}
        return await self._close(table, batch, done)

    def _packable(self, data: bytes, number: int, before: datetime) -> bool:
        """Is the segment valid, in its place, and old enough? Any other stays as it is for a person to look at."""
        try:
            segment = Segment.decode(data)
        except Broken:
            return False
        signed = chain.is_signed(data, self.key) or not chain.claims_signature(data)
        return signed and segment.number == number and segment.at < before

    async def _close(self, table: str, batch: dict[int, bytes], done: Packed) -> Packed:
        if not batch:
            return done
        place = chain.directory(self.artifacts, table).join(f"packed-{min(batch):010}-{max(batch):010}.parquet")
        data = await asyncio.to_thread(pack, batch)
        with suppress(AlreadyThere):  # an earlier attempt was interrupted before it removed the segments
            await self.writer.put(place, data, create_only=True)
        stored = await asyncio.to_thread(unpack, await self.storage.read(place))
        if stored != batch:
            raise AuditFailed(f"{place}: the packed file does not match its segments; the segments were kept")
        await self.remove([chain.segment_place(self.artifacts, table, number).raw for number in batch])
        return Packed(
            segments=done.segments + len(batch),
            bytes_before=done.bytes_before + sum(map(len, batch.values())),
            bytes_after=done.bytes_after + len(data),
        )
