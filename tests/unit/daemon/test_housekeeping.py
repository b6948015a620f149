"""Housekeeping removes what is old and nothing else, on disk and in an object store."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from tests.builders.small_lake import LocalLake, small_table, write_local

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.daemon import clock, housekeeping
from lakesweep.daemon.app import App
from lakesweep.daemon.clock import Uptime
from lakesweep.engines import scratch as engine_scratch
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import Held, MemoryStorage, MemoryWriter, bucket, forget

DAY = timedelta(days=1)


class HandClock:
    def __init__(self):
        self.moment = datetime.now(UTC)

    def now(self):
        return self.moment


@pytest.fixture
async def app(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    settings = Settings.model_validate(lake.settings(service={"data_dir": str(tmp_path / "s"), "keep_runs_days": 10}))
    async with App.open(settings, clock=HandClock()) as opened:
        yield opened


async def test_an_old_run_goes_with_its_plan_and_a_young_one_stays(app):
    (work,) = await app.resolve("acme/d/one")
    old = await app.run(work, execute=False)
    app.clock.moment += 9 * DAY
    young = await app.run(work, execute=False)
    assert await housekeeping.run_once(app) == 0
    app.clock.moment += 2 * DAY
    assert await housekeeping.run_once(app) == 1
    assert await app.state.get_run(old.id) is None
    assert await app.state.get_run(young.id) is not None
    plans = {path.name for path in app.artifacts.file("plans", "x").parent.iterdir()}
    assert plans == {f"{young.id}.parquet"}


async def test_unfinished_files_of_killed_processes_go_after_a_day(app):
    names = ("fetched/a.parquet", "ledgers/b.observed", "ledgers/c.partial", "plans/d.parquet.partial")
    kept = ("plans/e.parquet", "ledgers/f.parquet")
    for name in (*names, *kept):
        path = app.artifacts.file(*name.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    await housekeeping.run_once(app)
    assert all(app.artifacts.file(*name.split("/")).exists() for name in (*names, *kept))
    app.clock.moment += 2 * DAY
    await housekeeping.run_once(app)
    assert not any(app.artifacts.file(*name.split("/")).exists() for name in names)
    assert all(app.artifacts.file(*name.split("/")).exists() for name in kept)


class JumpingClock(HandClock):
    """Its wall clock may be set; its uptime stands still."""

    def uptime(self):
        return Uptime(boot="boot-1", seconds=1000.0)


async def test_an_ended_hold_is_forgotten_only_by_a_clock_that_is_believed(tmp_path):
    settings = Settings.model_validate({"service": {"data_dir": str(tmp_path)}, "state": {"url": "memory://"}})
    async with App.open(settings, clock=JumpingClock()) as app:
        now = app.clock.now()
        await app.state.set_hold(Hold(scope="acme", since=now, by="ann", ends_at=now + DAY))
        await housekeeping.run_once(app)
        app.clock.moment += 30 * DAY
        await housekeeping.run_once(app)
        assert [hold.scope for hold in await app.state.ended_holds()] == ["acme"]
        app.clock.moment = now
        assert [hold.scope for hold in await app.state.holds()] == ["acme"]
        app.clock.moment += 30 * DAY
        await clock.trust_clocks(app.state)
        await housekeeping.run_once(app)
        assert await app.state.ended_holds() == []


async def test_nothing_outside_of_its_own_place_is_discarded(tmp_path):
    discarded = []

    async def discard(paths):
        discarded.extend(paths)

    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"x")
    shared = Location.parse("memory://ops/lakesweep")
    kept = Artifacts(tmp_path / "own", shared=shared, storage=MemoryStorage(), writer=MemoryWriter(), discard=discard)
    await kept.discard(str(outside))
    await kept.discard("memory://ops/other/plans/a.parquet/2")
    await kept.discard("memory://ops/lakesweep/plans/a.parquet/not-a-number")
    assert outside.exists()
    assert discarded == []
    await kept.discard("memory://ops/lakesweep/plans/a.parquet/2")
    assert discarded == [f"memory://ops/lakesweep/plans/a.parquet/2/{part}" for part in (0, 1)]


async def test_a_published_file_comes_back_whole_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr("lakesweep.cleanup.artifacts.PART_BYTES", 10)
    shared = Location.parse("memory://ops/whole")
    kept = Artifacts(tmp_path / "own", shared=shared, storage=MemoryStorage(), writer=MemoryWriter())
    for size in (0, 1, 10, 11, 35):
        path = kept.file("plans", f"{size}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        address = await kept.publish(path)
        async with kept.opened(address) as copy:
            assert Path(copy).read_bytes() == path.read_bytes()
        assert not any((tmp_path / "own/fetched").iterdir())


def test_leftovers_are_judged_by_their_age(tmp_path):
    kept = Artifacts(tmp_path)
    young, old = tmp_path / "fetched/young", tmp_path / "fetched/old"
    young.parent.mkdir()
    for path in (young, old):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    assert kept.remove_leftovers(datetime.now(UTC)) == 1
    assert young.exists()


@pytest.mark.parametrize("hours", [None, 6])
async def test_the_service_reports_ghosts_and_looks_only_if_configured(tmp_path, hours):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    write_local(tmp_path / "lake" / "acme" / "old" / "clicks", small_table("clicks"))
    values = lake.settings(state={"url": "memory://"}, daemon={"ghost_interval_hours": hours} if hours else {})
    async with App.open(Settings.model_validate(values), clock=HandClock()) as app:
        await housekeeping.look_for_ghosts(app)
        assert (b'lakesweep_ghosts{tenant="acme"} 1.0' in app.metrics.exposition()) == bool(hours)
        await app.ghosts("acme")
        app.metrics.count_ghosts("acme", Tally())
        await housekeeping.look_for_ghosts(app)
        assert b'lakesweep_ghosts{tenant="acme"} 1.0' in app.metrics.exposition()
    assert (tmp_path / "lake" / "acme" / "old" / "clicks" / "_delta_log").is_dir()


async def test_only_scratch_of_killed_processes_goes(app, tmp_path):
    scratch = tmp_path / "s" / "scratch"
    killed = scratch / f"plan-{'0' * 32}"
    async with engine_scratch.scratch(scratch) as under_way:
        killed.mkdir()
        (killed / "listing.parquet").write_bytes(b"x")
        killed.with_suffix(".lock").touch()  # its owner's lock on it died with the owner
        await housekeeping.run_once(app)
        assert sorted(scratch.iterdir()) == sorted([under_way, under_way.with_suffix(".lock")])


async def test_scratch_that_other_machines_mount_is_kept_for_a_day(tmp_path):
    """Their locks may be invisible here: what they began in the last day may be under way."""
    old, live = (tmp_path / "scratch" / f"plan-{digit * 32}" for digit in "01")
    for one in (old, live):
        one.mkdir(parents=True)
        one.with_suffix(".lock").touch()
    os.utime(old.with_suffix(".lock"), (0, 0))
    settings = {"service": {"data_dir": str(tmp_path / "data")}, "state": {"url": "memory://"}}
    settings["engine"] = {"spark": {"master": "spark://cluster:7077", "scratch": str(tmp_path / "scratch")}}
    async with App.open(Settings.model_validate(settings)) as app:
        await housekeeping.run_once(app)
    assert sorted((tmp_path / "scratch").iterdir()) == [live, live.with_suffix(".lock")]


async def test_scratch_objects_of_killed_processes_go_after_a_day(tmp_path):
    """An object store has no locks: what was written in the last day may belong to a plan under way."""
    settings = {"service": {"data_dir": str(tmp_path)}, "state": {"url": "memory://"}}
    settings["engine"] = {"spark": {"scratch": "memory://left-over/plans"}}
    objects = bucket("left-over").objects
    old, now = f"plans/plan-{'0' * 32}", datetime.now(UTC)
    live = f"plans/plan-{'1' * 32}"
    times = {
        f"{old}/started": now - 3 * DAY,
        f"{old}/read/x.arrow": now - 2 * DAY,
        f"{live}/started": now - 2 * DAY,
        f"{live}/read/x.arrow": now - DAY / 2,
        "plans/of-others/x": now - 9 * DAY,
    }
    try:
        objects.update({key: Held(data=b"x", modified_at=at) for key, at in times.items()})
        async with App.open(Settings.model_validate(settings)) as app:
            await housekeeping.run_once(app)
        assert sorted(objects) == sorted(key for key in times if not key.startswith(old))
    finally:
        forget("left-over")


@pytest.mark.parametrize("spark", [{"scratch": f"/{300 * 'x'}"}, {"conf": {"spark.lakesweep.scratch": "s3:ops/plans"}}])
async def test_scratch_that_cannot_be_read_does_not_stop_housekeeping(tmp_path, spark):
    """An error that nobody expects would end the service."""
    settings = {"service": {"data_dir": str(tmp_path)}, "state": {"url": "memory://"}, "engine": {"spark": spark}}
    async with App.open(Settings.model_validate(settings)) as app:
        with structlog.testing.capture_logs() as logged:
            assert await housekeeping.run_once(app) == 0
    (warning,) = [one for one in logged if one["event"] == "scratch_not_tidied"]
    assert warning["reason"].startswith("engine.spark.scratch = ")
