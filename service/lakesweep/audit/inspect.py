"""Read and verify the audit trail: every segment exists, is unchanged and in its place, up to the newest one known.
Damage is a fault; what an interrupted run left open is a remark. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from lakesweep import aio
from lakesweep.audit import chain
from lakesweep.audit.chain import Broken, Record, Segment
from lakesweep.audit.compact import pack_range, unpack
from lakesweep.model.errors import NotFound, UnknownTable, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.state import AuditHeader, StateStore
from lakesweep.ports.storage import Storage

_READ_AHEAD = 16

_RESULTS = ("deleted", "already_gone", "failed", "spared", "not_sent", "restored", "already_there", "not_restored")


@dataclass(kw_only=True)
class Findings:
    """The result of verifying one table's trail."""

    table: str
    segments: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """The trails of all tables in one store."""

    artifacts: Location
    key: bytes
    storage: Storage
    state: StateStore
    anchor: Location | None = None
    _packs: dict[str, dict[int, str]] = field(init=False, default_factory=dict)
    """By directory: the pack of each packed segment."""
    _opened: dict[str, Any] = field(init=False, default_factory=dict)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def verify(self, table: str | None = None) -> AsyncGenerator[Findings, None]:
        """Check one table's trail, or all of them by name. Raises UnknownTable if there is nothing to check."""
        stored = await self._stored(table)
        known = {table} if table else await self.state.audited_tables()
        tables = sorted({*stored, *known})
        for name in tables:
            head = await self.state.audit_head(name)
            if table and head is None and not stored.get(name):
                raise UnknownTable(f"there are no audit records of {table!r}")
            yield await self._verify(name, stored.get(name, []), head)

    async def unpacked(self, table: str) -> list[int]:
        names = [name async for _, name in self._names(chain.directory(self.artifacts, table))]
        return sorted(number for number in map(chain.segment_number, names) if number is not None)

    async def records(self, run_id: str, table: str | None = None) -> AsyncGenerator[tuple[Segment, Record], None]:
        """The records of one run in order. With `table` they are found without the state store."""
        header = await self.state.get_audit(run_id)
        if header is None and table is None:
            raise UnknownTable(f"there are no audit records of run {run_id!r}")
        label = header.table if header else table or ""
        numbers: Sequence[int] = (
            range(header.first, header.last + 1) if header else (await self._stored(label)).get(label, [])
        )
        async for number, data in self._read(label, numbers):
            segment = self._decoded(label, number, data)
            if segment.run_id == run_id:
                for record in segment.records:
                    yield segment, record

    async def _verify(self, table: str, stored: Sequence[int], head: AuditHeader | None) -> Findings:
        findings = Findings(table=table)
        last = max(stored[-1] if stored else 0, head.last if head else 0)
        walk = _Chain(findings, self.key)
        anchored = await self._anchored(table)
        last = max(last, *anchored, 0)
        async for number, data in self._read(table, range(1, last + 1)):
            walk.see(number, data)
            if data is not None and number in anchored and anchored[number] != {chain.digest(data)}:
                findings.faults.append(f"segment {number} is not the one that was anchored")
            if head and number == head.last and data is not None and chain.digest(data) != head.digest:
                findings.faults.append(f"segment {number} is not the one that the state store remembers")
        walk.close()
        return findings

    async def _anchored(self, table: str) -> dict[int, set[str]]:
        """Anchored digests of segments, by number."""
        if self.anchor is None:
            return {}
        found: dict[int, set[str]] = {}
        async for _, name in self._names(chain.directory(self.anchor, table)):
            number, _, digest = name.partition("-")
            if number.isdecimal() and digest:
                found.setdefault(int(number), set()).add(digest)
        return found

    async def _names(self, place: Location) -> AsyncGenerator[tuple[str, str], None]:
        """Directory and name of every object below a place."""
        async with aclosing(self.storage.list(place)) as batches:
            async for batch in batches:
                for path in batch.column("path").to_pylist():
                    directory, _, name = path.rpartition("/")
                    yield directory, name

    def _decoded(self, table: str, number: int, data: bytes | None) -> Segment:
        place = chain.segment_place(self.artifacts, table, number).raw
        if data is None:
            raise Unreadable(place, "this segment of the audit trail is missing")
        try:
            return Segment.decode(data)
        except Broken as exc:
            raise Unreadable(place, str(exc)) from exc

    async def _stored(self, table: str | None) -> dict[str, list[int]]:
        """Numbers of the existing segments, ascending, by table."""
        place = chain.directory(self.artifacts, table) if table else self.artifacts.join("audit")
        found: dict[str, set[int]] = {}
        async for directory, name in self._names(place):
            number = chain.segment_number(name)
            if number is not None:
                found.setdefault(directory, set()).add(number)
            elif (packed := pack_range(name)) is not None:
                found.setdefault(directory, set()).update(packed)
                self._packs.setdefault(directory, {}).update(dict.fromkeys(packed, name))
        return {table or await self._table_in(place): sorted(numbers) for place, numbers in found.items()}

    async def _table_in(self, place: str) -> str:
        """The table of a directory. Taken from a segment, if what it says matches the directory."""
        directory = Location.parse(place)
        try:
            first = await self._segment_in(directory, 1)
            claimed = Segment.decode(first).table if first is not None else ""
        except Broken:
            claimed = ""
        if claimed and chain.directory(self.artifacts, claimed) == directory:
            return claimed
        return chain.table_at(self.artifacts, directory)

    async def _read(self, table: str, numbers: Sequence[int]) -> AsyncGenerator[tuple[int, bytes | None], None]:
        """Segments in order, with some read ahead; None for a missing one."""
        directory = chain.directory(self.artifacts, table)
        for start in range(0, len(numbers), _READ_AHEAD):
            some = numbers[start : start + _READ_AHEAD]
            read = await aio.together(self._segment_in(directory, number) for number in some)
            for number, data in zip(some, read, strict=True):
                yield number, data

    async def _segment_in(self, directory: Location, number: int) -> bytes | None:
        try:
            return await self.storage.read(directory.join(chain.segment_name(number)))
        except NotFound:
            return await self._packed(directory, number)

    async def _packed(self, directory: Location, number: int) -> bytes | None:
        """A segment from its pack, if it is in one. The pack is read once for concurrent requests."""
        async with self._lock:
            if directory.raw not in self._packs:
                self._packs[directory.raw] = await self._packs_in(directory)
            name = self._packs[directory.raw].get(number)
            if name is None:
                return None
            place = directory.join(name)
            if self._opened.get("place") != place.raw:  # segments are requested in order: keeping one pack is enough
                data = await asyncio.to_thread(unpack, await self.storage.read(place))
                self._opened.update(place=place.raw, segments=data)
            held: dict[int, bytes] = self._opened["segments"]
            return held.get(number)

    async def _packs_in(self, directory: Location) -> dict[int, str]:
        found: dict[int, str] = {}
        async for _, name in self._names(directory):
            found.update(dict.fromkeys(pack_range(name) or (), name))
        return found


