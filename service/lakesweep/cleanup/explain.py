"""Say why one file stays or goes: the snapshots, refs and manifests that hold it, or the evidence against it.

Decides nothing of its own: it walks the same references and asks the same `verdict` as a plan does, for one
path. Read only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from lakesweep.cleanup import addresses, guards, verdict, waiting
from lakesweep.cleanup.ports import Clock, Engine, MatchBy, References, Table, TableState
from lakesweep.cleanup.storage_ports import Storage
from lakesweep.model.errors import NotFound, Refused
from lakesweep.model.files import StoredObject, Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef

_HOLDERS_SHOWN = 20
"""A file that a thousand snapshots hold needs no thousand sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on one path, with its evidence as sentences."""

    path: str
    table: TableRef
    verdict: Verdict | None
    """None when storage has no such object."""
    sentences: tuple[str, ...]
    deletable_from: datetime | None = None


@dataclass(kw_only=True)
class _Holders:
    """Sentences for what refers to a file."""

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
        """Walk from the references to the file, then from the file to its age."""
        state = await self.table.load()
        if not any(root.contains(location) for root in state.roots):
            roots = ", ".join(root.raw for root in state.roots)
            raise Refused("outside_root", f"{location} is not inside {self.table.ref}'s roots ({roots})")
        now = self.clock.now()
        expiry = self.table.plan_expiry(state, self.policy, now)
        references = await self.table.references(state, expiry)
        found = await self._holders(location, state, references)
        holders = found.held[:_HOLDERS_SHOWN]
        stored = await self._stat(location)
        if stored is None:
            gone = "storage has no such object" + ("; it is live, so the table is damaged" if holders else "")
            return self._answer(location, None, (gone, *holders))
        if holders:
            return self._answer(location, Verdict.LIVE, tuple(holders))
        return await self._judge(stored, state, expiry, found)

    async def _judge(self, stored: StoredObject, state: TableState, expiry: ExpiryPlan, found: _Holders) -> Explanation:
        grace = waiting.span(self.policy, state)
        cutoff = guards.cutoff(self.policy, grace, self.clock.now(), await self.storage.now())
        kind = state.layout.classify(stored.location.raw)
        judged = verdict.judge(
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
                    _age(stored, f"inside the grace period of {_hours(grace)}: a writer may be about to commit it")
                )
                sentences.extend(filter(None, (waiting.sentence(self.policy, state),)))
            case Verdict.ORPHAN if found.expired:
                going = ", ".join(snapshot.id for snapshot in expiry.expire[:_HOLDERS_SHOWN])
                sentences.append(f"only snapshots that the next run expires refer to it ({going})")
                sentences.extend(found.expired[:_HOLDERS_SHOWN])
            case _:
                sentences.append(_age(stored, f"older than the grace period of {_hours(grace)}"))
        until = stored.modified_at + grace if judged is Verdict.YOUNG and stored.modified_at else None
        return self._answer(stored.location, judged, tuple(sentences), until)

    async def _holders(self, location: Location, state: TableState, references: References) -> _Holders:
        """What holds the file now, what only expiring snapshots hold, and what elsewhere has its name."""
        match_by = state.layout.match_by
        wanted = location.name if match_by is MatchBy.NAME else location.match_key
        found = _Holders()
        for paths, into in ((references.kept, found.held), (references.expired, found.expired)):
            if wanted in addresses.match_key_list(paths, match_by):
                into.extend(await self.table.explain(state, location))
        if _guards_name(location, pa.array(references.kept, pa.string()), state):
            found.elsewhere = "a file that the table's metadata names"
        if wanted in addresses.match_key_list(references.released, match_by):
            return found
        async for source, batch in self.engine.read_references(references.sources):
            paths = batch.column("path")
            if wanted in addresses.match_keys(paths, match_by).to_pylist():
                into = found.held if source.retained else found.expired
                into.append(f"{source.kind} {source.location} names it")
                into.extend(await self.table.explain(state, source.location))
            elif source.retained and _guards_name(location, paths, state):
                found.elsewhere = f"a file that {source.kind} {source.location} names"
        return found

    async def _stat(self, location: Location) -> StoredObject | None:
        try:
            return await self.storage.stat(location)
        except NotFound:
            return None

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
