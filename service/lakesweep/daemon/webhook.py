"""What a run's end looks like to a webhook: CloudEvents 1.0 or Slack's shape, signed as Standard Webhooks. Pure but for
`post`.

The address is the operator's setting alone. A redirect is not followed: it would let the receiver choose where a signed
message goes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lakesweep.model import run_document
from lakesweep.model.refusal import consequences
from lakesweep.model.run import Outcome

SECONDS = 10.0
_NAMED = 20
"""Files that a message names of each list; the counts are always whole."""
_SILENT = frozenset({"busy", "held"})
"""Refusals that only say that it is not the time: a person caused them, or another run is under way."""


def event_of(run: run_document.Run, *, done_above_bytes: int) -> str | None:
    """Which event a finished run is, the gravest first; None if nobody needs to hear of it."""
    refused = run["refused"]
    if run["missing"]["count"]:
        return "missing"
    if run["outcome"] is Outcome.FAILED:
        return "failed"
    if refused is not None:
        if refused["code"] in _SILENT:
            return None
        return "waiting" if consequences(refused["code"]).approvable else "refused"
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
    """A text for Slack and those who take its shape. Its own marks are escaped in names."""
    run = event["data"]
    labels = {
        "missing": f"misses {_counted(run['missing']['count'], 'live file')} in storage",
        "waiting": "waits for an approval",
        "refused": "was refused",
        "failed": "failed",
        "done": f"deleted {_counted(run['deleted']['count'], 'file')}, {_counted(run['deleted']['bytes'], 'byte')}",
    }
    kind = str(event["type"]).rpartition(".")[2]
    reason = f": {run['reason']}" if run["reason"] else ""
    text = f"{run['table']} {labels[kind]}{reason} (run {run['run_id']})"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
