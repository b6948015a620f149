"""Whole cycles that move files to the trash instead of deleting them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.cleanup.restore_finder import EMPTIED, GONE_FOR_GOOD
from lakesweep.cleanup.trash_report import restore_document
from lakesweep.daemon import holds
from lakesweep.daemon.admin_service import AdminService
from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import Refused
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    made = LocalLake(root=tmp_path)
    made.add("acme", ["t", "u"])
    return made


def settings_of(lake: LocalLake, **cleanup: object) -> Settings:
    rules = {"enabled": True, "dry_run": False, "deletion": "trash", **cleanup}
    return Settings.model_validate(lake.settings(orphan_cleanup=rules, state={"url": "memory://"}))


async def run(app: App, target: str = "acme/d/t", **how: str) -> CleanupRun:
    (work,) = await app.resolve(target, **how)
    return await app.run(work, execute=True)


async def test_files_go_to_the_trash_under_their_own_names(lake: LocalLake):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        document = await app.state.get_run(done.id)
        records = [record async for _, record in app.trails.inspector().records(done.id)]
    assert (done.outcome, done.deletion.deleted.files) == (Outcome.DONE, 3)
    assert lake.orphans_left("acme/d/t") == set()
    lake.check_live()
    root = lake.root / "lake" / "acme"
    trash = root / ".lakesweep-trash"
    found = sorted(str(path.relative_to(trash)) for path in trash.rglob("*.parquet"))
    assert found == [f"{done.id}/tables/t/{name}" for name in sorted(lake.tables["acme/d/t"].orphans)]
    assert (trash / found[0]).read_bytes() == b"part-00000-failed.parquet"
    assert document["trash"] == {"place": f"file://{trash}", "root": f"file://{root}"}
    assert [one["went"] for one in records if one["record"] == "deleted"] == ["trash"] * 3
    assert trash.stat().st_mode & 0o077 == 0


async def test_a_restore_ends_the_approval_of_what_it_restored(lake: LocalLake):
    """The restored files look as they did when they were approved, as they do in a bucket with versioning."""
    async with App.open(settings_of(lake, ceilings={"files": 2})) as app:
        refused = await run(app)
        assert refused.refusal.code == "ceiling_files"
        await app.approve(refused.id, by="ada")
        done = await run(app)
        assert (done.outcome, done.deletion.deleted.files) == (Outcome.DONE, 3)
        await app.restoring(done.id, (), ADA).execute(new_run_id())
        await holds.resume(app, "acme/d/t", by="ada", admin=True)
        again = await run(app)
        assert (again.outcome, again.refusal.code if again.refusal else None) == (Outcome.REFUSED, "ceiling_files")
        assert len(lake.orphans_left("acme/d/t")) == 3
        await app.approve(again.id, by="ada")  # another look at them, and another approval
        assert (await run(app)).outcome is Outcome.DONE


async def test_no_table_is_found_in_the_trash_and_no_listing_descends_into_it(lake: LocalLake):
    """Even where the dataset is the whole root, and the trash holds the log of a table."""
    lake.tenants["acme"]["datasets"][0]["location"] = lake.tenants["acme"]["root"]
    async with App.open(settings_of(lake)) as app:
        labels = [work.ref.label for work in await app.resolve("acme")]
        done = await run(app, "acme/d/tables/t")
        root = lake.root / "lake" / "acme"
        planted = root / ".lakesweep-trash" / done.id / "tables" / "t" / "_delta_log"
        planted.mkdir(parents=True)
        (planted / "00000000000000000000.json").write_text(lake.tables["acme/d/t"].log)
        assert (
            [work.ref.label for work in await app.resolve("acme")] == labels == ["acme/d/tables/t", "acme/d/tables/u"]
        )
        bare = await run(app, str(root / "tables" / "t"))
    assert bare.plan is not None
    assert bare.plan.candidates.files == 0


async def test_a_trash_inside_a_table_is_refused_before_anything_changes(lake: LocalLake):
    place = lake.directory("acme/d/t")
    async with App.open(settings_of(lake)) as app:
        (work,) = await app.resolve(str(place), root=str(place))
        bare = await app.run(work, execute=True)
    async with App.open(settings_of(lake, trash=f"{lake.directory('acme/d/u')}/_trash")) as app:
        inside_neighbour = await run(app)
    for refused in (bare, inside_neighbour):
        assert refused.refusal is not None
        assert refused.refusal.code == "trash_place"
        assert "set orphan_cleanup.trash" in refused.refusal.reason
    assert len(lake.orphans_left("acme/d/t")) == 3


async def test_a_trash_on_another_file_system_or_behind_a_link_is_refused(lake: LocalLake, tmp_path: Path):
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for place, why in ((f"{elsewhere}/lakesweep-test-trash", "different file systems"), (f"{link}/trash", "by a link")):
        async with App.open(settings_of(lake, trash=place)) as app:
            refused = await run(app)
        assert refused.refusal is not None
        assert (refused.refusal.code, why in refused.refusal.reason) == ("trash_place", True)
    assert len(lake.orphans_left("acme/d/t")) == 3


async def test_a_trash_that_cannot_be_looked_at_is_refused(lake: LocalLake, tmp_path: Path):
    async with App.open(settings_of(lake, trash=f"{tmp_path}/{'x' * 300}")) as app:
        refused = await run(app)
    assert refused.refusal is not None
    assert refused.refusal.code == "trash_place"
    assert "cannot be looked at: " in refused.refusal.reason
    assert "File name too long" in refused.refusal.reason
    assert len(lake.orphans_left("acme/d/t")) == 3


async def test_a_run_is_taken_back_with_every_byte_and_its_table_is_paused(lake: LocalLake):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert lake.orphans_left("acme/d/t") == set(lake.tables["acme/d/t"].orphans)
        for name in lake.tables["acme/d/t"].orphans:
            assert (lake.directory("acme/d/t") / name).read_bytes() == name.encode()
        assert restore_document(undone.result, paused=undone.paused) == {
            "run_id": done.id,
            "restored": {"count": 3, "bytes": 75},
            "already_there": 0,
            "not_restorable": {"count": 0, "files": []},
            "paused": True,
        }
        assert [hold.scope for hold in await app.state.holds()] == ["acme/d/t"]
        held = await run(app)
        assert held.refusal is not None
        assert held.refusal.code == "held"

        again = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (again.result.restored.files, again.result.already_there) == (0, 3)
        recorded = await app.state.get_run(undone.run.id)
        assert (recorded["outcome"], recorded["restored"]["count"], recorded["restored"]["run_id"]) == (
            "done",
            3,
            done.id,
        )
        (findings,) = [found async for found in app.trails.inspector().verify("acme/d/t")]
        assert (findings.faults, findings.remarks) == ([], [])
        told = await app.explain(str(lake.directory("acme/d/t") / "part-00000-failed.parquet"))
        assert f"by ada: run {done.id} had deleted it, run {undone.run.id} restored it" in told.sentences[-1]


async def test_a_run_that_was_still_planning_is_read_again_when_it_has_ended(lake: LocalLake, monkeypatch):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        known = app.state.get_run
        early = {**await known(done.id), "outcome": None, "finished_at": None, "trash": None}
        answers = [early]

        async def get_run(run_id: str):
            return answers.pop() if answers else await known(run_id)

        monkeypatch.setattr(app.state, "get_run", get_run)
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
    assert (undone.result.restored.files, undone.taken["outcome"]) == (3, Outcome.DONE)


async def test_a_restore_is_never_over_a_file_that_is_there_now(lake: LocalLake):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        new = lake.directory("acme/d/t") / "part-00001-failed.parquet"
        new.write_bytes(b"new")
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
    assert (undone.result.restored.files, undone.result.already_there) == (2, 1)
    assert new.read_bytes() == b"new"


async def test_only_what_matches_a_path_comes_back_and_a_dry_run_moves_nothing(lake: LocalLake):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        planned = await app.restoring(done.id, ("*00002*",), ADA).plan()
        assert (planned.result.restored.files, planned.paused) == (1, False)
        assert lake.orphans_left("acme/d/t") == set()
        await app.restoring(done.id, ("part-00002-failed.parquet",), ADA).execute(new_run_id())
        assert lake.orphans_left("acme/d/t") == {"part-00002-failed.parquet"}


async def test_what_was_deleted_for_good_or_emptied_is_reported_with_the_reason(lake: LocalLake):
    async with App.open(settings_of(lake, deletion="delete")) as app:
        done = await run(app)
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (bool(undone.why_nothing_restored), undone.paused, undone.result.not_restorable) == (True, False, 3)
        assert undone.result.examples[0].why == GONE_FOR_GOOD
        assert await app.state.holds() == []
    async with App.open(settings_of(lake)) as app:
        done = await run(app, "acme/d/u")
        (found,) = (lake.root / "lake").rglob("part-00000-failed.parquet")
        found.unlink()
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (undone.result.restored.files, undone.result.not_restorable) == (2, 1)
        assert undone.result.examples[0].why == EMPTIED


@pytest.mark.parametrize("bare", [False, True])
async def test_a_run_comes_back_from_a_trash_that_no_setting_names_any_more(lake: LocalLake, bare: bool):
    place, elsewhere = lake.root / "lake" / "acme", lake.root / "elsewhere"
    elsewhere.mkdir()
    if bare:
        lake.tenants.clear()
    state = {"url": f"sqlite:///{lake.root}/state.db"}
    rules = {"enabled": True, "dry_run": False, "deletion": "trash"}
    for trash in (str(elsewhere), None):
        settings = lake.settings(orphan_cleanup={**rules, **({"trash": trash} if trash else {})}, state=state)
        async with App.open(Settings.model_validate(settings)) as app:
            if trash:
                how = {"target": str(place / "tables" / "t"), "root": str(place)} if bare else {}
                done = await run(app, **how)
                assert len(list(elsewhere.rglob("*.parquet"))) == 3, done.reason
                continue
            planned = await app.restoring(done.id, (), ADA).plan()
            undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
    assert (planned.result.restored.files, undone.result.restored.files) == (3, 3)


async def test_a_restore_closes_runs_of_its_table_that_were_killed(lake: LocalLake):
    """Also the one that it takes back: else it would be under way for ever."""
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        killed = [replace(done, finished_at=None, outcome=None), replace(done, id=new_run_id(), outcome=None)]
        await app.state.start_run(killed[1])
        await app.state.update_run(killed[0])
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert undone.result.restored.files == 3
        assert await app.state.open_runs("acme/d/t") == []


async def test_the_run_of_a_bare_location_is_taken_back_too(lake: LocalLake):
    lake.tenants.clear()
    place = lake.root / "lake" / "acme"
    async with App.open(settings_of(lake)) as app:
        (work,) = await app.resolve(str(place / "tables" / "t"), root=str(place))
        done = await app.run(work, execute=True)
        assert (done.outcome, lake.orphans_left("acme/d/t")) == (Outcome.DONE, set()), done.reason
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (undone.result.restored.files, undone.paused) == (3, True)
        assert len(lake.orphans_left("acme/d/t")) == 3
        (work,) = await app.resolve(str(place / "tables" / "t"), root=str(place))
        held = await app.run(work, execute=True)
        assert held.refusal is not None
        assert held.refusal.code == "held"


async def test_the_api_takes_a_run_back_in_the_name_of_its_token(lake: LocalLake):
    async with App.open(settings_of(lake)) as app:
        done = await run(app)
        admin = AdminService(SimpleNamespace(app=app, invalidate=lambda: None), checkup=None)
        how = {"who": "token 3f2a", "admin": False}
        planned = await admin.restore(done.id, paths=["*00001*"], dry_run=True, **how)
        assert (planned["restored"]["count"], planned["paused"]) == (1, False)
        told = await admin.restore(done.id, paths=[], dry_run=False, **how)
        assert (told["run_id"], told["restored"], told["paused"]) == (done.id, {"count": 3, "bytes": 75}, True)
        (hold,) = await app.state.holds()
        assert (hold.by, hold.by_admin) == ("token 3f2a", False)
        with pytest.raises(Refused, match="nothing of run"):
            await admin.restore(done.id, paths=["no such file"], dry_run=False, **how)
