"""Every Prometheus series, declared in one place. Names and labels are a promise to dashboards and alerts.

A dry run never counts as deleted: what it would have deleted has series of its own. Series carry the tenant; dataset
and table only where `metrics.table_labels` asks for them, since each table is a new set of series."""

from __future__ import annotations

from collections import Counter as Tallies
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from lakesweep import __version__
from lakesweep.model.files import Tally, Went
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import TableRef

_DURATIONS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400)
_BATCH_SIZES = (1, 10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_RETAINED = (Went.TRASH, Went.VERSIONS)
_REMEMBERED_RUNS = 10_000
"""How many ids of counted runs are kept, so that a run reported twice counts once."""


class Metrics:
    """The series of one process, in their own registry."""

    def __init__(self, *, table_labels: bool = False) -> None:
        self.registry = CollectorRegistry()
        self._table_labels = table_labels
        self._counted: dict[str, None] = {}
        self._latest: dict[TableRef, tuple[int, int]] = {}
        self._expected: set[tuple[str, ...]] = set()
        names = ("tenant", "dataset", "table") if table_labels else ("tenant",)

        def counter(name: str, text: str, *extra: str) -> Counter:
            return Counter(f"lakesweep_{name}", text, (*names, *extra), registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"lakesweep_{name}", text, names, registry=self.registry)

        self.cleanup_runs = counter("cleanup_runs_total", "Finished runs: done, dry_run, refused, failed.", "status")
        self.files_scanned = counter("files_scanned_total", "Files listed, by runs of every kind.")
        self.orphans_identified = counter("orphans_identified_total", "Files found deletable, by runs of every kind.")
        self.snapshots_expired = counter("snapshots_expired_total", "Snapshots expired by a commit.")
        self.files_deleted = counter("files_deleted_total", "Files really deleted.")
        self.bytes_freed = counter("bytes_freed_total", "Bytes of deleted files that are no longer stored.")
        self.bytes_retained = counter(
            "bytes_retained_total", "Bytes of deleted files that are still stored: in the trash, as versions.", "where"
        )
        self.trash_emptied = counter("trash_files_emptied_total", "Files deleted from the trash after trash_hours.")
        self.deletion_failures = counter("deletion_failures_total", "Files that could not be deleted.", "reason")
        self.dry_run_files = counter("dry_run_files_total", "Files that dry runs would have deleted.")
        self.dry_run_bytes = counter("dry_run_bytes_total", "Bytes of the files that dry runs would have deleted.")
        self.tables_skipped = counter("tables_skipped_total", "Runs that cleaned nothing, by reason.", "reason")
        self.last_cleanup = gauge("last_cleanup_timestamp_seconds", "Unix time of the last successful cleanup.")
        self.missing_live_files = gauge("missing_live_files", "Live files missing from storage.")
        self.reclaimable_bytes = gauge("reclaimable_bytes", "Bytes of orphans that are still stored.")
        self.cleanup_duration = self._histogram(
            "cleanup_duration_seconds", "Duration of one run in seconds.", _DURATIONS, names
        )
        self.batch_size = self._histogram("batch_size", "Files per deletion batch.", _BATCH_SIZES, names)
        self.panics = counter("unexpected_errors_total", "Runs that hit an unexpected error in Lakesweep.")
        self._declare_service()
        Info("lakesweep_build", "The version of Lakesweep.", registry=self.registry).info({"version": __version__})

    def _declare_service(self) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"lakesweep_{name}", text, labels, registry=self.registry)

        self.tables_known = gauge("tables_known", "Tables found by the last discovery.", "tenant")
        self.ghost_bytes = gauge(
            "ghost_bytes", "Bytes of former tables that nobody claims, found by the last search.", "tenant"
        )
        self.ghosts = gauge("ghosts", "Former tables that nobody claims, found by the last search.", "tenant")
        self.tables_due = gauge("tables_due", "Tables waiting to run.", "tenant")
        self.tables_running = gauge("tables_running", "Tables this process is working on.", "tenant")
        self.scheduler_step = gauge("scheduler_step_timestamp_seconds", "When the scheduler last ran, Unix time.")
        self.settings_differ = gauge(
            "settings_differ", "Whether another replica runs with other settings, 1 or 0. Normal during a roll-out."
        )
        self.state_up = gauge("state_store_up", "Whether the state store answered when it was last asked, 1 or 0.")
        self.settings_valid = gauge("settings_valid", "Whether the settings file could be read when it last changed.")
        self.settings_reloads = Counter(
            "lakesweep_settings_reloads_total",
            "Reloads of the settings: done, kept (the file is invalid).",
            ("result",),
            registry=self.registry,
        )
        self.loop_lag = self._histogram("event_loop_lag_seconds", "Delay of the event loop in seconds.", _LAGS)
        ProcessCollector(registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(f"lakesweep_{name}", text, labels, buckets=buckets, registry=self.registry)

    def count_ghosts(self, tenant: str, ghosts: Tally) -> None:
        self.ghosts.labels(tenant).set(ghosts.files)
        self.ghost_bytes.labels(tenant).set(ghosts.bytes)

    def expect(self, ref: TableRef) -> None:
        """Start a table's counters at 0: Prometheus sees no increase in a series that begins with its first event."""
        labels = self._labels(ref)
        if labels in self._expected:
            return
        self._expected.add(labels)
        counters = (
            self.files_scanned,
            self.orphans_identified,
            self.snapshots_expired,
            self.files_deleted,
            self.bytes_freed,
            self.dry_run_files,
            self.dry_run_bytes,
            self.panics,
        )
        for counter in counters:
            counter.labels(*labels)
        for where in _RETAINED:
            self.bytes_retained.labels(*labels, where.value)
        for outcome in Outcome:
            self.cleanup_runs.labels(*labels, outcome.value)

    def count_skip(self, ref: TableRef, reason: str) -> None:
        """A table was due but not run, or is never run."""
        self.tables_skipped.labels(*self._labels(ref), reason).inc()

    def count_panic(self, ref: TableRef) -> None:
        self.panics.labels(*self._labels(ref)).inc()

    def count_run(self, run: CleanupRun) -> None:
        """Count a finished run. Reporting the same run again changes nothing."""
        if run.outcome is None:
            raise ValueError(f"run {run.id} has not finished")
        if run.id in self._counted:
            return
        self._counted[run.id] = None
        if len(self._counted) > _REMEMBERED_RUNS:
            del self._counted[next(iter(self._counted))]
        labels = self._labels(run.table)
        self.cleanup_runs.labels(*labels, run.outcome.value).inc()
        if run.finished_at is not None:
            self.cleanup_duration.labels(*labels).observe((run.finished_at - run.started_at).total_seconds())
        if run.outcome in (Outcome.REFUSED, Outcome.FAILED):
            self.tables_skipped.labels(*labels, run.refusal.code if run.refusal else run.outcome.value).inc()
        self._count_plan(run, labels)
        self._count_deletion(run, labels)

    def count_emptied(self, run: CleanupRun) -> None:
        """Count a run that emptied a trash. Its bytes are freed only now; its files were counted when moved."""
        labels = self._labels(run.table)
        self.trash_emptied.labels(*labels).inc(run.deletion.deleted.files)
        self._count_freed(run, labels)

    def count_batch(self, ref: TableRef, files: int) -> None:
        self.batch_size.labels(*self._labels(ref)).observe(files)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _count_plan(self, run: CleanupRun, labels: tuple[str, ...]) -> None:
        if run.plan is None:
            return
        self.files_scanned.labels(*labels).inc(sum(run.plan.verdicts.values(), Tally()).files)
        self.orphans_identified.labels(*labels).inc(run.plan.candidates.files)
        if run.outcome is Outcome.DRY_RUN:
            self.dry_run_files.labels(*labels).inc(run.plan.candidates.files)
            self.dry_run_bytes.labels(*labels).inc(run.plan.candidates.bytes)
        still_stored = max(0, run.plan.candidates.bytes - run.deletion.deleted.bytes)
        self._latest[run.table] = (run.plan.missing_count, still_stored)
        same = [values for ref, values in self._latest.items() if self._labels(ref) == labels]
        self.missing_live_files.labels(*labels).set(sum(missing for missing, _ in same))
        self.reclaimable_bytes.labels(*labels).set(sum(stored for _, stored in same))

    def _count_deletion(self, run: CleanupRun, labels: tuple[str, ...]) -> None:
        self.snapshots_expired.labels(*labels).inc(len(run.expired_snapshots))
        self.files_deleted.labels(*labels).inc(run.deletion.deleted.files)
        self._count_freed(run, labels)
        for where in _RETAINED:
            self.bytes_retained.labels(*labels, where.value).inc(run.deletion.retained_bytes(where))
        if run.outcome is Outcome.DONE and run.finished_at is not None:
            self.last_cleanup.labels(*labels).set(run.finished_at.timestamp())

    def _count_freed(self, run: CleanupRun, labels: tuple[str, ...]) -> None:
        self.bytes_freed.labels(*labels).inc(run.deletion.freed_bytes)
        for reason, count in Tallies(one.kind.value for one in run.deletion.failed).items():
            self.deletion_failures.labels(*labels, reason).inc(count)

    def _labels(self, ref: TableRef) -> tuple[str, ...]:
        return (str(ref.tenant), ref.dataset, ref.name) if self._table_labels else (str(ref.tenant),)
