"""The service empties the trash: what runs of ours moved there, when their time is over, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.daemon import trash_keeper
from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import StateError
from lakesweep.model.run import Outcome
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")


class Clock:
    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    made = LocalLake(root=tmp_path)
    made.add("acme", ["t", "u"])
    return made


def opened(lake: LocalLake, clock: Clock, **cleanup: object) -> App:
    rules = {"enabled": True, "dry_run": False, "deletion": "trash", **cleanup}
    settings = Settings.model_validate(lake.settings(orphan_cleanup=rules, state={"url": "memory://"}))
    return App.open(settings, clock=clock)


async def run(app: App, target: str = "acme/d/t"):
    (work,) = await app.resolve(target)
    done = await app.run(work, execute=True)
    assert done.outcome is Outcome.DONE, done.reason
    return done


def later(app: App, clock: Clock, monkeypatch, hours: float) -> None:
    """The clocks of this machine and of the store go on; no file is touched."""
    clock.ahead += timedelta(hours=hours)

    async def now(_self) -> datetime:
        return clock.now()

    monkeypatch.setattr("lakesweep.storage.local.store.LocalStorage.now", now)


def left(lake: LocalLake) -> list[str]:
    trash = lake.root / "lake" / "acme" / ".lakesweep-trash"
    return sorted(path.name for path in trash.rglob("*") if path.is_file())


async def test_files_leave_the_trash_by_the_age_of_their_move(lake, monkeypatch):
    """The files are years old: what counts is when they came here."""
    clock = Clock()
    async with opened(lake, clock) as app:
        (acme,) = app.settings.tenants
        done = await run(app)
        later(app, clock, monkeypatch, 167.9)
        assert await trash_keeper.empty(app, acme) == []
        assert len(left(lake)) == 3
        later(app, clock, monkeypatch, 0.2)
        (emptied,) = await trash_keeper.empty(app, acme)
        assert (emptied.outcome, emptied.deletion.deleted.files) == (Outcome.DONE, 3)
        assert left(lake) == []
        assert await trash_keeper.empty(app, acme) == []
        recorded = await app.state.get_run(emptied.id)
        assert (recorded["table"], recorded["deleted"]["count"]) == ("acme/.trash/emptied", 3)
        (findings,) = [found async for found in app.trails.inspector().verify("acme/.trash/emptied")]
        assert (findings.faults, findings.remarks) == ([], [])
        assert b'lakesweep_trash_files_emptied_total{tenant="acme"} 3.0' in app.metrics.exposition()
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert undone.why_nothing_restored
    lake.check_live()


async def test_an_emptying_that_broke_off_is_closed_by_the_next_one(lake, monkeypatch):
    clock = Clock()
    async with opened(lake, clock) as app:
        (acme,) = app.settings.tenants
        await run(app)
        later(app, clock, monkeypatch, 169)

        async def away(_header):
            raise StateError("the state store is away")

        with monkeypatch.context() as broken:
            broken.setattr(app.state, "save_plan", away)
            with pytest.raises(StateError):
                await trash_keeper.empty(app, acme)
        assert len(left(lake)) == 3
        (opened_run,) = await app.state.open_runs("acme/.trash/emptied")
        (emptied,) = await trash_keeper.empty(app, acme)
        assert emptied.outcome is Outcome.DONE
        assert await app.state.open_runs("acme/.trash/emptied") == []
        assert (await app.state.get_run(opened_run["run_id"]))["outcome"] == "failed"
        await app.state.start_run(replace(emptied, id=new_run_id(), finished_at=None, outcome=None))
        assert await trash_keeper.empty(app, acme) == []  # nothing is left that is due
        assert await app.state.open_runs("acme/.trash/emptied") == []


async def test_files_of_others_and_of_unknown_runs_stay_in_the_trash(lake, monkeypatch):
    clock = Clock()
    async with opened(lake, clock) as app:
        (acme,) = app.settings.tenants
        done = await run(app)
        trash = lake.root / "lake" / "acme" / ".lakesweep-trash"
        for name in (f"{done.id}/tables/t/theirs", "notes/readme", f"{'0f' * 16}/tables/t/unknown", "loose"):
            (trash / name).parent.mkdir(parents=True, exist_ok=True)
            (trash / name).write_text("theirs")
        later(app, clock, monkeypatch, 1000)
        (emptied,) = await trash_keeper.empty(app, acme)
        assert emptied.deletion.deleted.files == 3
        assert left(lake) == ["loose", "readme", "theirs", "unknown"]


@pytest.mark.parametrize("why", ["paused", "dry_run", "disabled", "under way"])
async def test_a_trash_that_must_not_be_emptied_is_not(lake, monkeypatch, why):
    clock = Clock()
    rules = {"dry_run": {"dry_run": True}, "disabled": {"enabled": False}}.get(why, {})
    async with opened(lake, clock, **rules) as app:
        (acme,) = app.settings.tenants
        done = await run(app)
        if why == "paused":
            await app.state.set_hold(Hold(scope="acme", since=clock.now(), by="ada"))
        if why == "under way":
            document = await app.state.get_run(done.id)
            monkeypatch.setattr(app.state, "get_run", _answering({**document, "outcome": None, "finished_at": None}))
        later(app, clock, monkeypatch, 1000)
        assert await trash_keeper.empty(app, acme) == []
        assert len(left(lake)) == 3


async def test_the_trash_of_a_dataset_no_longer_configured_stays_and_comes_back(lake, monkeypatch):
    """Its own trash_hours may have been longer; nobody knows now."""
    clock = Clock()
    async with opened(lake, clock) as app:
        done = await run(app)
        lake.tenants["acme"]["datasets"][0]["id"] = "renamed"
        app.settings = Settings.model_validate(
            lake.settings(
                orphan_cleanup={"enabled": True, "dry_run": False, "deletion": "trash"}, state={"url": "memory://"}
            )
        )
        (acme,) = app.settings.tenants
        later(app, clock, monkeypatch, 1000)
        assert await trash_keeper.empty(app, acme) == []
        assert len(left(lake)) == 3
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (undone.result.restored.files, undone.paused) == (3, True)
        assert [hold.scope for hold in await app.state.holds()] == ["acme/d/t"]


def _answering(document):
    async def get_run(_run_id):
        return document

    return get_run


async def test_what_lies_in_the_trash_is_shown_per_run_and_until_when(lake):
    clock = Clock()
    async with opened(lake, clock, trash_hours=24) as app:
        (acme,) = app.settings.tenants
        first, second = await run(app), await run(app, "acme/d/u")
        (shown,) = await trash_keeper.shown(app, acme)
    assert shown["place"].endswith("/lake/acme/.lakesweep-trash")
    assert {(one["run_id"], one["table"], one["count"]) for one in shown["runs"]} == {
        (first.id, "acme/d/t", 3),
        (second.id, "acme/d/u", 3),
    }
    moved, until = (datetime.fromisoformat(shown["runs"][0][key]) for key in ("moved_at", "until"))
    assert until - moved == timedelta(hours=24)
