"""`[notify]`: where the operator is notified of how runs ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakesweep.settings.values import Group

EventName = Literal["refused", "waiting", "missing", "failed", "done"]


class NotifySettings(Group):
    """`[notify]`: a webhook that is notified of how runs ended."""

    url: str | None = Field(
        default=None, pattern=r"^https?://\S+$", json_schema_extra={"format": "http-url"}, repr=False
    )
    """Where CloudEvents 1.0 are posted as JSON, such as https://example.com/hooks/lakesweep. Redirects are not
    followed. By default nobody is notified."""
    secret: str | None = Field(default=None, min_length=24, repr=False)
    """Signs each message as Standard Webhooks do, in the header webhook-signature; a text that begins with whsec_ is
    base64. Give it in the environment, as LAKESWEEP_NOTIFY__SECRET. Without it nothing is signed."""
    events: tuple[EventName, ...] = ("refused", "waiting", "missing", "failed", "done")
    """What is sent: a run was `refused`, is `waiting` for an approval, found live files `missing`, `failed`, or is
    `done` and deleted something."""
    done_above_bytes: int = Field(default=0, ge=0)
    """Bytes that a run must have deleted for `done` to be sent."""
    template: Literal["cloudevents", "slack"] = "cloudevents"
    """Shape of the message: `cloudevents`, or `slack` for incoming webhooks of Slack and compatible services."""
    source: str = Field(default="lakesweep", min_length=1)
    """The `source` of the events: which installation sent them."""
