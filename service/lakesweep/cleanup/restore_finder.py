"""What a run deleted, where it is now, and whether it can be restored. Reads only; `restore.py` moves.

Entries (the files through which readers open a table) come last, and only if all that they need exists.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.restore_entries import EntryCheck
from lakesweep.model.errors import Refused
from lakesweep.model.files import Candidate, FailedDelete, Tally
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Restored
from lakesweep.model.trash import RunTrash
from lakesweep.ports.state import BatchRecord, PlanHeader
from lakesweep.ports.storage import Storage, stat_or_none

SHOWN = 1000
"""How many files that cannot be brought back are named; the count is always exact."""

_PAGE = 1000
ALREADY_THERE = ""
GONE_FOR_GOOD = 'it was deleted for good: the run had no trash (deletion = "delete")'
NO_VERSIONS = ", and the bucket keeps no versions"
EMPTIED = "it is neither in the trash nor at its own address: the trash was emptied, or somebody removed it"
NO_MARKER = (
    "no delete marker of ours is known for it, but the bucket may still have an older version: "
    "list the versions of this key and remove the delete marker that hides the one you want"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a run deleted, as far as it is known."""

    run_id: str
    root: Location
    """Of its tenant: nothing outside is touched."""
    plan: PlanHeader | None
    batches: Sequence[BatchRecord]
    trash: RunTrash | None
    markers: Mapping[str, str]
    """Version ids of the delete markers that it left, by path."""
    versioned: bool = False
    """May the bucket have older versions of what it took? Then nothing is said to be gone for good."""

    @property
    def why_gone(self) -> str:
        if self.versioned:
            return NO_MARKER
        if self.trash is not None:
            return EMPTIED
        return GONE_FOR_GOOD if self.root.is_local else GONE_FOR_GOOD + NO_VERSIONS


@dataclass(frozen=True, kw_only=True)
class Finder:
    """Finds what a run deleted, and where it is now. Changes nothing."""

    taken: Taken
    patterns: Sequence[str]
    storage: Storage
    artifacts: Artifacts
    another_table: Callable[[], Awaitable[str | None]] | None = None
    """See EntryCheck."""

    async def plan(self) -> Restored:
        result, entrance = Restored(of=self.taken.run_id), EntryBlock(self)
        async for _, batch in self.batches():
            for rows in steps(batch):
                shut = await entrance.why_blocked(rows)
                outcomes = await self.left_out(rows, shut) if shut else [await self._found(row) for row in rows]
                entrance.note(rows, outcomes)
                result = with_outcomes(result, rows, outcomes)
        return result

    async def left_out(self, rows: Sequence[Candidate], why: str) -> list[str | None]:
        """The result for entries that must not be restored."""
        return [ALREADY_THERE if await self.stands(row.path) else why for row in rows]

    async def why_entries_stay(self) -> str | None:
        absent = await self._absent()
        if absent is not None:
            return _needs(absent)
        plan, rows = self.taken.plan, list[Candidate]()
        for batch in self.taken.batches if plan else ():
            some = await self.artifacts.page(plan.rows_path, batch.first, batch.count) if plan else []
            rows += [row for row in some if row.stage < 0]
        check = EntryCheck(storage=self.storage, trash=self.taken.trash, another_table=self.another_table)
        return await check.why_not(rows, self._wanted(rows))

    async def _absent(self) -> str | None:
        """The first file of the plan that is missing and that this restore does not bring back."""
        plan = self.taken.plan
        journalled = sum(batch.count for batch in self.taken.batches)
        if plan is None or (not self.patterns and journalled >= plan.candidates):
            return None
        tried = {at for batch in self.taken.batches for at in range(batch.first, batch.first + batch.count)}
        at = 0
        while rows := await self.artifacts.page(plan.rows_path, at, _PAGE):
            for index, row in enumerate(rows, at):
                selected = index in tried and bool(self._wanted([row]))
                if row.stage >= 0 and not selected and not await self.stands(row.path):
                    return row.path
            at += len(rows)
        return None

    async def batches(self) -> AsyncGenerator[tuple[int, list[Candidate]], None]:
        """The run's batches in the order in which they come back, each of one stage: what readers enter by is last."""
        plan = self.taken.plan
        if plan is None:
            return
        entries: list[BatchRecord] = []
        for batch in self.taken.batches:
            rows = await self.artifacts.page(plan.rows_path, batch.first, batch.count)
            if rows and rows[0].stage < 0:
                entries.append(batch)
            elif wanted := self._wanted(rows):
                yield batch.first, wanted
        for batch in sorted(entries, key=lambda one: one.first, reverse=True):
            rows = await self.artifacts.page(plan.rows_path, batch.first, batch.count)
            if wanted := self._wanted(rows[::-1]):
                yield batch.first, wanted

    async def wants_any(self) -> bool:
        async with aclosing(self.batches()) as batches:
            async for _ in batches:
                return True
        return False

    async def stands(self, path: str) -> bool:
        return await stat_or_none(self.storage, Location.parse(path)) is not None

    async def _found(self, row: Candidate) -> str | None:
        """As `Restore` would report it. Only removing a delete marker shows whether there is a version behind it."""
        if await self.stands(row.path):
            return ALREADY_THERE
        if row.path in self.taken.markers:
            return None
        trash = self.taken.trash
        if trash is not None and await self.stands(trash.address(row.path)):
            return None
        return self.taken.why_gone

    def _wanted(self, rows: Sequence[Candidate]) -> list[Candidate]:
        for row in rows:
            if not self.taken.root.contains(Location.parse(row.path)):
                raise Refused(RefusalCode.OUTSIDE_ROOT, f"{row.path} is outside the tenant's root {self.taken.root}")
        if not self.patterns:
            return list(rows)
        return [row for row in rows if any(matches(row.path, pattern) for pattern in self.patterns)]


