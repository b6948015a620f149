"""A real Prometheus scrapes the running service, and counts what the audit trail says was done."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from contextlib import ExitStack

import pytest
from tests.servers.daemon import ORPHANS, make_place
from tests.servers.mounts import undeletable
from tests.servers.prometheus import check_metrics, program, scraping

pytestmark = pytest.mark.xdist_group("service")


def test_prometheus_counts_what_the_audit_trail_says(tmp_path):
    program("prometheus")
    place = make_place(tmp_path)
    with place.service() as api, scraping(f"127.0.0.1:{place.metrics_port}", tmp_path) as prometheus:
        api.knows("acme/prod/orders", "acme/prod/returns", "umbrella/prod/virus")
        runs = {table: api.run(table, execute=True) for table in ("acme/prod/orders", "umbrella/prod/virus")}
        assert [run["outcome"] for run in runs.values()] == ["done", "done"]

        audited, freed = Counter(), Counter()
        for table, run in runs.items():
            shown = place.command("audit", "show", run["run_id"], "--json")
            assert shown.returncode == 0, shown.stderr
            for record in json.loads(shown.stdout)["records"]:
                if record["record"] == "deleted":
                    audited[table.split("/")[0]] += 1
                    freed[table.split("/")[0]] += record["size_bytes"]
        assert audited == {"acme": ORPHANS["acme"]["orders"], "umbrella": ORPHANS["umbrella"]["virus"]}

        prometheus.await_total("lakesweep_files_deleted_total", sum(audited.values()))
        assert by_tenant(prometheus.ask("lakesweep_files_deleted_total")) == audited
        assert by_tenant(prometheus.ask("lakesweep_bytes_freed_total")) == freed
        assert prometheus.total('lakesweep_cleanup_runs_total{status="done"}') == 2
        assert prometheus.total("lakesweep_deletion_failures_total") == 0
        assert prometheus.total("up") == 1


def test_prometheus_counts_the_failures_that_the_audit_trail_says(tmp_path):
    program("prometheus")
    place = make_place(tmp_path)
    stuck = sorted(place.lakes["acme"].root.glob("**/orders/data/orphan-*"))[:3]
    with ExitStack() as mounts:
        for path in stuck:
            mounts.enter_context(undeletable(path))
        with place.service() as api, scraping(f"127.0.0.1:{place.metrics_port}", tmp_path) as prometheus:
            api.knows("acme/prod/orders")
            run = api.run("acme/prod/orders", execute=True)
            prometheus.await_total("lakesweep_deletion_failures_total", len(stuck))
            gone = prometheus.total("lakesweep_files_deleted_total")
    records = json.loads(place.command("audit", "show", run["run_id"], "--json").stdout)["records"]
    records_by_kind = Counter(record["record"] for record in records)
    assert run["outcome"] == "failed"
    assert records_by_kind["failed"] == len(stuck)
    assert records_by_kind["deleted"] == gone == ORPHANS["acme"]["orders"] - len(stuck)


def test_promtool_finds_nothing_wrong_with_the_metrics(tmp_path):
    program("promtool")
    place = make_place(tmp_path)
    with place.service() as api:
        api.knows("acme/prod/orders", "umbrella/prod/virus")
        api.run("acme/prod/orders", execute=True)
        with urllib.request.urlopen(f"{place.metrics_url}/metrics", timeout=10) as answer:
            own_port = answer.read()
        api_port = api.ask("GET", "/metrics").text.encode()
    assert b"lakesweep_files_deleted_total" in own_port
    for exposition in (own_port, api_port):
        assert check_metrics(exposition) == ""


def by_tenant(series):
    return {dict(labels)["tenant"]: value for labels, value in series.items() if value}
