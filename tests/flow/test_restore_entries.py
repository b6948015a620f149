"""A Delta log comes back only into the log that it was taken from, and only together with what its versions need."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.delta import DeltaWriter, LocalPlace
from tests.builders.paimon import age, fixture_table
from tests.builders.small_lake import LocalLake

from lakesweep.cleanup.restore_entries import ANOTHER_TABLE
from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")
LONG_AGO = datetime.now(UTC) - timedelta(days=200)


class Swept:
    """A table with versions 0 to 6 of which a run took 0 to 3 and the file that they had."""

    def __init__(self, tmp_path: Path) -> None:
        self.lake = LocalLake(root=tmp_path)
        self.lake.add("acme", [])
        self.directory = self.lake.directory("acme/d/t")
        self.write("a" * 8, versions=4)

    def write(self, name: str, versions: int) -> None:
        table_id = f"{name}-0000-4000-8000-000000000000"
        writer = DeltaWriter(place=LocalPlace(self.directory), table_id=table_id)
        writer.create(LONG_AGO)
        writer.add("old.parquet", at=LONG_AGO + timedelta(hours=1))
        for number in range(2, versions):
            writer.add(f"{name}-{number}.parquet", at=LONG_AGO + timedelta(hours=number))
        writer.remove("old.parquet", at=LONG_AGO + timedelta(days=2))
        writer.checkpoint(at=LONG_AGO + timedelta(days=2))
        for number in range(2):
            at = LONG_AGO + timedelta(days=5 + number)
            writer.add(f"new-{number}.parquet", at=at)

    def log(self) -> list[int]:
        return sorted(int(path.name[:20]) for path in (self.directory / "_delta_log").glob("*[0-9].json"))

    def open(self):
        rules = {"enabled": True, "dry_run": False, "deletion": "trash"}
        return App.open(Settings.model_validate(self.lake.settings(orphan_cleanup=rules, state={"url": "memory://"})))

    async def clean(self, app: App) -> str:
        (work,) = await app.resolve("acme/d/t")
        done = await app.run(work, execute=True)
        assert done.outcome is Outcome.DONE, done.reason
        assert self.log() == [4, 5, 6]
        assert not (self.directory / "old.parquet").exists()
        return done.id


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    return Swept(tmp_path)


async def test_the_log_of_the_same_table_comes_back_whole(swept: Swept):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        assert (await app.restoring(run_id, (), ADA).plan()).result.not_restorable == 0
        undone = await app.restoring(run_id, (), ADA).execute(new_run_id())
    assert (swept.log(), undone.result.not_restorable) == ([0, 1, 2, 3, 4, 5, 6], 0)
    assert (swept.directory / "old.parquet").exists()


@pytest.mark.parametrize("noted", [True, False], ids=["uuid noted", "run of an older release"])
@pytest.mark.parametrize("versions", [4, 40])
async def test_the_log_of_a_table_created_anew_stays_its_own(swept: Swept, monkeypatch, noted: bool, versions: int):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        shutil.rmtree(swept.directory)
        swept.write("b" * 8, versions)
        for gone in range(2):
            (swept.directory / "_delta_log" / f"{gone:020}.json").unlink()
        before = swept.log()
        if not noted:
            known = app.state.get_run

            async def get_run(asked: str):
                found = await known(asked)
                return {**found, "table_uuid": None}

            monkeypatch.setattr(app.state, "get_run", get_run)
        planned = await app.restoring(run_id, (), ADA).plan()
        undone = await app.restoring(run_id, (), ADA).execute(new_run_id())
    assert swept.log() == before
    for told in (planned.result, undone.result):
        assert told.not_restorable == 2
        assert told.examples[0].why.startswith(ANOTHER_TABLE)


async def test_the_log_stays_if_the_table_there_now_cannot_be_read(swept: Swept):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        for path in (swept.directory / "_delta_log").glob("*.checkpoint.parquet"):
            path.unlink()
        undone = await app.restoring(run_id, (), ADA).execute(new_run_id())
    assert swept.log() == [4, 5, 6]
    assert "the table cannot be read" in undone.result.examples[0].why


async def test_the_log_of_a_dropped_table_comes_back(swept: Swept):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        shutil.rmtree(swept.directory)
        await app.restoring(run_id, (), ADA).execute(new_run_id())
    assert swept.log() == [0, 1, 2, 3]


async def test_a_path_of_log_files_alone_brings_none_back_without_their_files(swept: Swept):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        only = app.restoring(run_id, ("_delta_log/*",), ADA)
        assert "old.parquet is not there" in (await only.plan()).result.examples[0].why
        undone = await only.execute(new_run_id())
        assert undone.run.outcome is Outcome.REFUSED
        assert "old.parquet is not there" in undone.run.reason
        assert (undone.result.not_restorable, undone.run.restored) == (len(undone.result.examples), undone.result)
        assert undone.result.examples[0].path.endswith("_delta_log/00000000000000000003.json")
        assert swept.log() == [4, 5, 6]
        await app.restoring(run_id, ("old.parquet",), ADA).execute(new_run_id())
        assert (swept.directory / "old.parquet").exists()
        await only.execute(new_run_id())
    assert swept.log() == [0, 1, 2, 3, 4, 5, 6]


async def test_a_path_that_would_leave_a_gap_in_the_log_brings_nothing_back(swept: Swept):
    async with swept.open() as app:
        run_id = await swept.clean(app)
        await app.restoring(run_id, ("old.parquet",), ADA).execute(new_run_id())
        undone = await app.restoring(run_id, ("*0000[01].json",), ADA).execute(new_run_id())
        assert swept.log() == [4, 5, 6]
        assert "number 2 is missing" in undone.run.reason


async def test_the_log_comes_back_although_its_dataset_is_no_longer_configured(swept: Swept):
    """The table is opened by its place."""
    async with swept.open() as app:
        run_id = await swept.clean(app)
        swept.lake.tenants["acme"]["datasets"].clear()
        app.settings = Settings.model_validate(swept.lake.settings(state={"url": "memory://"}))
        undone = await app.restoring(run_id, (), ADA).execute(new_run_id())
    assert (swept.log(), undone.result.examples) == ([0, 1, 2, 3, 4, 5, 6], ())


@pytest.mark.parametrize("anew", [False, True])
async def test_paimon_snapshots_come_back_into_the_same_table_only(tmp_path: Path, anew: bool):
    """Readers are told of them: Paimon refuses what is below the EARLIEST hint."""
    path = fixture_table("paimon/orc/append_09.db/append_09", tmp_path / "lake")
    age(tmp_path / "lake")
    dataset = {"id": "d", "format": "paimon", "warehouse": str(path.parent.parent), "database": "append_09"}
    rules = {"enabled": True, "dry_run": False, "deletion": "trash", "max_snapshot_age_hours": 1}
    settings = LocalLake(root=tmp_path).settings(orphan_cleanup=rules, state={"url": "memory://"})
    settings["tenants"] = [{"id": "acme", "root": str(tmp_path / "lake"), "datasets": [dataset]}]

    def snapshots() -> set[str]:
        return {one.name for one in (path / "snapshot").glob("snapshot-*")}

    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/*")
        before, done = snapshots(), await app.run(work, execute=True)
        left = snapshots()
        assert (len(before), len(left)) == (5, 1), done.reason
        assert (path / "snapshot" / "EARLIEST").read_text() == "5"
        if anew:
            schema = path / "schema" / "schema-0"
            schema.write_text(schema.read_text() + "\n")
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
    assert snapshots() == (left if anew else before)
    assert (path / "snapshot" / "EARLIEST").read_text() == ("5" if anew else "1")
    assert {one.why for one in undone.result.examples} == ({ANOTHER_TABLE} if anew else set())
