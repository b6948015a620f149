"""`[tracing]`: where the traces of cycles go."""

from __future__ import annotations

from pydantic import Field

from lakesweep.settings.values import Group


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
