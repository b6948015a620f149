"""Say why one file stays or is deleted: the snapshots, refs and manifests that keep it, or the evidence against it.

Decides nothing itself: it walks the same references and calls the same `verdict` as a plan does, for one path. Read
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from lakesweep.cleanup import addresses, classify, guards, ledger
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.report import iso_utc
from lakesweep.model import run_document
from lakesweep.model.errors import LakesweepError, Refused, StorageError, Unreadable
from lakesweep.model.files import StoredObject, Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.engine import Engine
from lakesweep.ports.references import References
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage, stat_or_none
from lakesweep.ports.table import MatchBy, Table, TableState, TableView

_HOLDERS_SHOWN = 20
"""A file that a thousand snapshots keep does not need a thousand sentences."""
_RUNS = 200


Records = Callable[[str, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on one path, with its evidence as sentences."""

    path: str
    table: TableRef
    verdict: Verdict | None
    """None when storage has no such object."""
    sentences: tuple[str, ...]
    deletable_from: datetime | None = None

    @property
    def document(self) -> run_document.Explanation:
        """`explain --json`, and what the API answers."""
        return {
            "path": self.path,
            "table": self.table.label,
            "verdict": self.verdict.value if self.verdict else None,
            "evidence": list(self.sentences),
            "deletable_from": iso_utc(self.deletable_from),
        }


@dataclass(kw_only=True)
class _Holders:
    held: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    elsewhere: str | None = None


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """What is needed to explain paths of one table."""

    table: Table
    storage: Storage
    engine: Engine
    policy: CleanupPolicy
    clock: Clock

    async def explain(self, location: Location) -> Explanation:
        state = await self.table.load()
        if not any(root.contains(location) for root in state.roots):
            roots = ", ".join(root.raw for root in state.roots)
            raise Refused(RefusalCode.OUTSIDE_ROOT, f"{location} is not inside {self.table.ref}'s roots ({roots})")
        now = self.clock.now()
        expiry = state.plan_expiry(self.policy, now)
        references = await state.references(expiry)
        found = await self._holders(location, state, references)
        holders = found.held[:_HOLDERS_SHOWN]
        stored = await stat_or_none(self.storage, location)
        if stored is None:
            gone = "storage has no such object" + ("; it is live, so the table is damaged" if holders else "")
            return self._answer(location, None, (gone, *holders))
        if holders:
            return self._answer(location, Verdict.LIVE, tuple(holders))
        return await self._judge(stored, state, expiry, found)

    async def _judge(self, stored: StoredObject, state: TableState, expiry: ExpiryPlan, found: _Holders) -> Explanation:
        wait = guards.grace(self.policy, state)
        cutoff = guards.cutoff(self.policy, wait, self.clock.now(), await self.storage.now())
        kind = state.layout.classify(stored.location.raw)
        judged = classify.judge(
            kind,
            expired=bool(found.expired),
            elsewhere=found.elsewhere is not None,
            modified_at=stored.modified_at,
            cutoff=cutoff,
        )
        sentences = [f"no retained snapshot, branch, tag or statistics entry refers to it (head {state.head})"]
        match judged:
            case Verdict.FOREIGN if found.elsewhere:
                sentences.append(f"{found.elsewhere} outside the table's roots is live and has its name: never deleted")
            case Verdict.FOREIGN:
                sentences.append("its name is not one that the format writes: reported, never deleted")
            case Verdict.RESERVED:
                sentences.append("its name is reserved (hidden, or kept by the format): never deleted")
            case Verdict.YOUNG:
                sentences.append(
                    _age(stored, f"inside the grace period of {_hours(wait)}: a writer may be about to commit it")
                )
                sentences.extend(filter(None, (guards.grace_sentence(self.policy, state),)))
            case Verdict.ORPHAN if found.expired:
                going = ", ".join(snapshot.id for snapshot in expiry.expire[:_HOLDERS_SHOWN])
                sentences.append(f"only snapshots that the next run expires refer to it ({going})")
                sentences.extend(found.expired[:_HOLDERS_SHOWN])
            case _:
                sentences.append(_age(stored, f"older than the grace period of {_hours(wait)}"))
        until = stored.modified_at + wait if judged is Verdict.YOUNG and stored.modified_at else None
        return self._answer(stored.location, judged, tuple(sentences), until)

    async def _holders(self, location: Location, state: TableView, references: References) -> _Holders:
        """What holds the file now, what only expiring snapshots hold, and what elsewhere has its name."""
        match_by = state.layout.match_by
        wanted = location.name if match_by is MatchBy.NAME else location.match_key
        found = _Holders()
        for paths, into in ((references.kept, found.held), (references.expired, found.expired)):
            if wanted in addresses.match_key_list(paths, match_by):
                into.extend(await state.explain(location))
        if _guards_name(location, pa.array(references.kept, pa.string()), state):
            found.elsewhere = "a file that the table's metadata names"
        if wanted in addresses.match_key_list(references.released, match_by):
            return found
        async for source, batch in self.engine.read_references(references.sources):
            paths = batch.column("path")
            if wanted in addresses.match_keys(paths, match_by).to_pylist():
                into = found.held if source.retained else found.expired
                into.append(f"{source.kind} {source.location} names it")
                into.extend(await state.explain(source.location))
            elif source.retained and _guards_name(location, paths, state):
                found.elsewhere = f"a file that {source.kind} {source.location} names"
        return found

    def _answer(
        self, location: Location, judged: Verdict | None, sentences: tuple[str, ...], until: datetime | None = None
    ) -> Explanation:
        return Explanation(
            path=location.raw, table=self.table.ref, verdict=judged, sentences=sentences, deletable_from=until
        )


