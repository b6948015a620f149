"""Cycles that do not list: what stands in for each guard that a listing feeds, and when there is a listing anyway."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.iceberg import pause
from tests.builders.iceberg_flow import POLICY, directory, live_files, plant

from lakesweep.cleanup import report
from lakesweep.formats import unique_names
from lakesweep.model.files import Reason, Verdict
from lakesweep.model.location import Location
from lakesweep.model.run import ListingMode, Outcome

SHORT = replace(POLICY, max_snapshot_age=timedelta(days=1))


async def run(bench, table, listing=ListingMode.NEVER, policy=SHORT, *, execute=True):
    ours = table.lake.format(storage=bench.storage, writer=bench.writer)
    return await bench.run(await ours.open((await table.open()).ref), policy, execute=execute, listing=listing)


@pytest.fixture
async def table(lake, bench):
    """It was listed once; since then an overwrite has made the first snapshots' files expire."""
    table = lake.create()
    table.append(1)
    pause()
    table.append(2)
    pause()
    assert (await run(bench, table, ListingMode.ALWAYS, POLICY)).outcome is Outcome.DONE
    table.overwrite(3)
    return table


async def test_only_what_expires_goes_and_the_rest_waits_for_a_listing(bench, table):
    old = live_files(table)
    orphan = plant(table, "data/orphan.parquet")
    done = await run(bench, table)
    assert (done.outcome, done.plan.listed, done.listed_because) == (Outcome.DONE, False, None)
    assert done.plan.by_reason.keys() == {Reason.EXPIRED}
    assert done.deletion.deleted.files > 2
    assert orphan.exists()
    assert all(path.exists() for path in old)
    document = report.run_document(done)
    assert (document["listed"], document["listed_because"]) == (False, None)
    assert document["last_listed_at"] == report.iso_utc(bench.clock.now())
    listed = await run(bench, table, ListingMode.ALWAYS)
    assert (listed.plan.listed, orphan.exists()) == (True, False)
    assert report.run_document(listed)["listed"] is True


async def test_a_table_is_listed_first_in_every_place(bench, lake):
    table = lake.create()
    table.history()
    done = await run(bench, table)
    assert (done.outcome, done.plan.listed) == (Outcome.DONE, True)
    assert done.listed_because == "it has not been listed in this place before"
    table.append(9)
    assert (await run(bench, table)).plan.listed is False


async def test_a_listing_that_was_refused_does_not_count(bench, table):
    live_files(table)[0].rename(directory(table) / "moved")
    refused = await run(bench, table, ListingMode.ALWAYS)
    assert (refused.outcome, refused.refusal.code) == (Outcome.REFUSED, "missing_live_files")
    again = await run(bench, table)
    assert (again.outcome, again.refusal.code, again.plan.listed) == (Outcome.REFUSED, "missing_live_files", True)
    assert "was refused" in again.listed_because


async def test_sightings_ask_for_a_listing(bench, table):
    done = await run(bench, table, policy=replace(SHORT, confirm_after=timedelta(hours=1)))
    assert (done.plan.listed, done.deletion.deleted.files) == (True, 0)
    assert "confirm_after_hours" in done.listed_because


async def test_a_link_asks_for_a_listing(bench, table):
    (directory(table) / "data" / "again").symlink_to(directory(table) / "data")
    done = await run(bench, table, execute=False)
    assert done.plan.listed
    assert "may give files a second name" in done.listed_because


@pytest.mark.parametrize("place", ["_delta_log", "data/_delta_log", "data/.hoodie", "data/schema"])
async def test_a_log_beside_the_files_stops_the_table(bench, table, place):
    before = table.lake.files()
    plant(table, f"{place}/{'schema-0' if place.endswith('schema') else '00000000000000000000.json'}", b"{}")
    done = await run(bench, table)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "foreign_table")
    assert before <= table.lake.files()


async def test_another_tables_metadata_inside_stops_the_table(bench, table):
    head = Path(table.refresh().metadata_location.removeprefix("file://"))
    foreign = json.loads(head.read_bytes()) | {"table-uuid": "6f1f8a3e-0000-4000-8000-000000000001"}
    before = table.lake.files()
    plant(table, "metadata/00000-6f1f8a3e-1111-4000-8000-000000000001.metadata.json", json.dumps(foreign).encode())
    done = await run(bench, table)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "foreign_table")
    assert before <= table.lake.files()


