"""Each finished run counts once, and a dry run never counts as deleted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.model.errors import FailureKind
from lakesweep.model.files import DeletionReport, FailedDelete, OrphanPlan, Tally, Verdict, Went
from lakesweep.model.run import CleanupRun, Outcome, Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.telemetry.metrics import Metrics

START = datetime(2026, 3, 1, tzinfo=UTC)


def ref(name="orders", tenant="acme") -> TableRef:
    return TableRef(tenant=TenantId(tenant), dataset="prod", name=name, format=FormatName.ICEBERG)


def plan(files=4, size=100, missing=0) -> OrphanPlan:
    return OrphanPlan(
        head="h",
        cutoff=START,
        verdicts={Verdict.LIVE: Tally(files=10, bytes=1000), Verdict.ORPHAN: Tally(files=files, bytes=size)},
        candidates=Tally(files=files, bytes=size),
        by_kind={},
        by_reason={},
        missing=(),
        missing_count=missing,
        references=10,
        matched=10,
        rows_path="p",
        digest="d",
        engine="inprocess",
    )


def finished(identity="r1", outcome=Outcome.DONE, **given) -> CleanupRun:
    base = CleanupRun(
        id=identity,
        table=ref(),
        location="s3://x",
        started_at=START,
        finished_at=START + timedelta(seconds=7),
        outcome=outcome,
        plan=plan(),
    )
    return replace(base, **given)


def value(metrics: Metrics, name: str, tenant="acme", **labels) -> float | None:
    return metrics.registry.get_sample_value(f"lakesweep_{name}", {"tenant": tenant, **labels})


def test_a_real_run_counts_what_it_deleted():
    metrics = Metrics()
    deletion = DeletionReport(deleted=Tally(files=3, bytes=90))
    metrics.count_run(finished(deletion=deletion, expired_snapshots=("1", "2")))
    assert value(metrics, "cleanup_runs_total", status="done") == 1
    assert value(metrics, "files_scanned_total") == 14
    assert value(metrics, "orphans_identified_total") == 4
    assert value(metrics, "files_deleted_total") == 3
    assert value(metrics, "bytes_freed_total") == 90
    assert value(metrics, "snapshots_expired_total") == 2
    assert value(metrics, "reclaimable_bytes") == 10
    assert value(metrics, "last_cleanup_timestamp_seconds") == (START + timedelta(seconds=7)).timestamp()
    assert value(metrics, "cleanup_duration_seconds_sum") == 7
    assert value(metrics, "dry_run_files_total") is None


def test_bytes_that_are_still_stored_are_not_counted_as_freed():
    metrics = Metrics()
    retained = {Went.TRASH: Tally(files=1, bytes=30), Went.VERSIONS: Tally(files=1, bytes=50)}
    metrics.count_run(finished(deletion=DeletionReport(deleted=Tally(files=3, bytes=90), retained=retained)))
    assert value(metrics, "bytes_freed_total") == 10
    assert value(metrics, "bytes_retained_total", where="trash") == 30
    assert value(metrics, "bytes_retained_total", where="versions") == 50


def test_a_dry_run_has_series_of_its_own():
    metrics = Metrics()
    metrics.count_run(finished(outcome=Outcome.DRY_RUN))
    assert value(metrics, "cleanup_runs_total", status="dry_run") == 1
    assert value(metrics, "dry_run_files_total") == 4
    assert value(metrics, "dry_run_bytes_total") == 100
    assert value(metrics, "files_deleted_total") == 0
    assert value(metrics, "bytes_freed_total") == 0
    assert value(metrics, "reclaimable_bytes") == 100
    assert value(metrics, "last_cleanup_timestamp_seconds") is None


def test_the_same_run_counts_once():
    metrics = Metrics()
    run = finished(deletion=DeletionReport(deleted=Tally(files=3, bytes=90)))
    metrics.count_run(run)
    metrics.count_run(run)
    assert value(metrics, "files_deleted_total") == 3
    assert value(metrics, "cleanup_runs_total", status="done") == 1


def test_a_run_that_is_not_finished_is_not_counted():
    with pytest.raises(ValueError, match="has not finished"):
        Metrics().count_run(finished(outcome=None))


def test_a_table_that_was_not_cleaned_says_why():
    metrics = Metrics()
    metrics.count_run(finished("a", Outcome.REFUSED, refusal=Refusal(code="overlap", reason="…")))
    metrics.count_run(finished("b", Outcome.FAILED, plan=None))
    assert value(metrics, "tables_skipped_total", reason="overlap") == 1
    assert value(metrics, "tables_skipped_total", reason="failed") == 1
    assert value(metrics, "cleanup_runs_total", status="failed") == 1


def test_gauges_of_a_tenant_add_up_its_tables_latest_runs():
    metrics = Metrics()
    metrics.count_run(finished("a", Outcome.DRY_RUN, plan=plan(size=100, missing=5)))
    metrics.count_run(finished("b", Outcome.DRY_RUN, table=ref("other"), plan=plan(size=30, missing=1)))
    metrics.count_run(finished("c", Outcome.DRY_RUN, plan=plan(size=40, missing=0)))
    metrics.count_run(finished("d", Outcome.DRY_RUN, table=ref(tenant="globex"), plan=plan(size=1)))
    assert value(metrics, "reclaimable_bytes") == 70
    assert value(metrics, "missing_live_files") == 1
    assert value(metrics, "reclaimable_bytes", tenant="globex") == 1


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failed_delete_counts_under_its_kind_whatever_the_store_said(kind):
    failed = FailedDelete(path="p", why="/lake/503/denied is a link: connection timed out", kind=kind)
    metrics = Metrics()
    metrics.count_run(finished(deletion=DeletionReport(failed=(failed,) * 2)))
    assert value(metrics, "deletion_failures_total", reason=kind.value) == 2


def test_the_kinds_of_failed_deletes_are_a_promise_to_dashboards():
    assert {kind.value for kind in FailureKind} == {"denied", "throttled", "unavailable", "other"}


def test_tables_are_labels_only_where_asked_for():
    metrics = Metrics(table_labels=True)
    metrics.count_run(finished())
    metrics.count_batch(ref(), 250)
    assert value(metrics, "files_scanned_total", dataset="prod", table="orders") == 14
    assert value(metrics, "batch_size_sum", dataset="prod", table="orders") == 250
    assert b'table="orders"' not in _tenant_only().exposition()


def _tenant_only() -> Metrics:
    metrics = Metrics()
    metrics.count_run(finished())
    metrics.count_batch(ref(), 250)
    return metrics


@pytest.mark.parametrize(
    "name",
    [
        "cleanup_runs_total",
        "files_scanned_total",
        "orphans_identified_total",
        "files_deleted_total",
        "bytes_freed_total",
        "bytes_retained_total",
        "deletion_failures_total",
        "last_cleanup_timestamp_seconds",
        "cleanup_duration_seconds",
        "batch_size",
        "tables_skipped_total",
        "missing_live_files",
        "reclaimable_bytes",
        "dry_run_files_total",
        "dry_run_bytes_total",
        "snapshots_expired_total",
        "build_info",
    ],
)
def test_a_promised_series_is_exposed(name):
    assert f"# HELP lakesweep_{name} " in _tenant_only().exposition().decode()


@given(outcomes=st.lists(st.sampled_from(list(Outcome)), max_size=20))
def test_only_what_was_deleted_counts_as_deleted(outcomes):
    metrics = Metrics()
    for number, outcome in enumerate(outcomes):
        deletion = DeletionReport(deleted=Tally(files=1, bytes=1)) if outcome is Outcome.DONE else DeletionReport()
        metrics.count_run(finished(str(number), outcome, deletion=deletion))
    done = outcomes.count(Outcome.DONE)
    assert (value(metrics, "files_deleted_total") or 0) == done
    assert (value(metrics, "bytes_freed_total") or 0) == done
    assert (value(metrics, "dry_run_files_total") or 0) == 4 * outcomes.count(Outcome.DRY_RUN)


def test_counters_of_expected_tables_begin_at_zero():
    metrics = Metrics()
    metrics.expect(ref())
    assert value(metrics, "bytes_freed_total") == 0
    assert value(metrics, "cleanup_runs_total", status="failed") == 0
    metrics.count_run(finished(deletion=DeletionReport(deleted=Tally(files=3, bytes=90))))
    metrics.expect(ref())
    assert value(metrics, "bytes_freed_total") == 90
