"""What people and replicas do to the service itself, in a chain of the audit trail of its own: pauses, stops, resumes,
approvals, tokens and changed settings.

What loosens something is recorded before it takes effect, and is refused if it cannot be recorded. What tightens
something takes effect in any case.

The chain also guards against a restored database. A backup does not know the revocations and holds that came after
it, but the chain does: `catch_up` finds the segments that the state store has forgotten and applies them again.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from lakesweep.audit import chain
from lakesweep.audit.chain import Broken, Record, Segment
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon.audit_factory import AuditFactory
from lakesweep.model.errors import LakesweepError, NotFound
from lakesweep.ports.state import Approval, Hold, StateStore

log = structlog.get_logger()

CHAIN = "service events"
"""The chain's name where tables have theirs; no table's label has a space and no slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEvents:
    """Records events, and applies again what a restored database has forgotten."""

    trails: AuditFactory

    @asynccontextmanager
    async def loosening(self, event: str, by: str, **fields: Any) -> AsyncIterator[None]:
        """Recorded first. AuditFailed keeps the change from happening."""
        await self._record(event, by, fields)
        yield

    @asynccontextmanager
    async def tightening(self, event: str, by: str, **fields: Any) -> AsyncIterator[None]:
        """Happens first. A record that cannot be written is logged."""
        yield
        try:
            await self._record(event, by, fields)
        except LakesweepError as exc:
            log.warning("event_not_recorded", what=event, by=by, reason=str(exc))

    async def approved(self, approval: Approval) -> None:
        fields = {"run_id": approval.run_id, "table": approval.table, "digest": approval.digest}
        await self._record("approved", approval.approved_by, {**fields, "expires_at": iso_utc(approval.expires_at)})

    async def _record(self, event: str, by: str, fields: dict[str, Any]) -> None:
        writer = self.trails.chain(CHAIN, uuid.uuid4().hex)
        record = {"record": "event", "event": event, "by": by, **fields}
        await writer.remember(await writer.append(chain.lines([record])))

    async def catch_up(self) -> int:
        """Apply again what stands in the chain behind the point that the state store knows. How many events."""
        head = await self.trails.state.audit_head(CHAIN)
        applied = 0
        async for segment in self._behind(head.last if head else 0):
            for record in segment.records:
                await apply(record, segment.at, self.trails.state)
                applied += 1
        if applied:
            log.warning(
                "events_applied_again",
                events=applied,
                hint="the state store is older than the audit trail: was it restored from a backup?",
            )
        return applied

    async def _behind(self, number: int) -> AsyncIterator[Segment]:
        trails = self.trails
        while True:
            number += 1
            place = chain.segment_place(trails.settings.artifacts, CHAIN, number)
            try:
                data = await trails.adapters.own_storage().read(place)
            except NotFound:
                return
            if not chain.is_signed(data, trails.key):
                continue  # planted: the next one of ours passes over it
            try:
                segment = Segment.decode(data)
            except Broken:
                continue
            if segment.table == CHAIN and segment.number == number:
                yield segment


async def apply(record: Record, at: datetime, state: StateStore) -> None:
    """Only what tightens: a token that was revoked, a scope that was held and not resumed later."""
    match record:
        case {"event": "token_revoked", "token": str(token)}:
            await state.revoke_token(token, at)
        case {"event": "paused" | "stopped", "scope": str(scope), "by": str(by)}:
            admin, end = bool(record.get("by_admin", True)), record.get("ends_at")
            ends_at = datetime.fromisoformat(end) if end else None
            hold = Hold(scope=scope, since=at, by=by, reason=record.get("reason"), by_admin=admin, ends_at=ends_at)
            await state.set_hold(hold)
        case {"event": "resumed", "scope": str(scope)}:
            await state.clear_hold(scope, admin=bool(record.get("by_admin", True)))


def hold_fields(hold: Hold) -> dict[str, Any]:
    return {
        "scope": hold.scope,
        "since": iso_utc(hold.since),
        "reason": hold.reason,
        "by_admin": hold.by_admin,
        "ends_at": iso_utc(hold.ends_at),
    }
