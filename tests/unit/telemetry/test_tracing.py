"""Traces of cycles: what an OTLP receiver gets, and that none is ever waited for."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from structlog.testing import capture_logs
from tests.builders.small_lake import small_table, write_local

import lakesweep
from lakesweep.settings.observability import TracingSettings
from lakesweep.telemetry import tracing

SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tracing, "_tracers", {})


@pytest.fixture
def table(tmp_path):
    write_local(tmp_path / "t", small_table("t"))
    return tmp_path / "t"


@contextmanager
def receiver():
    """A small OTLP/HTTP receiver. Yields its address and the requests that it got."""
    trace_service_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, trace_service_pb2.ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


def spans_of(got):
    assert {path for path, _ in got} == {"/v1/traces"}
    return [s for _, one in got for r in one.resource_spans for scope in r.scope_spans for s in scope.spans]


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def patient(monkeypatch):
    """A busy machine may take long to send."""
    monkeypatch.setattr(tracing, "_FLUSH_SECONDS", 60)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["variable", "settings", "settings with the whole path"])
def test_a_cycle_is_a_span_with_its_phases_inside(table, tmp_path, monkeypatch, how):
    with receiver() as (address, got):
        config = None
        if how == "variable":
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        else:
            config = tmp_path / "lakesweep.toml"
            endpoint = address + ("/v1/traces" if "path" in how else "/")
            data = f'[service]\ndata_dir = "{tmp_path}/data"\n[notify]\nsecret = "{SECRET * 2}"\n'
            config.write_text(f'{data}[tracing]\nendpoint = "{endpoint}"\nservice_name = "mine"\n')
        plan = lakesweep.plan(str(table), config=config)
    spans = spans_of(got)
    (cycle,) = [span for span in spans if span.name == "lakesweep.cycle"]
    phases = [span for span in spans if span is not cycle]
    assert {span.name for span in phases} == {"lakesweep.loading", "lakesweep.detecting", "lakesweep.checking"}
    assert all(span.parent_span_id == cycle.span_id and span.trace_id == cycle.trace_id for span in phases)
    assert all(cycle.start_time_unix_nano <= span.start_time_unix_nano for span in phases)
    assert all(span.end_time_unix_nano <= cycle.end_time_unix_nano for span in phases)
    found = attributes(cycle)
    assert found["lakesweep.outcome"] == "dry_run"
    assert (found["lakesweep.format"], found["lakesweep.engine"]) == ("delta", "inprocess")
    assert found["lakesweep.files.planned"] == plan.summary.files == 3
    assert found["lakesweep.bytes.planned"] == plan.summary.bytes
    assert SECRET not in str(got)
    (resource,) = {str(one.resource_spans[0].resource) for _, one in got}
    assert ("lakesweep" if config is None else "mine") in resource


@pytest.mark.usefixtures("patient")
def test_a_refused_table_has_its_code_and_no_text(tmp_path):
    write_local(tmp_path / "t", small_table("t"))
    (log,) = (tmp_path / "t/_delta_log").glob("*0.json")
    log.write_text("{broken")
    with receiver() as (address, got):
        config = tmp_path / "lakesweep.toml"
        config.write_text(f'[service]\ndata_dir = "{tmp_path}/data"\n[tracing]\nendpoint = "{address}"\n')
        plan = lakesweep.plan(str(tmp_path / "t"), config=config)
    (cycle,) = [span for span in spans_of(got) if span.name == "lakesweep.cycle"]
    assert attributes(cycle)["lakesweep.refusal"] == plan.refused.code
    assert cycle.status.code == 2
    assert "broken" not in str(got)


@pytest.mark.parametrize("answers", ["nobody listens", "never answers"])
def test_a_receiver_that_is_down_changes_nothing_and_prints_nothing(table, monkeypatch, capfd, answers):
    pytest.importorskip("opentelemetry.sdk.trace")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if answers == "never answers":
            silent.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        plans = [lakesweep.plan(str(table)) for _ in range(2)]
    assert [plan.summary.files for plan in plans] == [3, 3]
    assert capfd.readouterr() == ("", "")


def test_a_missing_extra_is_named_and_keeps_nothing_back(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with capture_logs() as told:
        traced = tracing.tracing_by(TracingSettings())
        assert tracing.tracing_by(TracingSettings()) is traced
    assert [line["event"] for line in told] == ["tracing_unavailable"]
    assert "lakesweep[otel]" in told[0]["detail"]
    assert lakesweep.plan(str(table)).summary.files == 3


def test_without_an_endpoint_nothing_of_it_is_imported(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    assert type(tracing.tracing_by(TracingSettings())) is tracing.Tracing
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
