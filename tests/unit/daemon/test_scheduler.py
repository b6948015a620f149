"""The scheduler on a small real lake: who is started, what is written down, what stays with one table."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs
from tests.builders.small_lake import LocalLake, small_table, write_local

from lakesweep.daemon import cadence, known_tables, request_budget
from lakesweep.daemon import scheduler as scheduler_module
from lakesweep.daemon.admin_service import AdminService
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.limits import Due
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.daemon.table_run import ScheduledRun, run_scheduled
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import NotYet, Refused, StateError, UnknownTable
from lakesweep.ports.state import DueTime, Hold
from lakesweep.settings.schema import Settings
from lakesweep.storage.local.deleter import LocalDeleter

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
API = Trigger(by=TriggeredBy.API, who="a test")


class HandClock:
    """Time that moves only when told to."""

    def __init__(self):
        self.moment = NOON

    def now(self):
        return self.moment


class Stand:
    """A scheduler with a clock of the test. `round` is one step, and the end of everything that it started."""

    def __init__(self, app, clock):
        self.app, self.clock = app, clock
        self.scheduler = Scheduler(app, jitter=lambda: 0.0)

    async def round(self, times=2):
        """Two steps: the first looks at the datasets, the second starts what they hold."""
        for _ in range(times):
            async with asyncio.TaskGroup() as tasks:
                await self.scheduler.step(tasks)

    async def pass_time(self, **span):
        self.clock.moment += timedelta(**span)
        await self.round()

    async def outcomes(self):
        """Of all recorded runs, as (table, outcome). Many begin in one moment of the test's clock."""
        return sorted((run["table"], run["outcome"]) for run in await self.app.state.list_runs(limit=1000))

    def skipped(self, tenant, reason):
        labels = {"tenant": tenant, "reason": reason}
        return self.app.metrics.registry.get_sample_value("lakesweep_tables_skipped_total", labels) or 0


@pytest.fixture
def lake(tmp_path):
    return LocalLake(root=tmp_path)


@asynccontextmanager
async def standing(lake, **sections):
    clock = HandClock()
    settings = Settings.model_validate(lake.settings(state={"url": "memory://"}, **sections))
    async with App.open(settings, clock=clock) as app:
        app.adapters.storage = _with_clock(app.adapters.storage, clock)
        yield Stand(app, clock)


def _with_clock(open_storage, clock):
    """The local store tells this machine's time; in these tests time is the test's."""

    async def now():
        return clock.now()

    def opened(tenant, root=None):
        storage = open_storage(tenant, root)
        storage.now = now
        return storage

    return opened


async def test_every_table_is_cleaned_once_per_interval(lake):
    lake.add("acme", ["one", "two"])
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done"), ("acme/d/two", "done")]
        assert lake.orphans_left("acme/d/one") == lake.orphans_left("acme/d/two") == set()
        lake.check_live()
        await stand.pass_time(hours=23)
        assert len(await stand.outcomes()) == 2
        await stand.pass_time(hours=2)
        assert len(await stand.outcomes()) == 4


