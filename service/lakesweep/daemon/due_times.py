"""When a table runs next. Pure: schedules, times and jitter in, times out.

A table that was never seen is due at once, so a service that is restarted all the time still cleans. After success the
next cycle comes at the interval or the cron time, after a failure sooner, and each further failure waits longer. A due
time is never later than the current schedule allows: neither a clock that was turned back nor a longer interval from
before may put a table to sleep.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from cronsim import CronSim

from lakesweep.daemon.cadence import Rules
from lakesweep.model import refusal
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.ports.state import DueTime
from lakesweep.retry import doubled

INTERRUPTED = "interrupted"
"""The last outcome of a table whose run ended with its process."""
JITTER = 0.1
"""Share of the waiting time by which tables are spread, so that those that began together do not stay together."""
CRON_JITTER_AT_MOST = timedelta(minutes=5)
FIRST_RETRY = timedelta(minutes=1)
"""After the first failure; doubled by each further one, never above the interval."""
FIRST_RETRY_SHARE = 0.25
"""Of the interval, where that is less than FIRST_RETRY: a retry comes sooner than the next cycle would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When one table's cycles begin."""

    interval: timedelta
    """With an adaptive cadence the longest wait."""
    cron: str | None = None
    adaptive: Rules | None = None
    """Given when waits are chosen by what runs find."""

    def after(self, moment: datetime, jitter: float) -> datetime:
        """The next regular cycle after one that ended at `moment`. `jitter` is between 0 and 1."""
        if self.cron is None:
            return moment + self.interval * (1 + JITTER * jitter)
        first, second = self._fires(moment)
        return first + min(CRON_JITTER_AT_MOST, (second - first) * JITTER) * jitter

    def wait(self, moment: datetime) -> timedelta:
        """About how long a regular wait is at that time."""
        if self.cron is None:
            return self.interval
        first, second = self._fires(moment)
        return second - first

    def _fires(self, moment: datetime) -> tuple[datetime, datetime]:
        fires = CronSim(self.cron or "", moment.astimezone(UTC))
        first = next(fires)
        return first, next(fires, first + self.interval)


def due_at(due: DueTime | None, schedule: Schedule, now: datetime) -> datetime:
    """When the table is due, whatever was stored under another clock or another schedule."""
    if due is None:
        return now
    if due.last_finished is None:
        return due.next_due
    if due.last_finished > now:
        return now
    return min(due.next_due, schedule.after(due.last_finished, jitter=1.0))


class Stopped(Enum):
    """Why a run ended early, if a stop was requested."""

    NO = "no"
    SHUTDOWN = "shutdown"
    """The next run continues at once."""
    CANCELLED = "cancelled"
    """A person did not want it, so it waits for the next regular time."""


def after_run(
    run: CleanupRun,
    schedule: Schedule,
    before: DueTime | None,
    now: datetime,
    *,
    jitter: float,
    stopped: Stopped = Stopped.NO,
) -> DueTime:
    outcome = run.outcome.value if run.outcome else None
    failures = before.failures if before else 0
    if stopped is Stopped.SHUTDOWN:
        next_due = now
    elif stopped is Stopped.CANCELLED:
        next_due = schedule.after(now, jitter)
    elif _failed(run):
        failures += 1
        next_due = now + min(_backoff(schedule, failures, now), schedule.after(now, jitter) - now)
    else:
        failures, next_due = 0, schedule.after(now, jitter)
    return DueTime(table=run.table.label, next_due=next_due, last_finished=now, last_outcome=outcome, failures=failures)


def after_panic(
    table: str, schedule: Schedule, before: DueTime | None, now: datetime, outcome: str = "failed"
) -> DueTime:
    """The same for a run that ended in a bug of ours, or whose process was killed (INTERRUPTED), perhaps by what the
    table made it do."""
    failures = (before.failures if before else 0) + 1
    next_due = now + _backoff(schedule, failures, now)
    return DueTime(table=table, next_due=next_due, last_finished=now, last_outcome=outcome, failures=failures)


def _failed(run: CleanupRun) -> bool:
    if run.outcome is Outcome.REFUSED:
        return run.refusal is not None and refusal.consequences(run.refusal.code).tried_again_soon
    return run.outcome not in (Outcome.DONE, Outcome.DRY_RUN)


def _backoff(schedule: Schedule, failures: int, now: datetime) -> timedelta:
    wait = schedule.wait(now)
    first = min(FIRST_RETRY, wait * FIRST_RETRY_SHARE)
    return doubled(failures, first, wait)
