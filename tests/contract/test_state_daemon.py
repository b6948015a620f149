"""The laws of the StateStore port that the daemon lives by: closing runs, due times, approvals, holds, odd clocks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun, Outcome, Phase
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import Approval, BatchRecord, BatchState, DueTime, Hold, PlanHeader
from lakesweep.state import rules

TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUN = CleanupRun(id="r1", table=TABLE, location=None, started_at=NOON)
PLAN = PlanHeader(
    run_id="r1", table=TABLE.label, head="h", digest="d1", rows_path="/p", candidates=1, bytes=2, created_at=NOON
)
CLOSED = {"phase": "finished", "outcome": "failed", "reason": "interrupted", "finished_at": "2026-03-01T13:00:00.000Z"}


async def test_an_open_run_can_be_closed_for_its_process_and_is_open_no_more(store):
    await store.start_run(RUN)
    (document,) = await store.open_runs(TABLE.label)
    assert await store.close_run(document | CLOSED)
    assert await store.get_run("r1") == document | CLOSED
    assert await store.list_runs(table=TABLE.label) == [document | CLOSED]
    assert await store.open_runs(TABLE.label) == []


async def test_a_run_that_finished_itself_cannot_be_closed(store):
    await store.start_run(RUN)
    document = await store.get_run("r1")
    done = replace(RUN, outcome=Outcome.DONE, phase=Phase.FINISHED, finished_at=NOON + HOUR)
    await store.update_run(done)
    assert not await store.close_run(document | CLOSED)
    assert (await store.get_run("r1"))["outcome"] == "done"
    assert not await store.close_run(document | CLOSED | {"run_id": "never was"})


async def test_a_process_that_was_given_up_too_early_decides_last(store):
    await store.start_run(RUN)
    document = await store.get_run("r1")
    await store.close_run(document | CLOSED)
    await store.update_run(replace(RUN, outcome=Outcome.FAILED, reason="lease lost", finished_at=NOON + HOUR))
    assert (await store.get_run("r1"))["reason"] == "lease lost"


async def test_one_due_time_can_be_asked_for(store):
    due = DueTime(table=TABLE.label, next_due=NOON, last_finished=NOON - HOUR, last_outcome="done", failures=2)
    assert await store.get_due(TABLE.label) is None
    await store.set_due(due)
    assert await store.get_due(TABLE.label) == due


def approval(run_id="r1", **changes):
    given = Approval(
        run_id=run_id,
        table=TABLE.label,
        digest="d1",
        approved_by="somebody",
        approved_at=NOON,
        expires_at=NOON + 24 * HOUR,
    )
    return replace(given, **changes)


async def test_approvals_come_back_newest_first_and_once_per_run(store):
    await store.start_run(RUN)
    await store.start_run(replace(RUN, id="r2"))
    older, newer = approval(), approval("r2", approved_at=NOON + HOUR)
    await store.add_approval(newer)
    await store.add_approval(older)
    assert await store.approvals(TABLE.label) == [newer, older]
    again = replace(older, approved_at=NOON + 2 * HOUR, approved_by="another")
    await store.add_approval(again)
    assert await store.approvals(TABLE.label) == [again, newer]
    assert await store.approvals("acme/prod/other") == []


async def test_only_a_recorded_run_can_be_approved(store):
    with pytest.raises(StateError, match="not recorded"):
        await store.add_approval(approval())


async def test_holds_are_set_replaced_and_cleared_by_scope(store):
    first = Hold(scope="acme", since=NOON, by="somebody", reason="moving")
    await store.set_hold(first)
    await store.set_hold(Hold(scope="*", since=NOON, by="somebody"))
    assert [hold.scope for hold in await store.holds()] == ["*", "acme"]
    again = replace(first, reason="still moving")
    await store.set_hold(again)
    assert (await store.holds())[1] == again
    assert await store.clear_hold("acme")
    assert not await store.clear_hold("acme")
    assert [hold.scope for hold in await store.holds()] == ["*"]


async def test_a_hold_ends_at_its_time_and_is_known_as_ended_until_forgotten(store, state_backend):
    soon = Hold(scope="acme", since=NOON, by="ann", reason="move", ends_at=state_backend.clock.now() + HOUR)
    await store.set_hold(soon)
    await store.set_hold(Hold(scope="zeta", since=NOON, by="ann"))
    assert await store.holds() == [soon, Hold(scope="zeta", since=NOON, by="ann")]
    assert await store.ended_holds() == []
    await state_backend.advance(3601)
    assert [hold.scope for hold in await store.holds()] == ["zeta"]
    (ended,) = await store.ended_holds()
    assert (ended.scope, ended.by, ended.reason) == ("acme", "ann", "move")
    assert await store.forget_ended_holds(ended.ends_at - HOUR) == 0
    assert await store.forget_ended_holds(state_backend.clock.now() + 1000 * HOUR) == 1
    assert await store.ended_holds() == []
    assert [hold.scope for hold in await store.holds()] == ["zeta"]  # one without an end is never forgotten


@pytest.mark.parametrize("admin_first", [True, False])
async def test_of_two_holds_of_a_scope_the_later_end_counts_whoever_made_it(store, state_backend, admin_first):
    """A pause with an end must not end another's, not even the one that a guard has left behind."""
    now = state_backend.clock.now()
    short = Hold(scope="acme", since=NOON, by="short", ends_at=now + HOUR, by_admin=not admin_first)
    endless = Hold(scope="acme", since=NOON, by="endless", by_admin=admin_first)
    for first, second in ((short, endless), (endless, short)):
        await store.set_hold(first)
        await store.set_hold(second)
        (there,) = await store.holds()
        assert (there.ends_at, there.by_admin) == (None, True)
        assert there.by == ("endless" if admin_first else "short")
        await state_backend.advance(3601)
        assert len(await store.holds()) == 1
        assert await store.clear_hold("acme")


