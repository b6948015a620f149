"""May the entries of a table, the files through which readers open it, be restored: Delta's log files, Paimon's
snapshot files?

Only into the log that they were taken from, and only if they join the existing ones: files of another table's log, a
gap or a number above the newest would break a table that can be read today. Doubt leaves them in the trash.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from lakesweep.model.errors import NotFound
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.trash import RunTrash
from lakesweep.ports.storage import Storage

ANOTHER_TABLE = "the table was created again since the run: its log belongs to another table now"
_DELTA = re.compile(r"(?P<place>.*/_delta_log)/(?P<number>\d{20})(?P<rest>\.[^/]*)")
_PAIMON = re.compile(r"(?P<place>.*)/(?:snapshot/snapshot|changelog/changelog)-(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class _Entry:
    place: str
    number: int
    counts: bool
    """Must the numbers of these have no gap? Delta's checkpoints stand beside the commits."""


@dataclass(frozen=True, kw_only=True)
class EntryCheck:
    """Looks at what is there now. Changes nothing."""

    storage: Storage
    trash: RunTrash | None
    another_table: Callable[[], Awaitable[str | None]] | None
    """Why the table that is there is not the one that was cleaned; None if it is. None as a whole where the run did not
    note which table it cleaned: then the files themselves are compared."""

    async def why_not(self, taken: Sequence[Candidate], wanted: Sequence[Candidate]) -> str | None:
        """Why `wanted`, some of all entries that were `taken`, must not come back."""
        back: dict[str, list[_Entry]] = defaultdict(list)
        for row in wanted:
            if entry := _entry(row.path):
                back[entry.place].append(entry)
        places = {entry.place for row in taken if (entry := _entry(row.path))}
        there = {place: await self._numbers(place) for place in places}
        if any(there.values()) and (why := await self._another(taken)):
            return why
        found = (_gap(place, entries, there[place]) for place, entries in back.items())
        return next((why for why in found if why), None)

    async def _another(self, taken: Sequence[Candidate]) -> str | None:
        if self.another_table is not None:
            return await self.another_table()
        for row in taken:
            if not await self._same(row):
                return f"{ANOTHER_TABLE} ({row.path} has different content)"
        return None

    async def _same(self, row: Candidate) -> bool:
        """Is nothing there, or the file that was taken?"""
        here = Location.parse(row.path)
        try:
            if (await self.storage.stat(here)).size_bytes != row.size_bytes:
                return False
            if self.trash is None:
                return True
            kept = await self.storage.read(Location.parse(self.trash.address(row.path)))
            return await self.storage.read(here) == kept
        except NotFound:
            return True

    async def _numbers(self, place: str) -> set[int]:
        delta = place.endswith("/_delta_log")
        found: set[int] = set()
        for directory in [place] if delta else [f"{place}/snapshot", f"{place}/changelog"]:
            async with aclosing(self.storage.list(Location.parse(directory))) as batches:
                async for batch in batches:
                    entries = (_entry(path) for path in batch.column("path").to_pylist())
                    found |= {one.number for one in entries if one and one.counts and one.place == place}
        return found


def _entry(path: str) -> _Entry | None:
    if found := _DELTA.fullmatch(path):
        return _Entry(found["place"], int(found["number"]), found["rest"] == ".json")
    if found := _PAIMON.fullmatch(path):
        return _Entry(found["place"], int(found["number"]), True)
    return None


def _gap(place: str, entries: Sequence[_Entry], there: set[int]) -> str | None:
    newest = max(there, default=None)
    if newest is not None and (beyond := [one.number for one in entries if one.number > newest]):
        return f"number {max(beyond)} is newer than {newest}, the newest one in {place} now: it would change the table"
    missing = {one.number for one in entries if one.counts} - there
    if not missing:
        return None
    end = max(missing) if newest is None else newest
    whole = missing | there
    hole = next((number for number in range(min(missing), end + 1) if number not in whole), None)
    if hole is None:
        return None
    return f"number {hole} is missing in {place}, and readers would find a gap: first restore the run that deleted it"