async def test_a_live_file_of_that_name_elsewhere_keeps_it(bench, table):
    """It may be the same file under another address, where nobody looks."""
    expiring = sorted((directory(table) / "data").glob("*.parquet"), key=lambda path: path.stat().st_mtime)[0]
    elsewhere = bench.root / "elsewhere" / expiring.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(expiring.read_bytes())
    table.refresh().add_files([f"file://{elsewhere}"])
    done = await run(bench, table)
    assert (done.outcome, done.plan.listed) == (Outcome.DONE, False)
    assert done.plan.verdicts[Verdict.FOREIGN].files == 1
    assert expiring.exists()


async def test_an_overlapping_neighbour_stops_the_table(bench, table):
    ref = (await table.open()).ref
    bench.neighbours = {replace(ref, name="other"): (Location.parse(table.table.location()),)}
    done = await run(bench, table)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "overlap")


async def test_a_streams_newest_commit_does_not_expire(bench, lake):
    table = lake.create()
    stream = {"flink.job-id": "j", "flink.operator-id": "o", "flink.max-committed-checkpoint-id": "1"}
    first = table.append(1, summary=stream)
    pause()
    table.overwrite(2)
    await run(bench, table, ListingMode.ALWAYS, POLICY)
    done = await run(bench, table, policy=replace(SHORT, stream_state=timedelta(days=30)))
    assert done.outcome is Outcome.DONE
    assert first in table.snapshot_ids()
    assert table.rows(first)


async def test_other_shared_files_stay(bench, table):
    going = [path for path in (directory(table) / "data").glob("*.parquet") if path not in live_files(table)]

    async def shared_files(_):
        return [f"file://{going[0]}"]

    bench.shared_files = shared_files
    done = await run(bench, table)
    assert done.outcome is Outcome.DONE
    assert going[0].exists()
    assert not going[1].exists()


async def test_a_service_lists_again_when_the_interval_is_over(bench, table):
    policy = replace(SHORT, listing_interval=timedelta(hours=48))
    assert (await run(bench, table, ListingMode.WHEN_DUE, SHORT, execute=False)).plan.listed is True
    assert (await run(bench, table, ListingMode.WHEN_DUE, policy, execute=False)).plan.listed is False
    bench.clock.at += timedelta(hours=47)
    assert (await run(bench, table, ListingMode.WHEN_DUE, policy, execute=False)).plan.listed is False
    bench.clock.at += timedelta(hours=1)
    done = await run(bench, table, ListingMode.WHEN_DUE, policy, execute=False)
    assert (done.plan.listed, done.listed_because, done.last_listed_at) == (True, None, bench.clock.now())
    bench.clock.at -= timedelta(hours=2)
    assert (await run(bench, table, ListingMode.WHEN_DUE, policy, execute=False)).plan.listed is True, (
        "a clock set back"
    )


@pytest.mark.parametrize(
    ("path", "size", "asked"),
    [
        ("s3://b/t/00000-0-6f1f8a3e-1111-4000-8000-000000000001.parquet", 7, False),
        ("s3a://b/t/6f1f8a3e-1111-4000-8000-000000000001-m0.avro", 7, False),
        ("s3://b/t/00000-1-6F1F8A3E-1111-7000-B000-000000000001-00001.parquet", 7, False),
        ("s3://b/t/20261117_101500_00012_abcde-6f1f8a3e-1111-4000-8000-000000000001.parquet", 7, False),
        ("s3://b/t/6f1f8a3e111140008000000000000001-m0.avro", 7, True),
        ("s3://b/t/d41d8cd98f00b204e9800998ecf8427e.parquet", 7, True),
        ("s3://b/t/00000000-0000-0000-0000-000000000000.parquet", 7, True),
        ("s3://b/t/d41d8cd9-8f00-b204-e980-0998ecf8427e.parquet", 7, True),
        ("s3://b/t/6f1f8a3e-1111-4000-c000-000000000001.parquet", 7, True),
        ("s3://b/t/00000-0-6f1f8a3e-1111-4000-8000-000000000001.parquet", None, True),
        ("s3://b/t/part-0.parquet", 7, True),
        ("s3://b/6f1f8a3e-1111-4000-8000-000000000001/part-0.parquet", 7, True),
    ],
)
def test_a_name_that_may_be_given_again_is_looked_at_first(path, size, asked):
    found = unique_names.shortlist({path: size})
    assert (len(found.objects), len(found.recorded)) == (int(asked), int(not asked))


@pytest.mark.parametrize("path", ["data-1.orc", "s3://b/t/../u/x.parquet", "s3://b/t/./x.parquet", "s3://b/t/dir/"])
def test_what_is_no_plain_address_waits_for_a_listing(path):
    found = unique_names.shortlist({path: 7})
    assert (found.objects, found.recorded) == ((), ())