async def test_a_tenant_can_hold_again_what_an_administrators_hold_has_let_go(store, state_backend):
    ours = Hold(scope="acme", since=NOON, by="root", ends_at=state_backend.clock.now() + HOUR)
    theirs = Hold(scope="acme", since=NOON, by="token 1", by_admin=False)
    await store.set_hold(ours)
    await state_backend.advance(3601)
    await store.set_hold(theirs)
    assert await store.holds() == [theirs]
    assert await store.ended_holds() == []
    assert await store.clear_hold("acme", admin=False)


async def test_an_administrators_hold_is_replaced_and_cleared_by_none_but_one(store):
    """In the store itself: between a look at the holds and a change of them another may come."""
    theirs = Hold(scope="acme", since=NOON, by="token 1", by_admin=False)
    ours = replace(theirs, by="root", by_admin=True)
    await store.set_hold(theirs)
    await store.set_hold(replace(theirs, reason="mine"))
    assert (await store.holds())[0].reason == "mine"
    await store.set_hold(ours)
    await store.set_hold(theirs)
    assert await store.holds() == [ours]
    assert not await store.clear_hold("acme", admin=False)
    assert await store.holds() == [ours]
    assert await store.clear_hold("acme", admin=True)
    await store.set_hold(theirs)
    assert await store.clear_hold("acme", admin=False)


async def test_a_lease_given_back_is_free_for_any_clock(store):
    lease = await store.acquire_lease(TABLE.label, "a", HOUR)
    await store.release_lease(lease)
    assert (await store.acquire_lease(TABLE.label, "b", HOUR)).token == lease.token + 1


def test_a_lease_from_a_clock_far_ahead_does_not_lock_a_table_for_ever():
    ahead = rules.grant(None, table="t", owner="a", ttl=HOUR, now=NOON + timedelta(days=365))
    taken = rules.grant(ahead, table="t", owner="b", ttl=HOUR, now=NOON)
    assert taken is not None
    assert (taken.owner, taken.token) == ("b", ahead.token + 1)


def test_a_lease_of_any_length_that_leases_have_is_respected():
    lease = rules.grant(None, table="t", owner="a", ttl=rules.LONGEST_LEASE, now=NOON)
    assert rules.grant(lease, table="t", owner="b", ttl=HOUR, now=NOON) is None


async def test_old_runs_are_forgotten_with_everything_of_theirs(store):
    for number in range(5):
        run = replace(RUN, id=f"r{number}", started_at=NOON + number * HOUR)
        await store.start_run(run)
        await store.save_plan(replace(PLAN, run_id=run.id, rows_path=f"/plans/r{number}"))
        await store.add_approval(approval(run.id))
        if number < 4:
            done = replace(run, outcome=Outcome.DONE, phase=Phase.FINISHED, finished_at=run.started_at)
            await store.update_run(done)
    lease = await store.acquire_lease(TABLE.label, "a", HOUR)
    batch = BatchRecord(run_id="r0", number=0, first=0, count=1, state=BatchState.INTENT, fencing_token=lease.token)
    await store.begin_batch(batch)
    assert await store.forget_runs(NOON + 2.5 * HOUR, 2) == (2, ["/plans/r0", "/plans/r1"])
    assert await store.forget_runs(NOON + 2.5 * HOUR, 2) == (1, ["/plans/r2"])
    assert await store.forget_runs(NOON + 2.5 * HOUR, 2) == (0, [])
    assert [run["run_id"] for run in await store.list_runs()] == ["r4", "r3"]
    assert (await store.journal("r0"), await store.get_plan("r0")) == ([], None)
    assert {one.run_id for one in await store.approvals(TABLE.label)} == {"r3", "r4"}
    assert await store.forget_runs(NOON + 99 * HOUR, 9) == (1, ["/plans/r3"])  # r4 never ended


async def test_due_times_come_back_whole_and_filtered(store):
    rows = [DueTime(table=f"acme/prod/{number:03}", next_due=NOON + number * HOUR) for number in range(600)]
    for row in reversed(rows):
        await store.set_due(row)
    assert await store.due_times() == rows
    assert await store.due_times(until=NOON + 2 * HOUR) == rows[:3]
    assert await store.due_times(until=NOON - HOUR) == []