def _guards_name(location: Location, retained: pa.Array, state: TableState) -> bool:
    """Does one of these references keep whatever has this file's name?"""
    placed = addresses.place(retained, addresses.Role.READ, state.layout.match_by, state.roots)
    return location.name in placed.column("guarded_name").to_pylist()


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):g} h"


def _age(stored: StoredObject, what: str) -> str:
    if stored.modified_at is None:
        return "its age is unknown, so it stays"
    return f"last modified {stored.modified_at:%Y-%m-%d %H:%M} UTC, {what}"


async def with_confirmation(
    explanation: Explanation, wait: timedelta, state: StateStore, artifacts: Artifacts, now: datetime
) -> Explanation:
    """What `confirm_after_hours` adds: since when the ledger has the file, and how long it waits. An orphan that was
    not seen for long enough is kept for now, and the explanation says so."""
    if explanation.verdict is not Verdict.ORPHAN or not wait:
        return explanation
    seen = await _first_seen(state, artifacts, explanation.table.label, explanation.path)
    if seen is None:
        sentence = f"no successful run has seen it unreferenced; it waits for {wait} from the first one that does"
        return replace(explanation, verdict=Verdict.YOUNG, sentences=(*explanation.sentences, sentence))
    first = f"first seen unreferenced by a run at {seen:%Y-%m-%d %H:%M} UTC"
    if seen + wait <= now:
        return replace(explanation, sentences=(*explanation.sentences, first))
    return replace(
        explanation,
        verdict=Verdict.YOUNG,
        sentences=(*explanation.sentences, f"{first}; confirm_after_hours keeps it for {wait} from then"),
        deletable_from=seen + wait,
    )


async def _first_seen(state: StateStore, artifacts: Artifacts, table: str, path: str) -> datetime | None:
    header = await state.get_ledger(table)
    if header is None or not header.rows_path:
        return None
    try:
        async with artifacts.opened(header.rows_path) as rows:
            await asyncio.to_thread(ledger.check_digest, rows, header.rows_path)
            return await asyncio.to_thread(ledger.first_seen, rows, path)
    except (Unreadable, StorageError, OSError):
        return None  # a ledger that cannot be read counts as empty


async def with_restores(explanation: Explanation, state: StateStore, records: Records) -> Explanation:
    """The same with a sentence for every restore that brought it back, the newest first."""
    added = [
        sentence
        for run in await state.list_runs(table=explanation.table.label, limit=_RUNS)
        if run["restored"] is not None
        async for sentence in _restores(records, run["run_id"], run["restored"]["run_id"], explanation)
    ]
    return replace(explanation, sentences=(*explanation.sentences, *added)) if added else explanation


async def _restores(records: Records, run_id: str, of: str, explanation: Explanation) -> AsyncIterator[str]:
    who = "somebody"
    try:
        async with aclosing(records(run_id, explanation.table.label)) as found:
            async for segment, record in found:
                if record["record"] == "begin":
                    who = record["trigger"]["who"]
                elif record["record"] == "restored" and record["path"] == explanation.path:
                    when = f"{segment.at:%Y-%m-%d %H:%M} UTC"
                    yield f"restored on {when} by {who}: run {of} had deleted it, run {run_id} restored it"
    except LakesweepError as exc:
        yield f"run {run_id} restored files, but its audit trail cannot be read ({exc})"
