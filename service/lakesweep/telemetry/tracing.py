"""OpenTelemetry traces of cycles: a span for the cycle, and one for each phase in it. Off unless there is an endpoint.

Tracing decides nothing and delays nothing: spans go into a bounded queue that a separate thread sends, and what a
receiver does not accept is dropped. Spans contain only names, numbers and outcomes: no messages, no files, no secrets.
The libraries of the extra `otel` are imported only if an endpoint is configured."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import structlog

from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import TableRef
from lakesweep.settings.observability import TracingSettings
from lakesweep.settings.secrets import mask_text

EXTRA = "pip install 'lakesweep[otel]'"
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables. Its libraries read these and related ones (headers, certificates, timeouts)
themselves."""
_FLUSH_SECONDS = 1.0
"""Seconds for sending the last spans when the process ends."""

log = structlog.get_logger(__name__)
_Step = TypeVar("_Step", bound="_HasPhase")
_tracers: dict[tuple[str | None, str], Tracing] = {}


class _HasPhase(Protocol):
    @property
    def phase(self) -> str: ...


class Trace:
    """A cycle without tracing."""

    def watching(self, progress: Callable[[_Step], None]) -> Callable[[_Step], None]:
        """The same progress, which also records phases in the trace."""
        return progress

    def ended(self, run: CleanupRun) -> None:
        """How the cycle ended."""


class Tracing:
    """Traces nothing."""

    @contextmanager
    def cycle(self, ref: TableRef, run_id: str) -> Iterator[Trace]:  # noqa: ARG002 - for those who trace
        """Around one cycle over one table."""
        yield Trace()

    async def flush(self) -> None:
        """Send queued spans, for a limited time."""


def tracing_by(settings: TracingSettings) -> Tracing:
    """The tracer of this process's cycles: one for each endpoint, created on first use."""
    if settings.endpoint is None and not any(os.environ.get(name) for name in _VARIABLES):
        return Tracing()
    key = (settings.endpoint, settings.service_name)
    if key not in _tracers:
        _tracers[key] = _made(settings)
    return _tracers[key]


def _made(settings: TracingSettings) -> Tracing:
    try:
        return _OpenTelemetry(settings)
    except ImportError as exc:
        detail = f"an OTLP endpoint is configured, but its client is not installed: {EXTRA}"
        log.warning("tracing_unavailable", detail=detail, missing=exc.name)
    except Exception as exc:  # noqa: BLE001 - whatever the libraries say: tracing is no reason not to clean
        log.warning("tracing_unavailable", detail=f"{type(exc).__name__}: {exc}")
    return Tracing()


class _OpenTelemetry(Tracing):
    """Sends spans by OTLP over HTTP."""

    def __init__(self, settings: TracingSettings) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - only where an endpoint is configured
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # else warnings go to stderr
        base = settings.endpoint and settings.endpoint.rstrip("/").removesuffix("/v1/traces")
        exporter = OTLPSpanExporter(endpoint=base and f"{base}/v1/traces")
        resource = Resource.create({"service.name": settings.service_name})
        # Not shut down at exit: that would wait for a receiver that is down.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lakesweep")
        self._api: Any = trace

    @contextmanager
    def cycle(self, ref: TableRef, run_id: str) -> Iterator[Trace]:
        span = self._tracer.start_span(
            "lakesweep.cycle",
            context=None,
            attributes={
                "lakesweep.tenant": str(ref.tenant),
                "lakesweep.dataset": ref.dataset,
                "lakesweep.table": mask_text(ref.name),  # a bare location's name is its address
                "lakesweep.format": ref.format.value,
                "lakesweep.run": run_id,
            },
        )
        traced = _Traced(self._api, self._tracer, span)
        try:
            yield traced
        finally:
            traced.close()

    async def flush(self) -> None:
        loop = asyncio.get_running_loop()
        sent = loop.create_future()

        def sending_ended() -> None:
            if not sent.done():
                sent.set_result(None)

        def send() -> None:
            with suppress(Exception):  # of a receiver that is down
                self._provider.force_flush()
            with suppress(RuntimeError):  # of a loop that did not wait
                loop.call_soon_threadsafe(sending_ended)

        # A daemon thread: neither the loop nor the process waits for it beyond its time limit.
        threading.Thread(target=send, name="lakesweep traces", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(sent, _FLUSH_SECONDS)


class _Traced(Trace):
    """A span for the cycle, and one for its current phase."""

    def __init__(self, api: Any, tracer: Any, span: Any) -> None:
        self._api, self._tracer, self._span = api, tracer, span
        self._name: str | None = None
        self._phase: Any = None

    def watching(self, progress: Callable[[_Step], None]) -> Callable[[_Step], None]:
        def watched(step: _Step) -> None:
            self._enter(step.phase.partition(":")[0])
            progress(step)

        return watched

    def _enter(self, name: str) -> None:
        if name == self._name:
            return
        self._end_phase()
        around = self._api.set_span_in_context(self._span)
        self._name, self._phase = name, self._tracer.start_span(f"lakesweep.{name}", context=around)

    def ended(self, run: CleanupRun) -> None:
        gone = run.deletion.deleted
        found = run.plan.candidates if run.plan else None
        values = {
            "lakesweep.outcome": run.outcome.value if run.outcome else None,
            "lakesweep.refusal": run.refusal.code if run.refusal else None,
            "lakesweep.engine": run.engine.kind if run.engine else None,
            "lakesweep.snapshots.expired": len(run.expired_snapshots),
            "lakesweep.files.planned": found.files if found else None,
            "lakesweep.bytes.planned": found.bytes if found else None,
            "lakesweep.files.deleted": gone.files,
            "lakesweep.bytes.deleted": gone.bytes,
        }
        self._span.set_attributes({name: value for name, value in values.items() if value is not None})
        if run.outcome is Outcome.FAILED:
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR))

    def close(self) -> None:
        self._end_phase()
        self._span.end()

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._phase.end()
        self._name = self._phase = None