class EntryBlock:
    """Blocks entries (files through which readers open a table) once something that they need is missing."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._shut: str | None = None
        self._entries_checked = False

    async def why_blocked(self, rows: Sequence[Candidate]) -> str | None:
        """Why these must not be restored. None for files that are not entries."""
        if rows[0].stage >= 0:
            return None
        if self._shut is None and not self._entries_checked:
            self._shut, self._entries_checked = await self._finder.why_entries_stay(), True
        return self._shut

    def note(self, rows: Sequence[Candidate], outcomes: Sequence[str | None]) -> None:
        """Note the result for some files: the first missing one blocks all entries."""
        lost = next((row.path for row, why in zip(rows, outcomes, strict=True) if why), None)
        if lost is not None and self._shut is None:
            self._shut = _needs(lost)


def matches(path: str, pattern: str) -> bool:
    """A glob for the whole address, for its end from some directory on, or for the name alone."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def why_nothing(result: Restored, *, dry_run: bool = False) -> str | None:
    """Why nothing can be restored, if so: that must not look like a success. A `dry_run` took nothing."""
    if result.restored.files or result.already_there:
        return None
    first = result.examples[0] if result.examples else None
    why = f"{first.path}: {first.why}" if first else "it deleted no file, or no path matches"
    return f"nothing of run {result.of} can be restored: {'it was a dry run' if dry_run else why}"


def refuse_nothing(result: Restored, *, dry_run: bool = False) -> None:
    if why := why_nothing(result, dry_run=dry_run):
        raise Refused(RefusalCode.NOTHING_TO_RESTORE, why)


def steps(rows: list[Candidate]) -> list[list[Candidate]]:
    """Entries are restored one by one, in order; everything else together."""
    return [[row] for row in rows] if rows[0].stage < 0 else [rows]


def _needs(path: str) -> str:
    return f"readers would open the table through it, but {path} is not there: bring that back first"


def with_outcomes(result: Restored, rows: Sequence[Candidate], outcomes: Sequence[str | None]) -> Restored:
    """The result with some more files: each None if it is back, ALREADY_THERE, or why it is not."""
    found = list(zip(rows, outcomes, strict=True))
    back = [row.size_bytes for row, why in found if why is None]
    lost = [FailedDelete(path=row.path, why=why) for row, why in found if why is not None and why != ALREADY_THERE]
    return replace(
        result,
        restored=result.restored + Tally(files=len(back), bytes=sum(back)),
        already_there=result.already_there + len(found) - len(back) - len(lost),
        not_restorable=result.not_restorable + len(lost),
        examples=(*result.examples, *lost)[:SHOWN],
    )
