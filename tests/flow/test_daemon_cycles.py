"""Whole cycles of the service on a small real lake: approvals, the ledger, runs that were cut off, stores that fail."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from tests.builders.small_lake import LONG_AGO, LocalLake

from lakesweep.daemon.app import App
from lakesweep.daemon.clock import Uptime
from lakesweep.model.errors import Refused, StateError, UnknownRun
from lakesweep.model.files import Verdict
from lakesweep.model.run import Lease, Outcome
from lakesweep.ports.state import BatchState, Hold
from lakesweep.settings.schema import Settings
from lakesweep.state.schema import leases

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLE = "acme/d/one"


class HandClock:
    def __init__(self):
        self.moment = NOON

    def now(self):
        return self.moment


class Stand:
    """The application over one lake. Each `start` is a new process with the same state and another memory."""

    def __init__(self, lake, **cleanup):
        self.lake, self.cleanup, self.clock = lake, cleanup, HandClock()
        self.app = None

    async def start(self):
        await self.end()
        cleanup = {"enabled": True, "dry_run": False, **self.cleanup}
        settings = Settings.model_validate(self.lake.settings(orphan_cleanup=cleanup))
        self.app = await App.open(settings, clock=self.clock).__aenter__()
        storage = self.app.adapters.storage("acme")

        async def now():
            return self.clock.now()

        storage.now = now

    async def end(self):
        if self.app is not None:
            await self.app.__aexit__(None, None, None)
            self.app = None

    async def run(self, table=TABLE, **options):
        if self.app is None:
            await self.start()
        (work,) = await self.app.resolve(table)
        return await self.app.run(work, execute=None, **options)

    def plant(self, name, data=b"left behind", table=TABLE):
        path = self.lake.directory(table) / name
        path.write_bytes(data)
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
        return path


@pytest.fixture
async def stand(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "two"], orphans=6)
    made = Stand(lake)
    yield made
    await made.end()
    lake.check_live()


async def test_a_hold_set_while_planning_is_respected_before_any_change(stand):
    await stand.start()
    save_plan = stand.app.state.save_plan

    async def saved_then_held(header):
        await save_plan(header)
        await stand.app.state.set_hold(Hold(scope="acme", since=NOON, by="a test"))

    stand.app.state.save_plan = saved_then_held
    run = await stand.run()
    assert (run.outcome, run.refusal.code, run.plan.candidates.files) == (Outcome.REFUSED, "held", 6)
    assert len(stand.lake.orphans_left(TABLE)) == 6


class TwoClocks(HandClock):
    """With one inside that nobody sets."""

    steady = 1000.0

    def uptime(self):
        return Uptime(boot="a boot", seconds=self.steady)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_jumps_ahead_deletes_nothing_that_is_young(stand, restarted):
    stand.clock = TwoClocks()
    await stand.start()
    await stand.run("acme/d/two")
    young = stand.plant("young.parquet")
    os.utime(young, (NOON.timestamp() - 60, NOON.timestamp() - 60))
    stand.clock.moment += timedelta(days=3)
    if restarted:
        await stand.start()
    (work,) = await stand.app.resolve(TABLE)
    planned = await stand.app.plan(work)  # a plan says so too
    run = await stand.run()
    for one in (planned, run):
        assert (one.outcome, one.refusal.code) == (Outcome.REFUSED, "clock_skew")
    assert young.exists()
    stand.clock.moment -= timedelta(days=3)
    assert (await stand.run()).outcome is Outcome.DONE
    assert young.exists()


async def test_a_clock_that_jumps_while_a_table_is_planned_changes_nothing(stand):
    stand.clock = TwoClocks()
    await stand.start()
    save_plan = stand.app.state.save_plan

    async def saved_then_jumped(header):
        await save_plan(header)
        stand.clock.moment += timedelta(days=3)

    stand.app.state.save_plan = saved_then_jumped
    run = await stand.run()
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "clock_skew")
    assert len(stand.lake.orphans_left(TABLE)) == 6


# Approval


async def refused(stand, **ceilings):
    stand.cleanup = {**stand.cleanup, "ceilings": ceilings or {"files": 2}}
    await stand.start()
    run = await stand.run()
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code.startswith("ceiling_")
    assert len(stand.lake.orphans_left(TABLE)) == 6
    return run


@pytest.mark.parametrize("ceilings", [{"files": 2}, {"bytes": 10}, {"share": 0.1, "share_min_files": 1}])
async def test_a_plan_above_a_ceiling_goes_once_it_is_approved(stand, ceilings):
    first = await refused(stand, **ceilings)
    approval = await stand.app.approve(first.id, by="somebody")
    assert approval.digest == first.plan.digest
    assert (await stand.app.state.get_due(TABLE)).next_due == NOON
    run = await stand.run()
    assert run.outcome is Outcome.DONE
    assert stand.lake.orphans_left(TABLE) == set()
    assert len(stand.lake.orphans_left("acme/d/two")) == 6


async def test_an_approval_ends_after_its_time(stand):
    stand.cleanup = {"approval_hours": 2}
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    stand.clock.moment += 2 * HOUR
    assert (await stand.run()).refusal.code == "ceiling_files"
    assert len(stand.lake.orphans_left(TABLE)) == 6


async def test_only_unapproved_files_count_against_the_ceilings(stand):
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    planted = [stand.plant(f"part-9999{number}-failed.parquet") for number in range(3)]
    assert (await stand.run()).refusal.code == "ceiling_files"
    assert len(stand.lake.orphans_left(TABLE)) == 6
    planted[0].unlink()
    assert (await stand.run()).outcome is Outcome.DONE  # two files more are an ordinary cycle
    assert not any(path.exists() for path in planted)


async def test_a_file_written_anew_under_an_approved_name_is_not_approved(stand):
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    for name in stand.lake.tables[TABLE].orphans[:3]:
        stand.plant(name, b"another file")
    assert (await stand.run()).refusal.code == "ceiling_files"


async def test_an_approval_lifts_no_other_guard(stand):
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    live = stand.lake.directory(TABLE) / stand.lake.tables[TABLE].live[0]
    content = live.read_bytes()
    live.unlink()
    assert (await stand.run()).refusal.code == "missing_live_files"
    stand.plant(live.name, content)


async def test_what_became_referenced_after_the_approval_stays(stand):
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    kept = stand.lake.tables[TABLE].orphans[0]
    add = {"path": kept, "partitionValues": {}, "size": len(kept), "modificationTime": 0, "dataChange": True}
    stand.plant("_delta_log/00000000000000000001.json", json.dumps({"add": add}).encode())
    assert (await stand.run()).outcome is Outcome.DONE
    assert stand.lake.orphans_left(TABLE) == {kept}


async def test_only_an_intact_plan_that_waits_can_be_approved(stand):
    await stand.start()
    with pytest.raises(UnknownRun):
        await stand.app.approve("never was", by="somebody")
    done = await stand.run("acme/d/two")
    with pytest.raises(Refused, match="not_waiting"):
        await stand.app.approve(done.id, by="somebody")
    first = await refused(stand)
    with pytest.raises(Refused, match="other_plan"):
        await stand.app.approve(first.id, by="somebody", digest="0" * 64)
    rows = stand.app.artifacts.file("plans", f"{first.id}.parquet")
    rows.write_bytes(rows.read_bytes()[:-9])
    with pytest.raises(Refused, match="plan_damaged"):
        await stand.app.approve(first.id, by="somebody")
    assert await stand.app.state.approvals(TABLE) == []


async def test_an_approved_plan_whose_rows_are_lost_approves_nothing(stand):
    first = await refused(stand)
    await stand.app.approve(first.id, by="somebody")
    stand.app.artifacts.file("plans", f"{first.id}.parquet").unlink()
    assert (await stand.run()).refusal.code == "ceiling_files"


# Confirmation


async def test_a_file_goes_only_when_two_runs_far_enough_apart_saw_it(stand):
    stand.cleanup = {"confirm_after_hours": 24}
    first = await stand.run()
    assert (first.outcome, first.plan.candidates.files, first.plan.unconfirmed.files) == (Outcome.DONE, 0, 6)
    stand.clock.moment += 23 * HOUR
    await stand.start()
    assert (await stand.run()).deletion.deleted.files == 0
    stand.clock.moment += 1 * HOUR
    late = stand.plant("part-99990-failed.parquet")
    await stand.start()
    third = await stand.run()
    assert third.deletion.deleted.files == 6
    assert late.exists()


# Runs that were cut off


class Killed(BaseException):
    """Ends everything at once, as kill -9 would."""


def kill_at(deleter, batch):
    """A deleter whose process dies after it deleted a batch and before anybody knows."""
    calls = []
    delete = deleter._inner.delete

    async def dying(paths, conditions=None):
        calls.append(paths)
        outcome = await delete(paths, conditions)
        if len(calls) == batch:
            raise Killed
        return outcome

    deleter._inner.delete = dying
    return deleter


async def test_an_interrupted_run_is_closed_and_its_table_planned_again(stand):
    stand.cleanup = {"batch_size": 2, "max_concurrent_deletions": 1}
    await stand.start()
    opened = stand.app.adapters.deleter
    stand.app.adapters.deleter = lambda *which, **more: kill_at(opened(*which, **more), 2)
    with pytest.raises(Killed):
        await stand.run()
    assert len(stand.lake.orphans_left(TABLE)) == 2
    (cut,) = await stand.app.state.open_runs(TABLE)

    await stand.start()
    run = await stand.run()
    assert (run.outcome, run.deletion.deleted.files) == (Outcome.DONE, 2)
    closed = await stand.app.state.get_run(cut["run_id"])
    assert (closed["outcome"], closed["deleted"]["count"], closed["orphans"]["count"]) == ("failed", 2, 6)
    assert closed["reason"].startswith("interrupted: its process died after 1 batches; 1 more (2 files)")
    states = [entry.state for entry in await stand.app.state.journal(cut["run_id"])]
    assert states == [BatchState.DONE, BatchState.INTENT]
    assert await stand.app.state.open_runs(TABLE) == []


async def test_a_lost_lease_ends_the_run_and_what_was_deleted_is_reported(stand):
    stand.cleanup = {"batch_size": 1, "max_concurrent_deletions": 1}
    await stand.start()
    opened = stand.app.adapters.deleter
    state = stand.app.state

    def slow(*which, **more):
        deleter = opened(*which, **more)
        delete = deleter._inner.delete

        async def taken_meanwhile(paths, conditions=None):
            outcome = await delete(paths, conditions)
            await state.release_lease(await _newest(state))
            await state.acquire_lease(TABLE, "another", HOUR)
            return outcome

        deleter._inner.delete = taken_meanwhile
        return deleter

    stand.app.adapters.deleter = slow
    run = await stand.run()
    assert run.outcome is Outcome.FAILED
    assert "lease" in run.reason
    assert run.deletion.deleted.files == 1
    assert len(stand.lake.orphans_left(TABLE)) == 5
    assert (await state.get_run(run.id))["deleted"]["count"] == 1


async def _newest(state):
    """The lease of the table as the database has it."""

    def read(connection):
        row = connection.execute(sa.select(leases).where(leases.c.table == TABLE)).mappings().one()
        return Lease(**row)

    return await state.database.run(read)


async def test_a_stop_while_planning_ends_at_once_and_changes_nothing(stand):
    await stand.start()
    stop = asyncio.Event()
    stop.set()
    run = await stand.run(stop=stop)
    assert (run.outcome, run.plan) == (Outcome.FAILED, None)
    assert run.reason == "stopped; the next cycle continues"
    assert len(stand.lake.orphans_left(TABLE)) == 6


# Places that all tables share


async def test_an_unresponsive_table_takes_no_planning_slot(stand):
    await stand.start()
    listings = stand.app.listings.of("acme")
    while not listings.locked():
        await listings.acquire()
    (one,), (two,) = [await stand.app.resolve(label) for label in (TABLE, "acme/d/two")]
    log = stand.lake.directory("acme/d/two") / "_delta_log"
    aside = log.rename(log.with_name("_aside"))
    planning = asyncio.create_task(stand.app.plan(one))
    failed = await asyncio.wait_for(stand.app.plan(two), 60)
    aside.rename(log)
    assert (failed.outcome, failed.plan) == (Outcome.REFUSED, None)
    assert not planning.done()
    listings.release()
    assert (await planning).plan.candidates.files == 6


# Stores that fail


@pytest.mark.parametrize("method", ["begin_batch", "finish_batch", "update_run", "save_plan"])
async def test_without_the_state_store_nothing_is_deleted_unjournalled(stand, method, monkeypatch):
    stand.cleanup = {"batch_size": 2, "max_concurrent_deletions": 1}
    await stand.start()

    async def away(*_):
        raise StateError("the state store is away")

    monkeypatch.setattr(stand.app.state, method, away)
    run = await stand.run()
    assert run.outcome is Outcome.FAILED
    assert "away" in run.reason
    monkeypatch.undo()
    journalled = sum(entry.count for entry in await stand.app.state.journal(run.id))
    assert 6 - len(stand.lake.orphans_left(TABLE)) <= journalled
    assert (await stand.run()).outcome is Outcome.DONE
    assert stand.lake.orphans_left(TABLE) == set()
    assert await stand.app.state.open_runs(TABLE) == []


@pytest.mark.parametrize("kind", ["plans", "ledgers"])
async def test_a_disk_that_takes_no_more_is_an_outcome_and_deletes_nothing(stand, kind):
    stand.cleanup = {"confirm_after_hours": 24}
    await stand.run()
    stand.clock.moment += 24 * HOUR
    await stand.start()
    directory = stand.app.artifacts.file(kind, "x").parent
    aside = directory.rename(directory.with_name("aside"))
    directory.write_text("no directory can be made here")
    run = await stand.run()
    assert run.outcome is Outcome.FAILED
    assert len(stand.lake.orphans_left(TABLE)) == 6
    directory.unlink()
    aside.rename(directory)
    again = await stand.run()
    assert again.outcome is Outcome.DONE
    assert stand.lake.orphans_left(TABLE) == set()


async def test_an_explanation_says_since_when_a_file_waits_and_until_when(stand):
    stand.cleanup = {"confirm_after_hours": 24}
    await stand.start()
    orphan = str(stand.lake.directory(TABLE) / stand.lake.tables[TABLE].orphans[0])
    before = await stand.app.explain(orphan, target=TABLE)
    assert before.verdict is Verdict.YOUNG
    assert "no successful run has seen it unreferenced" in before.sentences[-1]
    await stand.run()
    waiting = await stand.app.explain(orphan, target=TABLE)
    assert (waiting.verdict, waiting.deletable_from) == (Verdict.YOUNG, NOON + 24 * HOUR)
    stand.clock.moment += 24 * HOUR
    ripe = await stand.app.explain(orphan, target=TABLE)
    assert (ripe.verdict, ripe.deletable_from) == (Verdict.ORPHAN, None)


# Files that come with an old time


async def test_a_file_moved_here_just_now_stays_despite_an_old_mtime(stand):
    """Its writer, or whoever restores it, may be about to commit it."""
    settings = {**stand.lake.settings(), "storage": {}}
    came = stand.plant("part-00009-restored.parquet")
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve(TABLE)
        run = await app.run(work, execute=True)
    assert (run.outcome, run.plan.candidates.files, run.plan.verdicts[Verdict.YOUNG].files) == (Outcome.DONE, 0, 7)
    assert came.exists()
