"""Whole cycles of a table that is not listed: a ready file list, hours old, says what is stored."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import Lake, later
from tests.builders.inventories import plain_file
from tests.builders.small_lake import LONG_AGO, LocalLake

from lakesweep.cleanup import execute
from lakesweep.daemon.app import App
from lakesweep.formats.iceberg.view import IcebergView
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

TABLE = "acme/d/one"
HOUR = timedelta(hours=1)


def write_list(target, directory, made_at):
    rows = [
        {
            "path": f"file://{path}",
            "size_bytes": path.stat().st_size,
            "modified_at": datetime.fromtimestamp(path.stat().st_mtime, UTC),
            "etag": None,
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]
    target.write_bytes(plain_file(rows))
    os.utime(target, (made_at.timestamp(), made_at.timestamp()))


class Stand:
    """One table, its list, and the application over both by the machine's own clock."""

    def __init__(self, home):
        self.lake = LocalLake(root=home)
        self.lake.add("acme", ["one"])
        self.directory = self.lake.directory(TABLE)
        self.list = home / "list.parquet"

    def write_list(self, *, age=HOUR):
        write_list(self.list, self.directory, datetime.now(UTC) - age)

    def put(self, name, data=b"left behind", at=LONG_AGO):
        path = self.directory / name
        path.write_bytes(data)
        os.utime(path, (at.timestamp(), at.timestamp()))
        return path

    def commit(self, version, name):
        """A live file as a writer adds it now."""
        path = self.put(name, b"fresh", datetime.now(UTC))
        add = {"path": name, "partitionValues": {}, "size": 5, "modificationTime": 1, "dataChange": True}
        log = self.directory / "_delta_log" / f"{version:020}.json"
        log.write_text(json.dumps({"add": add}) + "\n")
        return path

    def app(self, clock=None, **cleanup):
        settings = self.lake.settings(orphan_cleanup={"enabled": True, "dry_run": False, **cleanup})
        settings["tenants"][0]["datasets"][0]["inventory"] = str(self.list)
        return App.open(Settings.model_validate(settings), clock=clock)

    async def run(self, **cleanup):
        async with self.app(**cleanup) as app:
            (work,) = await app.resolve(TABLE)
            return await app.run(work, execute=None)

    def names(self):
        return {path.name for path in self.directory.glob("*.parquet")}


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


async def test_only_what_the_list_knows_and_nobody_touched_since_is_deleted(stand):
    """A table that is written all the time is cleaned all the same."""
    stand.put("part-rewritten.parquet", b"12345")
    stand.put("part-aged.parquet", b"12345")
    stand.put("part-gone.parquet")
    stand.write_list()
    stand.put("part-rewritten.parquet", b"54321", datetime.now(UTC))
    stand.put("part-aged.parquet", b"54321", LONG_AGO + timedelta(seconds=2))
    (stand.directory / "part-gone.parquet").unlink()
    stand.put("part-unknown.parquet")
    for version in range(1, 30):
        stand.commit(version, f"part-live-{version}.parquet")
    before = stand.names()
    run = await stand.run()
    assert run.outcome is Outcome.DONE, run.reason
    assert before - stand.names() == {f"part-0000{number}-failed.parquet" for number in range(3)}
    assert (run.spared, run.deletion.already_gone, run.deletion.deleted.files) == (2, 1, 3)
    assert run.plan.missing_count == 0


async def test_what_an_old_list_names_is_looked_at_once_more(stand, monkeypatch):
    asked, verify = [], execute.verify_unchanged

    async def noted(storage, candidates):
        candidates = list(candidates)
        asked.extend(candidates)
        return await verify(storage, candidates)

    monkeypatch.setattr(execute, "verify_unchanged", noted)
    stand.write_list()
    run = await stand.run()
    assert (run.outcome, run.deletion.deleted.files) == (Outcome.DONE, 3)
    assert len(asked) == 3


async def test_an_inventory_made_while_waiting_is_not_from_the_future(stand):
    clock = SetClock(datetime.now(UTC))

    async def now():
        return clock.at

    async with stand.app(clock=clock) as app:
        app.adapters.storage("acme").now = now
        (work,) = await app.resolve(TABLE)
        listings = app.listings.of("acme")
        while not listings.locked():
            await listings.acquire()
        planning = asyncio.create_task(app.plan(work))
        while not listings._own._waiters:
            assert not planning.done()
            await asyncio.sleep(0)
        clock.at += 3 * HOUR
        write_list(stand.list, stand.directory, clock.at - HOUR)
        listings.release()
        run = await planning
    assert (run.refusal, run.plan.candidates.files) == (None, 3)


async def test_a_list_older_than_the_grace_period_is_refused(stand):
    stand.write_list(age=25 * HOUR)
    before = stand.names()
    run = await stand.run()
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "inventory_too_old"
    assert "longer ago than the grace period" in run.reason
    assert stand.names() == before
    assert (await stand.run(grace_period_hours=26)).outcome is Outcome.DONE
    assert len(before - stand.names()) == 3