async def test_due_times_survive_in_the_state_store(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round()
        (due,) = await stand.app.state.due_times()
        assert (due.table, due.next_due, due.last_outcome) == ("acme/d/one", NOON + DAY, "done")
        stand.scheduler = Scheduler(stand.app)  # a restarted process
        await stand.round()
        assert len(await stand.outcomes()) == 1
        await stand.pass_time(hours=25)
        assert len(await stand.outcomes()) == 2


async def test_a_table_that_another_replica_has_just_cleaned_is_left_alone(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        await stand.scheduler._due.refresh(NOON)
        theirs = DueTime(table="acme/d/one", next_due=NOON + DAY, last_finished=NOON, last_outcome="done")
        await stand.app.state.set_due(theirs)  # after we looked, before we claim
        await stand.round(times=1)
        assert await stand.outcomes() == []
        assert stand.scheduler.due_at("acme/d/one") is None or stand.scheduler.due_at("acme/d/one") > NOON


async def test_a_table_that_another_replica_works_on_is_skipped_with_a_reason(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        theirs = await stand.app.state.acquire_lease("acme/d/one", "another", timedelta(minutes=10))
        await stand.round(times=5)
        assert await stand.outcomes() == []
        assert stand.skipped("acme", "busy") == 1  # and not asked for again at once
        await stand.app.state.release_lease(theirs)
        await stand.pass_time(minutes=1)
        assert await stand.outcomes() == [("acme/d/one", "done")]


async def test_tables_are_discovered_anew_and_dropped_ones_forgotten(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round()
        write_local(lake.directory("acme/d/two"), small_table("two"))
        for path in sorted(lake.directory("acme/d/one").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        await stand.pass_time(minutes=6)
        assert set(stand.scheduler.known_tables.entries) == {"acme/d/two"}
        assert ("acme/d/two", "done") in await stand.outcomes()


async def test_a_disabled_tenant_is_not_looked_at_and_says_so(lake):
    lake.add("acme", ["one"])
    lake.add("globex", ["two"], enabled=False)
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done")]
        assert stand.skipped("globex", "disabled") == 1
        assert len(lake.orphans_left("globex/d/two")) == 3


async def test_one_table_of_a_disabled_dataset_can_be_enabled(lake):
    lake.add("acme", ["one", "two"], enabled=False)
    lake.tenants["acme"]["datasets"][0]["tables"] = [{"name": "two", "orphan_cleanup": {"enabled": True}}]
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/two", "done")]
        assert stand.skipped("acme", "disabled") == 1


async def test_a_dry_run_of_the_settings_deletes_nothing_and_is_an_outcome(lake):
    lake.add("acme", ["one"], dry_run=True)
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "dry_run")]
        assert len(lake.orphans_left("acme/d/one")) == 3


async def test_a_failing_table_is_tried_again_soon_and_keeps_no_other_back(lake):
    lake.add("acme", ["one", "two"])
    broken = lake.directory("acme/d/one") / "_delta_log/00000000000000000000.json"
    good = broken.read_text()
    broken.write_text("{not json\n")
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "failed"), ("acme/d/two", "done")]
        assert len(lake.orphans_left("acme/d/one")) == 3
        broken.write_text(good)
        await stand.pass_time(minutes=2)
        assert ("acme/d/one", "done") in await stand.outcomes()
        due = await stand.app.state.get_due("acme/d/one")
        assert due.failures == 0


async def test_a_bug_met_on_one_table_is_counted_and_delays_that_table_alone(lake, monkeypatch):
    lake.add("acme", ["one", "two"])
    async with standing(lake) as stand:
        run = stand.app.run

        async def buggy(work, **options):
            if work.ref.name == "one":
                raise ZeroDivisionError("a bug")
            return await run(work, **options)

        monkeypatch.setattr(stand.app, "run", buggy)
        await stand.round()
        assert await stand.outcomes() == [("acme/d/two", "done")]
        due = await stand.app.state.get_due("acme/d/one")
        assert (due.failures, due.last_outcome, due.next_due) == (1, "failed", NOON + timedelta(minutes=1))
        found = stand.app.metrics.registry.get_sample_value("lakesweep_unexpected_errors_total", {"tenant": "acme"})
        assert found == 1
        monkeypatch.undo()
        await stand.pass_time(minutes=2)
        assert ("acme/d/one", "done") in await stand.outcomes()


async def test_a_dataset_out_of_reach_is_reported_and_looked_at_again_soon(lake):
    lake.add("acme", ["one"])
    lake.add("globex", ["two"])
    place = lake.root / "lake/globex/tables"
    (place.parent / "elsewhere").mkdir()
    lake.tenants["globex"]["datasets"][0].update(
        format="iceberg", catalog={"type": "sql", "uri": f"sqlite:///{place.parent}/none/catalog.db"}
    )
    del lake.tenants["globex"]["datasets"][0]["location"]
    async with standing(lake) as stand:
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done")]
        assert stand.skipped("globex", "discovery_failed") == 1
        assert "globex/d" in stand.scheduler.known_tables.problems
        with pytest.raises(NotYet):
            stand.scheduler.request("globex/d/two", execute=False, trigger=API)
        await stand.pass_time(seconds=11)
        assert stand.skipped("globex", "discovery_failed") == 2


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_dataset_whose_directory_is_gone_is_out_of_reach(lake, was_there):
    """The service goes on, keeps the tables that it knew, and finds the others once the disk is there."""
    lake.add("acme", ["one"])
    lake.add("globex", ["two"] if was_there else [])
    place, away = lake.root / "lake/globex", lake.root / "not mounted"
    if not was_there:
        place.rename(away)
    async with standing(lake) as stand:
        await stand.round()
        if was_there:
            place.rename(away)
            with capture_logs() as told:
                await stand.pass_time(minutes=6)
            assert [entry["tenant"] for entry in told if entry["event"] == "discovery_failed"] == ["globex"]
        assert stand.skipped("globex", "discovery_failed") == 1
        assert "there is no such directory" in stand.scheduler.known_tables.problems["globex/d"]
        entries = {"acme/d/one", *(["globex/d/two"] if was_there else [])}
        assert set(stand.scheduler.known_tables.entries) == entries
        admin = AdminService(stand.scheduler, checkup=None)
        shown = {one["table"]: one["problem"] for one in await admin.tables(None, after=None, limit=10)}
        assert "there is no such directory" in shown["globex/d/*"]
        away.rename(place)
        write_local(lake.directory("globex/d/new"), small_table("new"))
        await stand.pass_time(minutes=6)
        assert stand.scheduler.known_tables.problems == {}
        assert "globex/d/new" in stand.scheduler.known_tables.entries


async def test_an_empty_dataset_is_logged_once_and_when_it_becomes_empty(lake):
    lake.add("acme", [])
    lake.add("globex", [], enabled=False)
    async with standing(lake) as stand:
        with capture_logs() as told:
            await stand.round()
            await stand.pass_time(minutes=6)
            write_local(lake.directory("acme/d/one"), small_table("one"))
            await stand.pass_time(minutes=6)
            for path in sorted(lake.directory("acme/d/one").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            await stand.pass_time(minutes=6)
    assert [entry["tenant"] for entry in told if entry["event"] == "no_tables_found"] == ["acme", "acme"]


async def test_a_reload_during_discovery_leaves_no_old_entries(lake, monkeypatch):
    monkeypatch.setattr(known_tables, "TABLES_AT_A_TIME", 1)
    lake.add("acme", ["one", "two"])
    async with standing(lake) as stand:
        careful = stand.app.successor(Settings.model_validate(lake.settings(orphan_cleanup={"dry_run": True})))
        careful.adapters.storage = _with_clock(careful.adapters.storage, stand.clock)
        expect = stand.app.metrics.expect

        def expect_and_reload(ref):
            expect(ref)
            if stand.scheduler.app is not careful:
                stand.scheduler.adopt(careful)

        monkeypatch.setattr(stand.app.metrics, "expect", expect_and_reload)
        await stand.round(times=1)
        assert stand.scheduler.known_tables.entries == {}
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "dry_run"), ("acme/d/two", "dry_run")]
        assert len(lake.orphans_left("acme/d/one")) == 3


