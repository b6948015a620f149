"""How the service shows what it does: `[logging]`, `[metrics]`, `[tracing]` and `[notify]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lakesweep.settings.values import Group, Listen

EventName = Literal["refused", "waiting", "missing", "failed", "done"]


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class LoggingSettings(Group):
    """`[logging]`: what is logged to standard error."""

    format: Literal["auto", "json", "console"] = "auto"
    """`json` is one object per line, `console` is for people; `auto` is json for `serve` without a terminal, and
    console for every other command and on a terminal."""
    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    """The least important messages that are still logged: `debug`, `info`, `warning` or `error`. Other libraries log
    warnings and errors only."""


class MetricsSettings(Group):
    """`[metrics]`: what Prometheus scrapes."""

    listen: Listen = "127.0.0.1:9464"
    """host:port of /metrics; in a container 0.0.0.0:9464."""
    table_labels: bool = False
    """Label series with dataset and table too, not only with the tenant. One set of series per table: leave it off
    above some thousand tables."""


class TracingSettings(Group):
    """`[tracing]`: OpenTelemetry traces of cycles, one span for each phase."""

    endpoint: str | None = Field(
        default=None, pattern=r"^https?://\S+$", json_schema_extra={"format": "http-url"}, repr=False
    )
    """Where an OTLP receiver listens for HTTP, such as http://collector:4318. By default what
    OTEL_EXPORTER_OTLP_ENDPOINT says, and without it nothing is traced. Needs the extra `otel`. A receiver that does not
    answer delays no cycle."""
    service_name: str = Field(default="lakesweep", min_length=1)
    """Name of the service in the spans."""


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