async def test_a_live_file_that_is_really_gone_still_stops_the_table(stand):
    stand.write_list()
    stand.commit(1, "part-lost.parquet").unlink()
    run = await stand.run()
    assert run.refusal.code == "missing_live_files"
    assert run.deletion.deleted == Tally()


async def test_a_damaged_list_leaves_the_table_alone(stand):
    stand.write_list()
    made = stand.list.stat().st_mtime
    stand.list.write_bytes(stand.list.read_bytes()[:-20])
    os.utime(stand.list, (made, made))
    before = stand.names()
    run = await stand.run()
    assert (run.outcome, run.refusal.code) == (Outcome.FAILED, "indeterminate")
    assert f"cannot read file://{stand.list}: it cannot be used as an inventory" in run.reason
    assert stand.names() == before


class IcebergStand:
    """An Iceberg table with one unreferenced data file, ten days from now; the list was made the day before."""

    def __init__(self, home):
        self.lake = Lake.make(home / "lake")
        self.table = self.lake.create("mine")
        self.table.append(1)
        self.directory = Path(Location.parse(self.table.table.location()).path)
        self.stray = self.directory / "data" / "stray.parquet"
        self.stray.write_bytes(b"live in another table, perhaps")
        self.list = home / "list.parquet"
        self.bench = Bench(
            root=home / "lake",
            clock=SetClock(later(days=10)),
            scratch=home / "scratch",
            inventory=Location.parse(str(self.list)),
        )

    def write_list(self):
        write_list(self.list, self.directory, self.bench.clock.at - 24 * HOUR)

    def metadata(self, number, data):
        path = self.directory / "metadata" / f"{number:05}-99999999-0000-4000-8000-000000000000.metadata.json"
        path.write_bytes(data)
        return path

    async def run(self):
        ours = self.lake.format(storage=self.bench.storage, writer=self.bench.writer)
        policy = CleanupPolicy(max_snapshot_age=timedelta(days=30), grace_period=72 * HOUR)
        return await self.bench.run(await ours.open((await self.table.open()).ref), policy)


@pytest.fixture
def iceberg(tmp_path):
    return IcebergStand(tmp_path)


def other_history(lake):
    other = lake.create("theirs")
    other.append(2)
    other.append(3)
    metadata = Path(Location.parse(other.table.location()).path) / "metadata"
    return [path.read_bytes() for path in sorted(metadata.glob("*.metadata.json"))]


async def test_another_table_newer_than_the_inventory_stops_the_table(iceberg):
    older, newer = other_history(iceberg.lake)[-2:]
    listed = iceberg.metadata(1, older)
    iceberg.write_list()
    listed.unlink()
    iceberg.metadata(2, newer)
    run = await iceberg.run()
    assert run.refusal.code == "foreign_table"
    assert iceberg.stray.exists()


async def test_another_table_in_its_own_directory_stops_the_table(iceberg):
    older, newer = other_history(iceberg.lake)[-2:]
    nested = iceberg.directory / "data" / "inner" / "metadata"
    nested.mkdir(parents=True)
    (nested / "00001-a.metadata.json").write_bytes(older)
    iceberg.write_list()
    (nested / "00001-a.metadata.json").rename(nested / "00002-b.metadata.json")
    (nested / "00002-b.metadata.json").write_bytes(newer)
    run = await iceberg.run()
    assert run.refusal.code == "foreign_table"
    assert iceberg.stray.exists()


async def test_a_history_continued_by_another_catalog_stops_the_table(iceberg):
    iceberg.write_list()
    current = sorted((iceberg.directory / "metadata").glob("*.metadata.json"))[-1]
    document = json.loads(current.read_text())
    document["last-updated-ms"] += 10_000
    document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"{current.parent}/00007-elsewhere.metadata.json"}]
    iceberg.metadata(8, json.dumps(document).encode())
    run = await iceberg.run()
    assert run.refusal.code == "foreign_table"
    assert iceberg.stray.exists()


async def test_a_log_of_another_format_that_is_newer_than_the_list_stops_the_table(iceberg):
    iceberg.write_list()
    (iceberg.directory / "_delta_log").mkdir()
    (iceberg.directory / "_delta_log" / f"{0:020}.json").write_text("{}")
    run = await iceberg.run()
    assert run.refusal.code == "foreign_table"
    assert iceberg.stray.exists()


async def test_own_commits_since_the_list_and_while_planning_do_not_stop_the_table(iceberg, monkeypatch):
    iceberg.write_list()
    iceberg.table.append(2)
    mark, ids = IcebergView.references, iter((3, 4))

    async def mark_and_commit(*arguments, **named):
        found = await mark(*arguments, **named)
        for one in ids:
            iceberg.table.append(one)
        return found

    monkeypatch.setattr(IcebergView, "references", mark_and_commit)
    run = await iceberg.run()
    assert run.outcome is Outcome.DONE, run.reason
    assert not iceberg.stray.exists()
    assert len(iceberg.table.rows()) == 4