async def test_no_more_tables_at_once_than_allowed(lake, monkeypatch):
    lake.add("acme", [f"t{number}" for number in range(6)])
    most = 0
    async with standing(lake, daemon={"max_tables": 2}) as stand:
        run = stand.app.run

        async def watched(work, **options):
            nonlocal most
            most = max(most, len(stand.scheduler.running))
            await asyncio.sleep(0.01)
            return await run(work, **options)

        monkeypatch.setattr(stand.app, "run", watched)
        await stand.round(times=6)
        assert most == 2
        assert len(await stand.outcomes()) == 6


async def test_a_large_tenant_does_not_keep_a_small_one_waiting(lake):
    lake.add("large", [f"t{number:02}" for number in range(12)])
    lake.add("small", ["a", "b"])
    async with standing(lake, daemon={"max_tables": 1}) as stand:
        await stand.round(times=6)
        order = [table.split("/")[0] for table, _ in await stand.outcomes()]
        assert order.count("small") == 2
        assert len(order) <= 6


async def test_a_hold_stops_new_work_until_it_is_cleared(lake):
    lake.add("acme", ["one"])
    lake.add("globex", ["two"])
    async with standing(lake) as stand:
        await stand.app.state.set_hold(Hold(scope="acme", since=NOON, by="a test"))
        await stand.round(times=4)
        assert await stand.outcomes() == [("globex/d/two", "done")]
        assert stand.skipped("acme", "paused") == 1
        assert stand.scheduler._due.holds.covering("acme/d/one")
        await stand.app.state.clear_hold("acme")
        await stand.pass_time(seconds=11)
        assert ("acme/d/one", "done") in await stand.outcomes()


