"""Notify the operator's webhook of how runs ended: at least once, in order per table, until a day has passed.

A notice is stored with the state before anything is sent, so a restart forgets none. Of each table only the oldest
waiting one is tried, so none overtakes another. After a day without success it is given up and kept as a dead letter,
and the table's next one is tried. An error here never changes a run.
"""

from __future__ import annotations

import asyncio
import http.client
from datetime import timedelta

import structlog

from lakesweep.cleanup import report
from lakesweep.daemon import webhook
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import Notice, StateStore
from lakesweep.settings.observability import NotifySettings

log = structlog.get_logger()

EVERY_SECONDS = 5.0
GIVEN_UP_AFTER = timedelta(days=1)
_FIRST_WAIT = timedelta(seconds=10)
_LONGEST_WAIT = timedelta(hours=1)


class Notifier:
    """For one set of settings. Without an address it does nothing."""

    def __init__(self, settings: NotifySettings, state: StateStore, clock: Clock) -> None:
        self._settings = settings
        self._state = state
        self._clock = clock

    async def note(self, run: CleanupRun) -> None:
        if self._settings.url is None:
            return
        document = report.run_document(run)
        event = webhook.event_of(document, done_above_bytes=self._settings.done_above_bytes)
        if event is None or event not in self._settings.events:
            return
        now = self._clock.now()
        body = webhook.cloud_event(event, document, source=self._settings.source)
        notice = Notice(id=body["id"], table=run.table.label, created_at=now, next_try=now, body=body)
        try:
            await self._state.add_notice(notice)
        except StateError as exc:
            log.warning("notice_not_stored", event_id=notice.id, reason=str(exc))

    async def deliver(self) -> int:
        """Try every table's oldest notice that is due, until none is. Returns how many were delivered."""
        if self._settings.url is None:
            return 0
        delivered = 0
        while due := await self._due():
            answers = await asyncio.gather(*(self._try(notice) for notice in due))
            delivered += sum(answers)
            if not any(answers):
                break
        return delivered

    async def _due(self) -> list[Notice]:
        now = self._clock.now()
        first: dict[str, Notice] = {}
        for notice in await self._state.notices():
            first.setdefault(notice.table, notice)
        return [notice for notice in first.values() if notice.next_try <= now]

    async def _try(self, notice: Notice) -> bool:
        """Whether the table's next notice may have its turn."""
        now = self._clock.now()
        wait = min(_FIRST_WAIT * 2 ** min(notice.attempts, 20), _LONGEST_WAIT)
        if not await self._state.claim_notice(notice, now + wait):
            return False
        why = await self._send(notice)
        if why is None:
            await self._state.end_notice(notice.id)
            return True
        if now - notice.created_at >= GIVEN_UP_AFTER:
            log.error("notice_given_up", event_id=notice.id, about=notice.table, reason=why)
            await self._state.end_notice(notice.id, dead_at=now)
            return True
        log.warning(
            "notice_not_delivered", event_id=notice.id, about=notice.table, attempts=notice.attempts + 1, reason=why
        )
        return False

    async def _send(self, notice: Notice) -> str | None:
        """None when it was taken, else why not."""
        settings = self._settings
        timestamp = int(self._clock.now().timestamp())
        headers, body = webhook.message(
            notice.body, template=settings.template, secret=settings.secret, timestamp=timestamp
        )
        try:
            status = await asyncio.to_thread(webhook.post, str(settings.url), headers, body)
        except (OSError, http.client.HTTPException) as exc:
            return f"{type(exc).__name__}: {exc}"
        return None if 200 <= status < 300 else f"status {status}"
