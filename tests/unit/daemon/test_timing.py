"""When a table is next looked at."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.daemon import due_times
from lakesweep.daemon.due_times import Schedule, Stopped
from lakesweep.model.run import CleanupRun, Outcome, Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import DueTime

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
REF = TableRef(tenant=TenantId("acme"), dataset="shop", name="orders", format=FormatName.ICEBERG)
DAILY = Schedule(interval=24 * HOUR)
NIGHTLY = Schedule(interval=24 * HOUR, cron="30 2 * * *")

schedules = st.one_of(
    st.builds(Schedule, interval=st.timedeltas(timedelta(seconds=1), timedelta(days=400))),
    st.builds(Schedule, interval=st.just(24 * HOUR), cron=st.sampled_from(["* * * * *", "30 2 * * *", "0 0 1 * *"])),
)
lucks = st.floats(0, 1)
moments = st.integers(1_577_836_800, 2_051_222_400).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


def run(outcome, code=None):
    refusal = Refusal(code=code, reason="because") if code else None
    return CleanupRun(id="r", table=REF, location=None, started_at=NOON, outcome=outcome, refusal=refusal)


def due(next_due, last_finished=None, failures=0):
    return DueTime(table=REF.label, next_due=next_due, last_finished=last_finished, failures=failures)


def test_a_table_never_seen_is_due_at_once():
    assert due_times.due_at(None, DAILY, NOON) == NOON


@given(schedule=schedules, moment=moments, jitter=lucks)
def test_the_next_regular_cycle_is_later_and_at_most_a_tenth_late(schedule, moment, jitter):
    after = schedule.after(moment, jitter)
    assert moment < after
    assert after <= schedule.after(moment, 0) + schedule.wait(moment) * due_times.JITTER


def test_cron_is_read_in_utc_and_spread_by_at_most_five_minutes():
    assert NIGHTLY.after(NOON, 0) == datetime(2026, 5, 2, 2, 30, tzinfo=UTC)
    assert NIGHTLY.after(NOON, 1) == datetime(2026, 5, 2, 2, 35, tzinfo=UTC)


def test_success_waits_for_the_interval_and_forgets_failures():
    after = due_times.after_run(run(Outcome.DONE), DAILY, due(NOON, failures=5), NOON, jitter=0)
    assert (after.next_due, after.failures, after.last_outcome) == (NOON + 24 * HOUR, 0, "done")


@given(schedule=schedules, moment=moments, jitter=lucks, failures=st.integers(0, 50))
def test_failures_are_retried_early_with_growing_pauses(schedule, moment, jitter, failures):
    before = due(moment, failures=failures)
    first = due_times.after_run(run(Outcome.FAILED), schedule, before, moment, jitter=jitter)
    second = due_times.after_run(run(Outcome.FAILED), schedule, first, moment, jitter=jitter)
    assert moment < first.next_due <= second.next_due <= schedule.after(moment, 1.0)
    assert second.failures == failures + 2
    if failures == 0:
        assert first.next_due - moment <= schedule.wait(moment) / 2


def test_backoff_doubles_from_a_minute():
    waits = []
    before = None
    for _ in range(4):
        before = due_times.after_run(run(Outcome.FAILED), DAILY, before, NOON, jitter=0)
        waits.append((before.next_due - NOON) / timedelta(minutes=1))
    assert waits == [1, 2, 4, 8]


@pytest.mark.parametrize("code", ["ceiling_files", "missing_live_files", "overlap"])
def test_a_refusal_waits_for_a_person_and_so_for_the_interval(code):
    after = due_times.after_run(run(Outcome.REFUSED, code), DAILY, None, NOON, jitter=0)
    assert (after.next_due, after.failures) == (NOON + 24 * HOUR, 0)


@pytest.mark.parametrize("code", ["table_changed", "neighbours_unknown"])
def test_a_refusal_that_goes_away_by_itself_is_tried_again_soon(code):
    after = due_times.after_run(run(Outcome.REFUSED, code), DAILY, None, NOON, jitter=0)
    assert after.next_due == NOON + timedelta(minutes=1)


def test_a_run_that_a_shutdown_stopped_is_due_at_once_and_no_failure():
    after = due_times.after_run(
        run(Outcome.FAILED), DAILY, due(NOON, failures=2), NOON, jitter=0, stopped=Stopped.SHUTDOWN
    )
    assert (after.next_due, after.failures) == (NOON, 2)


def test_a_run_that_a_person_cancelled_waits_for_its_regular_time():
    after = due_times.after_run(run(Outcome.FAILED), DAILY, None, NOON, jitter=0, stopped=Stopped.CANCELLED)
    assert (after.next_due, after.failures) == (NOON + 24 * HOUR, 0)


def test_a_bug_counts_as_a_failure():
    after = due_times.after_panic(REF.label, DAILY, due(NOON, failures=1), NOON)
    assert (after.next_due, after.failures) == (NOON + timedelta(minutes=2), 2)


@given(schedule=schedules, last=moments, back=st.timedeltas(timedelta(0), timedelta(days=4000)), jitter=lucks)
def test_no_clock_that_was_set_back_puts_a_table_to_sleep(schedule, last, back, jitter):
    written = due_times.after_run(run(Outcome.DONE), schedule, None, last, jitter=jitter)
    now = last - back
    assert due_times.due_at(written, schedule, now) - now <= schedule.after(now, 1.0) - now + schedule.wait(now)


@given(schedule=schedules, other=schedules, last=moments, jitter=lucks)
def test_a_shorter_schedule_of_today_holds_for_a_time_written_down_yesterday(schedule, other, last, jitter):
    written = due_times.after_run(run(Outcome.DONE), other, None, last, jitter=jitter)
    now = last + timedelta(seconds=1)
    assert due_times.due_at(written, schedule, now) <= schedule.after(last, 1.0)