async def test_a_request_before_the_first_discovery_is_too_early_not_unknown(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        for table in ("acme/d/one", "acme/d/none"):
            with pytest.raises(NotYet):
                stand.scheduler.request(table, execute=False, trigger=API)
        for table in ("acme/none/one", "none/d/one", "acme/d", "acme", ""):
            with pytest.raises(UnknownTable):
                stand.scheduler.request(table, execute=False, trigger=API)
        await stand.round(times=1)
        assert stand.scheduler.request("acme/d/one", execute=False, trigger=API)
        with pytest.raises(UnknownTable):
            stand.scheduler.request("acme/d/none", execute=False, trigger=API)


async def test_a_requested_run_goes_before_all_others_whether_due_or_not(lake):
    lake.add("acme", ["one", "two", "three"])
    async with standing(lake, daemon={"max_tables": 1}) as stand:
        await stand.round(times=1)
        run_id = stand.scheduler.request("acme/d/two", execute=False, trigger=API)
        with pytest.raises(Refused, match="busy"):
            stand.scheduler.request("acme/d/two", execute=False, trigger=API)
        await stand.round(times=1)
        assert await stand.outcomes() == [("acme/d/two", "dry_run")]
        assert (await stand.app.state.get_run(run_id))["outcome"] == "dry_run"
        await stand.round(times=3)
        assert ("acme/d/two", "done") in await stand.outcomes()  # looking does not put off the regular cycle
        with pytest.raises(UnknownTable):
            stand.scheduler.request("acme/d/none", execute=False, trigger=API)


async def test_a_run_that_takes_too_long_is_cut_off_and_its_table_is_free_again(lake, monkeypatch):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        (work,) = await stand.app.resolve("acme/d/one")
        storage = stand.app.adapters.storage("acme")

        async def hang(*_):
            await asyncio.sleep(3600)

        monkeypatch.setattr(storage, "now", hang)
        monkeypatch.setitem(stand.app.settings.daemon.__dict__, "max_cycle_hours", 0.00001)
        run = await stand.app.run(work, execute=True)
        assert run.outcome == "failed"
        assert "longer than daemon.max_cycle_hours" in run.reason
        monkeypatch.undo()
        assert (await stand.app.run(work, execute=True)).outcome == "done"


async def test_only_so_many_requested_runs_of_a_tenant_wait(lake, monkeypatch):
    monkeypatch.setattr(scheduler_module, "MAX_REQUESTS", 2)
    lake.add("acme", ["t0", "t1", "t2"])
    lake.add("other", ["t"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        for number in range(2):
            stand.scheduler.request(f"acme/d/t{number}", execute=False, trigger=API)
        with pytest.raises(Refused, match="2 runs of acme are already queued"):
            stand.scheduler.request("acme/d/t2", execute=False, trigger=API)
        stand.scheduler.request("other/d/t", execute=False, trigger=API)


async def test_a_requested_run_of_a_busy_table_leaves_its_outcome_under_its_id(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.app.state.acquire_lease("acme/d/one", "another", timedelta(minutes=10))
        await stand.round(times=1)
        run_id = stand.scheduler.request("acme/d/one", execute=True, trigger=API)
        await stand.round(times=1)
        found = await stand.app.state.get_run(run_id)
        assert found["refused"]["code"] == "busy"


async def test_a_requested_run_of_a_held_table_leaves_its_refusal_under_its_id(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        await stand.app.state.set_hold(Hold(scope="acme", since=NOON, by="a test"))
        run_id = stand.scheduler.request("acme/d/one", execute=True, trigger=API)
        await stand.round(times=1)
        assert (await stand.app.state.get_run(run_id))["refused"]["code"] == "held"
        assert len(lake.orphans_left("acme/d/one")) == 3


async def test_a_cancelled_run_waits_for_its_next_regular_time(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        run_id = stand.scheduler.request("acme/d/one", execute=True, trigger=API)
        assert stand.scheduler.cancel(run_id)
        await stand.round(times=1)
        assert await stand.outcomes() == [("acme/d/one", "failed")]
        assert len(lake.orphans_left("acme/d/one")) == 3
        assert (await stand.app.state.get_due("acme/d/one")).next_due == NOON + DAY
        assert not stand.scheduler.cancel(run_id)


async def test_a_stop_ends_running_work_and_makes_it_due_at_once(lake, monkeypatch):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        run = stand.app.run

        async def stopped_meanwhile(work, **options):
            stand.scheduler.stop()
            return await run(work, **options)

        monkeypatch.setattr(stand.app, "run", stopped_meanwhile)
        await asyncio.wait_for(stand.scheduler.run(), 60)
        assert await stand.outcomes() == [("acme/d/one", "failed")]
        due = await stand.app.state.get_due("acme/d/one")
        assert (due.next_due, due.failures) == (NOON, 0)
        assert await stand.app.state.acquire_lease("acme/d/one", "another", DAY) is not None


async def test_without_the_state_store_nothing_is_started_and_with_it_all_goes_on(lake, monkeypatch):
    lake.add("acme", ["one"])

    async def away(**_):
        raise StateError("the state store is away")

    async with standing(lake) as stand:
        monkeypatch.setattr(stand.app.state, "due_times", away)
        await stand.round(times=4)
        assert await stand.outcomes() == []
        up = stand.app.metrics.registry.get_sample_value
        assert up("lakesweep_state_store_up") == 0
        monkeypatch.undo()
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done")]
        assert up("lakesweep_state_store_up") == 1


async def test_a_clock_that_jumps_a_year_ahead_and_back_puts_no_table_to_sleep(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        stand.clock.moment = NOON + 365 * DAY
        await stand.round()
        assert len(await stand.outcomes()) == 1
        stand.clock.moment = NOON
        await stand.round(times=3)
        assert len(await stand.outcomes()) == 2
        assert (await stand.app.state.get_due("acme/d/one")).next_due == NOON + DAY


async def test_new_settings_hold_from_the_next_run_on_and_old_adapters_are_closed(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round()
        old = stand.app
        closed = []
        close = old.adapters.aclose

        async def watched():
            closed.append(True)
            await close()

        old.adapters.aclose = watched
        lake.add("globex", ["two"])
        changed = Settings.model_validate(lake.settings(state={"url": "memory://"}))
        new = old.successor(changed)
        new.adapters.storage = _with_clock(new.adapters.storage, stand.clock)
        stand.scheduler.adopt(new)
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done"), ("globex/d/two", "done")]
        assert closed == [True]
        await new.adapters.aclose()


async def test_a_reload_before_a_look_has_begun_does_not_end_the_scheduler(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        new = stand.app.successor(Settings.model_validate(lake.settings()))
        new.adapters.storage = _with_clock(new.adapters.storage, stand.clock)
        async with asyncio.TaskGroup() as tasks:
            looking = asyncio.ensure_future(stand.scheduler.step(tasks))
            await asyncio.sleep(0)  # the look is a task that has not begun
            stand.scheduler.adopt(new)
            await looking
        await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done")]
        await new.adapters.aclose()


@pytest.mark.parametrize(
    ("tenant", "deleted"),
    [({"dry_run": True}, 0), ({"enabled": False}, 0), ({"grace_period_hours": 48}, 0), (None, 0), ({}, 3)],
)
async def test_a_sweep_under_way_ends_when_a_reload_takes_away_its_rules(lake, monkeypatch, tenant, deleted):
    lake.add("acme", ["one"])
    lake.add("globex", [])
    real, reloads = LocalDeleter.delete, []
    async with standing(lake) as stand:

        async def reload_then_delete(deleter, paths, conditions=None):
            if not reloads:
                if tenant is None:
                    del lake.tenants["acme"]
                else:
                    lake.tenants["acme"]["orphan_cleanup"] = tenant
                reloads.append(stand.app.successor(Settings.model_validate(lake.settings())))
                stand.scheduler.adopt(reloads[0])
            return await real(deleter, paths, conditions)

        monkeypatch.setattr(LocalDeleter, "delete", reload_then_delete)
        await stand.round(times=2)
        assert len(reloads) == 1
        assert 3 - len(lake.orphans_left("acme/d/one")) == deleted
        assert ("acme/d/one", "done" if deleted else "failed") in await stand.outcomes()
        lake.check_live()


async def test_a_hold_that_a_stop_sets_ends_the_runs_of_this_process(lake, monkeypatch):
    lake.add("acme", ["one", "two"])
    real = LocalDeleter.delete
    async with standing(lake) as stand:

        async def stop_then_delete(deleter, paths, conditions=None):
            stand.scheduler.end_covered(Hold(scope="acme/d/one", since=NOON, by="somebody"))
            return await real(deleter, paths, conditions)

        monkeypatch.setattr(LocalDeleter, "delete", stop_then_delete)
        await stand.round(times=2)
        assert [len(lake.orphans_left(f"acme/d/{name}")) for name in ("one", "two")] == [3, 0]


class Dead(BaseException):
    """The process is gone, and nothing more is written down."""


async def die(stand, label, monkeypatch):
    """A turn of the table whose process is killed when its run has begun: the run stays open."""
    start_run = stand.app.state.start_run

    async def started_then_killed(run):
        await start_run(run)
        raise Dead

    monkeypatch.setattr(stand.app.state, "start_run", started_then_killed)
    entry = stand.scheduler.known_tables.entries[label]
    scheduled = ScheduledRun(entry=entry, run_id=new_run_id(), since=stand.clock.now())
    scheduled.requested = True  # whatever waits for it
    with pytest.raises(Dead):
        await run_scheduled(scheduled, lambda: 0.0)
    monkeypatch.setattr(stand.app.state, "start_run", start_run)
    stand.scheduler.invalidate()


async def due_now(stand, label):
    due = await stand.app.state.get_due(label)
    await stand.app.state.set_due(replace(due, next_due=stand.clock.now()))
    stand.scheduler._due.learn(await stand.app.state.get_due(label))


async def test_a_table_that_kills_the_process_backs_off_and_is_held(lake, monkeypatch):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round()
        stand.clock.moment += timedelta(seconds=1)
        waits = []
        for _ in range(3):
            await die(stand, "acme/d/one", monkeypatch)
            await due_now(stand, "acme/d/one")
            before = len(await stand.app.state.list_runs())
            await stand.round()
            due = await stand.app.state.get_due("acme/d/one")
            waits.append(due.next_due - stand.clock.now())
            assert due.last_outcome == "interrupted"
            assert len(await stand.outcomes()) == before  # closed, and not tried again at once
            stand.clock.moment += timedelta(seconds=1)
        assert waits == [timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4)]
        (hold,) = await stand.app.state.holds()
        assert (hold.scope, hold.by) == ("acme/d/one", "lakesweep")
        assert "ran out of memory" in hold.reason
        await stand.pass_time(hours=48)
        assert await stand.outcomes() == [("acme/d/one", "done"), *[("acme/d/one", "failed")] * 3]


async def test_a_table_whose_process_was_killed_once_is_cleaned_after_its_wait(lake, monkeypatch):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        await die(stand, "acme/d/one", monkeypatch)
        await stand.round()
        assert len(lake.orphans_left("acme/d/one")) == 3
        await stand.pass_time(minutes=2)
        assert lake.orphans_left("acme/d/one") == set()
        assert await stand.app.state.holds() == []


async def test_of_tables_that_died_with_their_process_one_is_tried_at_a_time(lake):
    lake.add("acme", ["one", "two", "three"])
    async with standing(lake) as stand:
        now = stand.clock.now()
        due = [Due(tenant="acme", table=f"acme/d/{name}", since=now) for name in ("one", "two", "three")]
        for name in ("one", "two"):
            stand.scheduler._due.learn(DueTime(table=f"acme/d/{name}", next_due=now, last_outcome="interrupted"))
        assert [one.table for one in stand.scheduler._due.one_suspect(due, ())] == ["acme/d/one", "acme/d/three"]
        running = {"acme/d/one"}
        assert [one.table for one in stand.scheduler._due.one_suspect(due[1:], running)] == ["acme/d/three"]


async def test_a_queued_request_runs_under_the_new_settings(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        run_id = stand.scheduler.request("acme/d/one", execute=True, trigger=API)
        lake.tenants["acme"]["orphan_cleanup"] = {"dry_run": True}
        careful = stand.app.successor(Settings.model_validate(lake.settings()))
        careful.adapters.storage = _with_clock(careful.adapters.storage, stand.clock)
        stand.scheduler.adopt(careful)
        await stand.round(times=1)
        assert stand.scheduler.waiting_or_running(run_id)  # its dataset has not been looked at again
        await stand.round(times=1)
        assert (await stand.app.state.get_run(run_id))["outcome"] == "dry_run"
        assert len(lake.orphans_left("acme/d/one")) == 3


@pytest.mark.parametrize("without", ["the table's dataset", "the tenant", "anything enabled"])
async def test_a_request_for_a_table_that_left_the_settings_deletes_nothing(lake, without):
    lake.add("acme", ["one"])
    lake.add("globex", ["two"])
    async with standing(lake) as stand:
        await stand.round(times=1)
        run_id = stand.scheduler.request("acme/d/one", execute=True, trigger=API)
        match without:
            case "the table's dataset":
                lake.tenants["acme"]["datasets"] = []
            case "the tenant":
                del lake.tenants["acme"]
            case _:
                lake.tenants["acme"]["orphan_cleanup"] = {"enabled": False}
        other = stand.app.successor(Settings.model_validate(lake.settings()))
        other.adapters.storage = _with_clock(other.adapters.storage, stand.clock)
        stand.scheduler.adopt(other)
        await stand.round(times=3)
        assert await stand.outcomes() == [("acme/d/one", "failed"), ("globex/d/two", "done")]
        assert "no longer configured" in (await stand.app.state.get_run(run_id))["reason"]
        assert len(lake.orphans_left("acme/d/one")) == 3


async def test_a_run_is_never_done_by_two_schedulers_at_once(lake):
    lake.add("acme", [f"t{number}" for number in range(8)])
    async with standing(lake, daemon={"max_tables": 8}) as stand:
        other = Stand(stand.app, stand.clock)
        await asyncio.gather(stand.round(times=3), other.round(times=3))
        done = [table for table, _ in await stand.outcomes()]
        assert sorted(done) == sorted(set(done))
        assert len(done) == 8


async def test_an_adaptive_cadence_lists_seldom_and_says_why(lake):
    lake.add("acme", ["one"])
    cleanup = {"enabled": True, "dry_run": False, "cadence": "adaptive", "max_interval_hours": 48}
    async with standing(lake, orphan_cleanup=cleanup) as stand:
        await stand.round()
        (due,) = await stand.app.state.due_times()
        assert due.next_due == NOON + DAY
        await stand.pass_time(hours=24)
        (due,) = await stand.app.state.due_times()
        chosen = await cadence.recall(stand.app.state, "acme/d/one")
        assert due.next_due == chosen.next_look == NOON + timedelta(hours=72)
        assert chosen.why == "nothing became deletable lately, so it waits for up to 48 h"
        await stand.pass_time(hours=47)
        assert len(await stand.outcomes()) == 2
        await stand.pass_time(hours=1)
        assert [run["listed"] for run in await stand.app.state.list_runs(limit=3)] == [True] * 3
    lake.check_live()


async def test_a_budget_of_requests_postpones_tables_and_says_so(lake):
    lake.add("acme", ["one", "two"])
    lake.tenants["acme"]["requests_per_day"] = 190
    async with standing(lake) as stand:
        with capture_logs() as logs:
            await stand.round()
        assert await stand.outcomes() == [("acme/d/one", "done")], "a table that never ran is taken for a hundred"
        (told,) = [one for one in logs if one["event"] == "tables_postponed"]
        assert (told["tenant"], told["tables"], told["first"]) == ("acme", 1, "acme/d/two")
        assert stand.skipped("acme", "requests_per_day") == 1
        assert 0 < await request_budget.spent(stand.app.state, "acme", NOON) <= 90
        await stand.pass_time(minutes=11)
        assert len(await stand.outcomes()) == 2, "the first took less than that"
        await stand.app.state.remember("requests:acme:2026-05-02", "149")
        await stand.pass_time(hours=25)
        assert len(await stand.outcomes()) == 2
        await stand.app.state.remember("requests:acme:2026-05-02", "0")
        await stand.pass_time(minutes=11)
        assert len(await stand.outcomes()) == 4


def test_the_most_wasteful_tables_go_first_as_long_as_there_is_room():
    wishes = [
        request_budget.ExpectedRun(table=name, requests=requests, bytes=size)
        for name, requests, size in (("idle", 10, 0), ("dirty", 80, 500), ("dirtier", 90, 900), ("small", 5, 100))
    ]
    assert request_budget.fitting(wishes, 100) == {"dirtier", "small"}
    assert request_budget.fitting(wishes, 9) == {"small"}
    assert request_budget.fitting(wishes, 0) == set()


async def test_a_hint_pulls_the_next_look_forward_and_changes_no_rule(lake):
    lake.add("acme", ["one"])
    async with standing(lake) as stand:
        await stand.round()
        admin = AdminService(stand.scheduler, checkup=None)
        with pytest.raises(UnknownTable):
            await admin.hint("acme/d/none", event="committed", who="a test")
        assert await admin.hint("acme/d/one", event="committed", who="a test") == NOON + timedelta(hours=1)
        await stand.pass_time(minutes=59)
        assert len(await stand.outcomes()) == 1, "not sooner than min_interval_hours"
        await stand.pass_time(minutes=1)
        assert len(await stand.outcomes()) == 2
        (run,) = await stand.app.state.list_runs(limit=1)
        assert (run["outcome"], run["deleted"]["count"]) == ("done", 0)
    lake.check_live()


async def test_a_report_is_made_once_for_many_askers_and_anew_after_a_change(lake, monkeypatch):
    lake.add("acme", ["one", "two"])
    lake.add("umbrella", ["virus"])
    async with standing(lake) as stand:
        await stand.round()
        admin = AdminService(stand.scheduler, checkup=None)
        made, planned = [], stand.app.state.last_planned

        async def counted(tenants=None):
            made.append(tenants)
            return await planned(tenants)

        monkeypatch.setattr(stand.app.state, "last_planned", counted)
        reports = await asyncio.gather(*(admin.report(None) for _ in range(5)))
        assert len(made) == 1
        assert {row["table"] for row in reports[0]["tables"]} == {"acme/d/one", "acme/d/two", "umbrella/d/virus"}
        own = await admin.report(["acme"])
        assert (own["totals"]["tables"], len(made)) == (2, 2)
        assert own["totals"]["freed_bytes_30_days"] > 0
        await admin.pause("acme/d/one", who="a test", reason="why", admin=True)
        paused = {row["table"]: row["why"] for row in (await admin.report(None))["tables"]}
        assert paused["acme/d/one"]["scope"] == "acme/d/one"
        held = {one["name"]: one["value"] for one in await admin.settings_of("acme/d/two")}
        assert held["orphan_cleanup.enabled"] is True
        with pytest.raises(UnknownTable):
            await admin.settings_of("acme/d/none")
        with pytest.raises(UnknownTable):
            await admin.explain("acme/d/none", str(lake.root))
