"""Notify the operator's webhook of how runs ended: at least once, in order per table, until a day has passed.

A notice is stored with the state before anything is sent, so a restart forgets none. Of each table only the oldest
waiting one is tried, so none overtakes another. After a day without success it is given up and kept as a dead letter,
and the table's next one is tried. An error here never changes a run.

Messages are CloudEvents 1.0 or have Slack's shape, and are signed as Standard Webhooks. The address is the operator's
setting alone. A redirect is not followed: it would let the receiver choose where a signed message goes.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog

from lakesweep.cleanup import report
from lakesweep.model import run_document
from lakesweep.model.errors import StateError
from lakesweep.model.refusal import consequences
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.units import counted
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import Notice, StateStore
from lakesweep.retry import doubled
from lakesweep.settings.observability import NotifySettings

log = structlog.get_logger()

EVERY_SECONDS = 5.0
GIVEN_UP_AFTER = timedelta(days=1)
_FIRST_WAIT = timedelta(seconds=10)
_LONGEST_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Notifier:
    """For one set of settings. Without an address it does nothing."""

    settings: NotifySettings
    state: StateStore
    clock: Clock

    async def note(self, run: CleanupRun) -> None:
        if self.settings.url is None:
            return
        document = report.run_document(run)
        event = event_of(document, done_above_bytes=self.settings.done_above_bytes)
        if event is None or event not in self.settings.events:
            return
        now = self.clock.now()
        body = cloud_event(event, document, source=self.settings.source)
        notice = Notice(id=body["id"], table=run.table.label, created_at=now, next_try=now, body=body)
        try:
            await self.state.add_notice(notice)
        except StateError as exc:
            log.warning("notice_not_stored", event_id=notice.id, reason=str(exc))

    async def deliver(self) -> int:
        """Try every table's oldest notice that is due, until none is. Returns how many were delivered."""
        if self.settings.url is None:
            return 0
        delivered = 0
        while due := await self._due():
            answers = await asyncio.gather(*(self._try(notice) for notice in due))
            delivered += sum(answers)
            if not any(answers):
                break
        return delivered

    async def _due(self) -> list[Notice]:
        now = self.clock.now()
        first: dict[str, Notice] = {}
        for notice in await self.state.notices():
            first.setdefault(notice.table, notice)
        return [notice for notice in first.values() if notice.next_try <= now]

    async def _try(self, notice: Notice) -> bool:
        """Whether the table's next notice may have its turn."""
        now = self.clock.now()
        wait = doubled(notice.attempts + 1, _FIRST_WAIT, _LONGEST_WAIT)
        if not await self.state.claim_notice(notice, now + wait):
            return False
        why = await self._send(notice)
        if why is None:
            await self.state.end_notice(notice.id)
            return True
        if now - notice.created_at >= GIVEN_UP_AFTER:
            log.error("notice_given_up", event_id=notice.id, about=notice.table, reason=why)
            await self.state.end_notice(notice.id, dead_at=now)
            return True
        log.warning(
            "notice_not_delivered", event_id=notice.id, about=notice.table, attempts=notice.attempts + 1, reason=why
        )
        return False

    async def _send(self, notice: Notice) -> str | None:
        """None when it was taken, else why not."""
        settings = self.settings
        timestamp = int(self.clock.now().timestamp())
        headers, body = message(notice.body, template=settings.template, secret=settings.secret, timestamp=timestamp)
        try:
            status = await asyncio.to_thread(post, str(settings.url), headers, body)
        except (OSError, http.client.HTTPException) as exc:
            return f"{type(exc).__name__}: {exc}"
        return None if 200 <= status < 300 else f"status {status}"


SECONDS = 10.0
_NAMED = 20
"""Files that a message names of each list; the counts are always whole."""


def event_of(run: run_document.Run, *, done_above_bytes: int) -> str | None:
    """Which event a finished run is, the most serious first; None if nobody needs to know of it."""
    refused = run["refused"]
    if run["missing"]["count"]:
        return "missing"
    if run["outcome"] is Outcome.FAILED:
        return "failed"
    if refused is not None:
        known = consequences(refused["code"])
        if known.silent:
            return None
        return "waiting" if known.approvable else "refused"
    is_done = run["outcome"] is Outcome.DONE and run["deleted"]["bytes"] >= done_above_bytes
    return "done" if is_done and run["deleted"]["count"] else None


def cloud_event(event: str, run: run_document.Run, *, source: str) -> dict[str, Any]:
    """A CloudEvents 1.0 document. Its id is the same at every try."""
    short: dict[str, Any] = {**run}
    short["failed"] = {**run["failed"], "files": run["failed"]["files"][:_NAMED]}
    short["missing"] = {**run["missing"], "files": run["missing"]["files"][:_NAMED]}
    return {
        "specversion": "1.0",
        "id": f"{run['run_id']}.{event}",
        "source": source,
        "type": f"io.lakesweep.run.{event}",
        "subject": run["table"],
        "time": run["finished_at"],
        "datacontenttype": "application/json",
        "data": short,
    }


def slack_message(event: Mapping[str, Any]) -> dict[str, str]:
    """The text for Slack and for services that accept the same form. Slack's markup characters are escaped in names."""
    run = event["data"]
    labels = {
        "missing": f"has {counted(run['missing']['count'], 'live file')} missing from storage",
        "waiting": "is waiting for approval",
        "refused": "was refused",
        "failed": "failed",
        "done": f"deleted {counted(run['deleted']['count'], 'file')}, {counted(run['deleted']['bytes'], 'byte')}",
    }
    kind = str(event["type"]).rpartition(".")[2]
    reason = f": {run['reason']}" if run["reason"] else ""
    text = f"{run['table']} {labels[kind]}{reason} (run {run['run_id']})"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,…` of Standard Webhooks: HMAC-SHA256 over id, time and body. A secret that begins with whsec_ is base64."""
    key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def message(
    event: Mapping[str, Any], *, template: str, secret: str | None, timestamp: int
) -> tuple[dict[str, str], bytes]:
    is_slack = template == "slack"
    body = json.dumps(slack_message(event) if is_slack else event, default=str).encode()
    headers = {
        "content-type": "application/json" if is_slack else "application/cloudevents+json; charset=utf-8",
        "user-agent": "lakesweep",
        "webhook-id": str(event["id"]),
        "webhook-timestamp": str(timestamp),
    }
    if secret is not None:
        headers["webhook-signature"] = signature(secret, str(event["id"]), timestamp, body)
    return headers, body


def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    """Send it once and return the status. Blocks; raises OSError or HTTPException when there is no answer."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if url.lower().startswith("https:"):
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=SECONDS, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=SECONDS)
    try:
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("POST", path, body=body, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()