_OTHER_KEY = "it is signed with another key: somebody forged it, or the state store or installation_key was replaced"
_UNSIGNED = "it is not signed: this installation did not write it"
_FOREIGN = frozenset({_OTHER_KEY, _UNSIGNED})


class _Chain:
    def __init__(self, findings: Findings, key: bytes) -> None:
        self._findings = findings
        self._key = key
        self._ours = False
        """Was there a segment with our signature? Older versions did not sign."""
        self._previous: str | None = None
        self._gap = False
        self._runs: dict[str, _Run] = {}

    def see(self, number: int, data: bytes | None) -> None:
        if data is None:
            self._findings.faults.append(f"segment {number} is missing")
            self._gap = True
            return
        self._findings.segments += 1
        faults = list(self._faults(number, data))
        self._findings.faults += (f"segment {number}: {fault}" for fault in faults)
        if not (self._ours and _FOREIGN.intersection(faults)):  # the writer skips those too
            self._previous, self._gap = chain.digest(data), False

    def close(self) -> None:
        """At the end of the chain: what did interrupted runs leave open?"""
        self._findings.runs = len(self._runs)
        for run_id, run in self._runs.items():
            self._findings.remarks += (f"run {run_id}: {remark}" for remark in run.remarks())

    def _faults(self, number: int, data: bytes) -> Iterator[str]:
        try:
            segment = Segment.decode(data)
        except Broken as exc:
            yield str(exc)
            return
        if segment.number != number:
            yield f"it is segment {segment.number}, stored under another number"
        if segment.table != self._findings.table:
            yield f"it belongs to {segment.table}"
        if chain.is_signed(data, self._key):
            self._ours = True
        elif chain.claims_signature(data):
            yield _OTHER_KEY
        elif self._ours:
            yield _UNSIGNED
        if not self._gap and segment.previous != self._previous:
            yield "it does not follow the segment before it"
        self._runs.setdefault(segment.run_id, _Run()).see(segment.records)


class _Run:
    def __init__(self) -> None:
        self._ended = False
        self._open: dict[int, None] = {}

    def see(self, records: Iterable[Record]) -> None:
        for record in records:
            kind = record.get("record")
            if kind in ("delete", "restore"):
                self._open[record["batch"]] = None
            elif kind in _RESULTS:
                self._open.pop(record["batch"], None)
            elif kind in ("end", "event"):  # an event of the service has no end of its own
                self._ended = True

    def remarks(self) -> Iterator[str]:
        if not self._ended:
            yield "it has no end record: it was interrupted or is still running"
        for batch in self._open:
            yield f"batch {batch} has no outcome: its files may or may not have been deleted"
