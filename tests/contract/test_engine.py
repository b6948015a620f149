"""The laws of every engine: which files go, which stay, and what is said about the rest."""

import asyncio
import contextlib
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tests.builders import inventories
from tests.builders.small_spark import SMALL_SPARK
from tests.builders.stores import LocalStorage
from tests.contract import engine_lake
from tests.contract.engine_lake import (
    CUTOFF,
    OLD,
    YOUNG,
    ListLake,
    ListLayout,
    Shuffled,
    Stuck,
    Travelling,
    Unordered,
    decoder,
)
from tests.sim.engine import PlainEngine

from lakesweep.cleanup import classify, plan_file
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.spark import engine as spark_engine
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.engines.spark.join_here import JoinHere
from lakesweep.engines.spark.scratch import DirectoryScratch
from lakesweep.engines.spark.session import shared_runtime
from lakesweep.model.errors import Denied, Indeterminate, OutOfOrder, Refused, Unavailable, Unreadable
from lakesweep.model.files import Reason, Tally, Verdict
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy, Shortlist
from lakesweep.storage.memory import Held, MemoryStorage, bucket


def open_inprocess(storage, scratch):
    return InProcessEngine(
        storage=storage,
        decoder=decoder,
        cache=None,
        scratch_dir=scratch,
        memory_limit="256MB",
        concurrency=3,
        threads=2,
    )


def open_spark(storage, scratch, *, small=None, cache=None):
    return SparkEngine(
        runtime=shared_runtime(SMALL_SPARK),
        storage=storage,
        open_storage=Travelling(storage),
        decoder=decoder,
        cache=cache,
        scratch=DirectoryScratch(parent=scratch),
        concurrency=3,
        small=small,
    )


def open_joined_here(storage, scratch, *, cache=None):
    """Spark lists and reads, this process joins: what small tables are planned with."""
    return open_spark(storage, scratch, small=JoinHere(directory=scratch, rows=10**6), cache=cache)


def open_judged_here(storage, scratch, *, cache=None):
    """Spark compares too, this process judges: what tables with few unreferenced files are planned with."""
    return open_spark(storage, scratch, small=JoinHere(directory=scratch, rows=0), cache=cache)


def open_plain(storage, scratch):
    return PlainEngine(storage=storage, decoder=decoder)


OF_SPARK = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
ON_SPARK = pytest.param("spark", marks=OF_SPARK)
JOINED_HERE = pytest.param("joined here", marks=OF_SPARK)
# Its own tests are in `test_engine_on_spark.py`, and the law that engines agree plans every table this way too.
JUDGED_HERE = pytest.param("judged here", marks=[*OF_SPARK, pytest.mark.soak])


@pytest.fixture(scope="module")
def spark_kept():
    """One session for all tests: closing an engine stops Spark only if nobody else uses it."""
    cloudpickle.register_pickle_by_value(engine_lake)  # the workers have the product, not its tests
    kept = shared_runtime(SMALL_SPARK)
    yield
    asyncio.run(kept.aclose())
    cloudpickle.unregister_pickle_by_value(engine_lake)


@pytest.fixture(params=["inprocess", "plain", ON_SPARK, JOINED_HERE, JUDGED_HERE])
def open_engine(request):
    """A function (storage, scratch directory) -> Engine."""
    if request.param == "inprocess":
        return open_inprocess
    if request.param == "plain":
        return open_plain
    request.getfixturevalue("spark_kept")
    return {"spark": open_spark, "joined here": open_joined_here, "judged here": open_judged_here}[request.param]


@pytest.fixture
def lake():
    return ListLake()


@pytest.fixture
def find(open_engine, lake, tmp_path):
    """Plan the lake; gives the plan and its rows."""

    async def find(storage=None):
        engine = open_engine(storage or MemoryStorage(), tmp_path / "scratch")
        async with contextlib.aclosing(engine):
            plan = await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))
        assert leftovers(tmp_path) == []
        return plan, rows_of(plan)

    return find


def rows_of(plan):
    rows = [row for batch in plan_file.read_batches(plan.rows_path) for row in batch]
    assert plan.candidates == Tally(files=len(rows), bytes=sum(row.size_bytes for row in rows))
    assert plan.digest == plan_file.digest(plan.rows_path)
    return rows


def paths_of(rows):
    return [row.path for row in rows]


def leftovers(tmp_path):
    scratch = tmp_path / "scratch"
    return list(scratch.iterdir()) if scratch.exists() else []


async def test_an_unreferenced_old_file_is_the_plan_and_a_referenced_one_is_not(find, lake):
    live, stray = lake.put("s3://b/t/live.data"), lake.put("s3://b/t/stray.data", data=b"12345")
    lake.source([live])
    plan, rows = await find()
    assert paths_of(rows) == [stray]
    assert (rows[0].reason, rows[0].kind, rows[0].modified_at) == (Reason.UNREFERENCED, "data", OLD)
    assert plan.verdicts[Verdict.LIVE] == Tally(files=1, bytes=1)
    assert plan.by_kind == {"data": Tally(files=1, bytes=5)}
    assert plan.by_reason == {Reason.UNREFERENCED: Tally(files=1, bytes=5)}
    assert (plan.head, plan.cutoff, plan.references, plan.matched, plan.missing_count) == ("head-1", CUTOFF, 1, 1, 0)


async def test_an_empty_table_gives_an_empty_plan(find):
    plan, rows = await find()
    assert rows == []
    assert sum(plan.verdicts.values(), Tally()) == Tally()


async def test_a_commit_between_listing_and_mark_is_live_and_not_missing(find, lake):
    before = lake.put("s3://b/t/before.data")
    late = "s3://b/t/late.data"
    lake.during_mark = [lambda: lake.put(late, YOUNG), lambda: lake.source([before, late])]
    plan, rows = await find()
    assert rows == []
    assert (plan.missing, plan.missing_count) == ((), 0)
    assert plan.references == 2


@pytest.mark.parametrize("open_engine", ["inprocess"], indirect=True)  # a worker's calls are not seen here
async def test_every_listing_is_complete_before_the_table_is_read(find, lake):
    lake.roots = ("s3://b/t", "s3://c/ext")
    for number in range(2500):
        lake.put(f"s3://b/t/{number}.data")
        lake.put(f"s3://c/ext/{number}.data")
    pages = []
    for name in ("b", "c"):
        bucket(name).faults = lambda call, address: pages.append(address) if call == "list_page" else None
    lake.during_mark = [lambda: pages.append("mark")]
    plan, _ = await find()
    assert pages.index("mark") == len(pages) - 1 == 6
    assert plan.candidates.files == 5000


async def test_what_appears_after_the_listing_is_not_in_the_plan(open_engine, tmp_path):
    """Files on disk, which every process sees as they are now: a listing that is made twice would show."""
    root = tmp_path / "lake"
    root.mkdir()

    def put(name):
        (root / name).write_bytes(b"x")
        os.utime(root / name, (OLD.timestamp(), OLD.timestamp()))
        return f"file://{root / name}"

    lake = ListLake(roots=(f"file://{root}",))
    lake.named = [put("live.data")]
    stray = put("stray.data")
    lake.during_mark = [lambda: put("late.data")]
    async with contextlib.aclosing(open_engine(LocalStorage(), tmp_path / "scratch")) as engine:
        plan = await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))
    assert paths_of(rows_of(plan)) == [stray]
    assert (plan.matched, sum(plan.verdicts.values(), Tally()).files) == (1, 2)


@pytest.mark.parametrize("open_engine", [ON_SPARK], indirect=True)
async def test_operators_find_a_run_by_its_job_group(find, lake):
    lake.source([lake.put("s3://b/t/x.data")])
    plan, _ = await find()
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    group = f"lakesweep-{Path(plan.rows_path).stem}"
    assert session.sparkContext.statusTracker().getJobIdsForGroup(group)


async def test_what_only_expiring_snapshots_name_goes_without_grace(find, lake):
    shared, freed = lake.put("s3://b/t/shared.data", YOUNG), lake.put("s3://b/t/freed.data", YOUNG)
    listed = lake.put("s3://b/t/snap.meta", YOUNG)
    young = lake.put("s3://b/t/young.data", YOUNG)
    lake.source([shared])
    lake.source([shared, freed], retained=False)
    lake.expired = [listed]
    plan, rows = await find()
    assert [(row.path, row.reason, row.stage) for row in rows] == [
        (freed, Reason.EXPIRED, 0),
        (listed, Reason.EXPIRED, 1),
    ]
    assert plan.verdicts[Verdict.YOUNG].files == 1
    assert young not in paths_of(rows)


async def test_an_expired_address_with_other_slashes_frees_nothing_young(find, lake):
    lake.put("s3://b/t//x.data", YOUNG)
    lake.expired = ["s3://b/t/x.data"]
    plan, rows = await find()
    assert rows == []
    assert plan.verdicts[Verdict.YOUNG].files == 1


async def test_one_store_under_several_schemes_loses_nothing(find, lake):
    for name in ("1", "2", "3", "4"):
        lake.put(f"s3://b/t/{name}.data")
    lake.named = ["s3a://b/t/1.data"]
    lake.source(["s3n://b/t/2.data", "S3://b/t/3.data", "s3a://b//t///4.data"])
    plan, rows = await find()
    assert rows == []
    assert (plan.matched, plan.references, plan.missing_count) == (4, 4, 0)


async def test_local_files_are_one_place_however_they_are_spelled(find, lake, tmp_path):
    table = tmp_path / "t"
    table.mkdir()
    for name in ("1.data", "2.data", "3.data", "stray #%.data"):
        (table / name).write_text(name)
        os.utime(table / name, (OLD.timestamp(), OLD.timestamp()))
    lake.roots = (str(table),)
    lake.named = [f"{table}/1.data", f"file:{table}/2.data", f"file://{table}//3.data", f"{table}/lost.data"]
    plan, rows = await find(LocalStorage())
    assert paths_of(rows) == [f"file://{table}/stray #%.data"]
    assert (plan.matched, plan.missing) == (3, (f"file://{table}/lost.data",))


async def test_a_listed_key_with_a_double_slash_is_deleted_by_that_very_key(find, lake):
    lake.put("s3://b/t//gone.data")
    lake.put("s3://b/t//kept.data")
    lake.source(["s3://b/t/kept.data"])
    _, rows = await find()
    assert paths_of(rows) == ["s3://b/t//gone.data"]


async def test_a_file_whose_name_is_live_outside_the_roots_stays(find, lake):
    lake.put("s3://b/t/x.data")
    lake.put("s3://b/t/y.data")
    lake.put("s3://b/t/z.data")
    lake.source(["hdfs://nn:8020/t/x.data", "s3://other/u/y.data"])
    plan, rows = await find()
    assert paths_of(rows) == ["s3://b/t/z.data"]
    assert plan.verdicts[Verdict.FOREIGN].files == 2
    assert plan.missing_count == 0  # nobody can tell what is in a store that is not listed
    assert (plan.unverified, plan.unverified_first) == (2, "hdfs://nn:8020/t/x.data")


@pytest.mark.parametrize("match_by", MatchBy)
async def test_live_files_that_nobody_looked_for_are_counted_once_each(find, lake, match_by):
    lake.match_by = match_by
    lake.put("s3://b/t/live.data")
    lake.source(["s3://b/t/live.data", "s3://other/u/1.data", "s3a://other/u//1.data", "s3://other/u/released.data"])
    lake.source(["s3://other/u/2.data"])
    lake.source(["s3://other/u/expired.data"], retained=False)
    lake.named = ["s3://other/u/named.data"]
    lake.released = ["s3://other/u/released.data"]
    lake.tolerated = ["s3://other/u/may-be-gone.data"]
    plan, _ = await find()
    assert (plan.unverified, plan.missing_count) == (3, 0)
    assert (len(plan.unverified_shown), plan.unverified_shown[0]) == (3, plan.unverified_first)
    assert plan.unverified_first in ("s3://other/u//1.data", "s3://other/u/1.data")


async def test_what_is_only_counted_keeps_nothing_and_guards_no_name(find, lake):
    stray = lake.put("s3://b/t/x.data")
    lake.source([lake.put("s3://b/t/live.data")])
    lake.elsewhere = ["s3://other/u/x.data", "s3://other/u/removed.data", "s3://b/t/inside.data"]
    lake.released = ["s3://other/u/removed.data"]
    plan, rows = await find()
    assert paths_of(rows) == [stray]
    assert (plan.unverified, plan.unverified_first) == (1, "s3://other/u/x.data")
    assert (plan.missing_count, plan.references) == (0, 1)


async def test_of_a_table_whose_files_were_all_looked_for_none_is_unverified(find, lake):
    lake.put("s3://b/t/live.data")
    lake.source(["s3://b/t/live.data", "s3://b/t/away.data"])
    plan, _ = await find()
    assert (plan.unverified, plan.unverified_first, plan.missing_count) == (0, None, 1)


async def test_reserved_and_foreign_names_stay(find, lake):
    lake.put("s3://b/t/x.lock")
    lake.put("s3://b/t/readme.txt")
    committed = lake.put("s3://b/t/part-0")
    lake.expired = [committed, "s3://b/t/x.lock"]
    plan, rows = await find()
    assert [(row.path, row.kind) for row in rows] == [(committed, "unknown")]
    assert (plan.verdicts[Verdict.RESERVED].files, plan.verdicts[Verdict.FOREIGN].files) == (1, 1)


async def test_a_file_of_unknown_age_stays(find, lake):
    lake.put("s3://b/t/x.data", None)
    plan, rows = await find()
    assert rows == []
    assert plan.verdicts[Verdict.YOUNG].files == 1


async def test_what_the_log_released_no_longer_counts_unless_it_is_named(find, lake):
    gone, kept, other = (lake.put(f"s3://b/t/{name}.data") for name in ("gone", "kept", "other"))
    lake.source([gone, kept, other])
    lake.named = [kept]
    lake.released = ["s3a://b/t/gone.data", kept, "s3://b/t//other.data"]
    plan, rows = await find()
    assert paths_of(rows) == [gone]
    assert plan.references == 2


async def test_a_live_file_that_storage_does_not_show_is_missing(find, lake):
    lake.put("s3://b/t/here.data")
    lake.source(["s3://b/t/here.data", "s3a://b/t/away.data", "s3://b/t/also//away.data"])
    plan, _ = await find()
    assert plan.missing == ("s3://b/t/also//away.data", "s3://b/t/away.data")
    assert plan.missing_count == 2


async def test_missing_files_are_counted_exactly_however_many_there_are(find, lake):
    names = [f"s3://b/t/{number:05d}.data" for number in range(1500)]
    late = names[7]
    lake.during_mark = [lambda: lake.put(late, YOUNG)]
    lake.source(names)
    plan, _ = await find()
    assert plan.missing_count == 1499
    assert plan.missing == tuple(name for name in names if name != late)[:1000]


async def test_a_missing_file_and_a_candidate_of_one_name_are_called_out(find, lake):
    lake.put("s3://b/t/day=2/x.data")
    lake.put("s3://b/t/day=2/y.data", YOUNG)
    lake.source(["s3://b/t/day=1/x.data", "s3://b/t/day=1/y.data"])
    plan, _ = await find()
    assert plan.missing_clash == ("x.data",)
    assert plan.missing_count == 2


async def test_a_live_file_listed_under_another_name_is_missing(find, lake, tmp_path, monkeypatch):
    table = tmp_path / "t"
    (table / "cold/day=1").mkdir(parents=True)
    (table / "day=1").symlink_to(table / "cold/day=1")
    live = [f"{table}/day=1/{number}.data" for number in range(20)]
    for path in live:
        Path(path).write_text("x")
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    lake.roots = (str(table),)
    lake.named = live
    plan, _ = await find(LocalStorage())
    assert set(plan.missing) == {f"file://{path}" for path in live}
    assert set(plan.missing_clash) == {Path(path).name for path in live}  # so that nothing goes
    monkeypatch.setattr(spark_engine, "_ASKED_HERE", 10)
    again, _ = await find(LocalStorage())
    assert replace(again, timings=plan.timings) == plan


async def test_an_old_file_moved_into_the_table_after_the_listing_is_not_missing(find, lake):
    moved = "s3://b/t/moved.data"
    lake.during_mark = [lambda: lake.put(moved, OLD), lambda: lake.source([moved])]
    plan, rows = await find()
    assert (rows, plan.missing, plan.references) == ([], (), 1)


async def test_a_suspect_that_storage_will_not_show_makes_the_table_indeterminate(find, lake):
    lake.source(["s3://b/t/x.data"])

    def deny(call, address):
        if call == "stat":
            raise Denied(address, "403")

    bucket("b").faults = deny
    with pytest.raises(Unreadable, match="403"):
        await find()


async def test_unreferenced_metadata_files_are_named_newest_first(find, lake):
    old, young = lake.put("s3://b/t/1.meta", OLD), lake.put("s3://b/t/2.meta", YOUNG)
    lake.put("s3://b/t/x.data")
    lake.named = [lake.put("s3://b/t/3.meta", YOUNG)]
    plan, _ = await find()
    assert plan.unreferenced_metadata == (young, old)


async def test_files_are_matched_by_name_where_the_layout_says_so(find, lake):
    lake.match_by = MatchBy.NAME
    lake.put("s3://b/t/p=1/bucket-0/one.data")
    lake.put("s3://b/t/p=1/bucket-0/two.data")
    lake.put("s3://b/t/p=1/bucket-0/stray.data")
    freed = [lake.put("s3://b/t/bucket-0/freed.data", YOUNG), lake.put("s3://b/t/bucket-0/bare.data", YOUNG)]
    lake.source(["one.data", "s3a://b/t/elsewhere/two.data", "lost.data", "released.data"])
    lake.released = ["released.data"]
    lake.expired = [freed[0], "bare.data"]
    plan, rows = await find()
    assert paths_of(rows) == sorted([*freed, "s3://b/t/p=1/bucket-0/stray.data"])
    assert plan.missing == ("lost.data",)


async def test_a_bare_name_committed_after_the_listing_is_not_missing(find, lake):
    lake.match_by = MatchBy.NAME
    lake.during_mark = [lambda: lake.put("s3://b/t/bucket-0/late.data", YOUNG)]
    lake.source(["late.data"])
    plan, _ = await find()
    assert plan.missing_count == 0


async def test_stages_come_in_order_and_paths_in_byte_order_inside_them(find, lake):
    paths = [lake.put(f"s3://b/t/{name}") for name in ("b.data", "a.meta", "ä.data", "Z.data", "b b.data", "z.meta")]
    plan, rows = await find()
    assert paths_of(rows) == sorted(p for p in paths if "data" in p) + sorted(p for p in paths if "meta" in p)
    assert plan.by_kind["metadata"].files == 2


# What must be kept could not be read: nothing is planned.


async def expect_no_plan(find, tmp_path, error=Indeterminate, match=None):
    with pytest.raises(error, match=match):
        await find()
    assert not (tmp_path / "plan.parquet").exists()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("damage", [{"data": b'["s3://b/t/x'}, {"entries": 5}], ids=["cut", "wrong count"])
async def test_a_damaged_retained_source_stops_the_table(find, lake, tmp_path, damage):
    lake.put("s3://b/t/x.data")
    source = lake.source(["s3://b/t/x.data"], **damage)
    await expect_no_plan(find, tmp_path, Unreadable, match=source.location.raw)


async def test_a_vanished_retained_source_stops_the_table(find, lake, tmp_path):
    source = lake.source([lake.put("s3://b/t/x.data")])
    del bucket("metadata").objects[source.location.path]
    await expect_no_plan(find, tmp_path, Unreadable, match=source.location.raw)


async def test_storage_that_fails_under_a_retained_source_stops_the_table(find, lake, tmp_path):
    lake.source([lake.put("s3://b/t/x.data")])

    def fail(call, address):
        if call == "read":
            raise Unavailable(address, "503")

    bucket("metadata").faults = fail
    await expect_no_plan(find, tmp_path, Unreadable, match="503")


@pytest.mark.parametrize("bad", ["t/relative.data", "file://other-host/x", "s3://b/t/../u/x.data"])
async def test_a_reference_that_cannot_be_placed_stops_the_table(find, lake, tmp_path, bad):
    lake.source([bad])
    await expect_no_plan(find, tmp_path, Unreadable)
    lake.sources.clear()
    lake.named = [bad]
    await expect_no_plan(find, tmp_path)


async def test_a_listing_that_fails_half_way_gives_no_plan(find, lake, tmp_path):
    for number in range(2500):
        lake.put(f"s3://b/t/{number}.data")
    pages = []

    def fail(call, address):
        if call == "list_page":
            pages.append(address)
            if len(pages) == 2:
                raise Unavailable(address, "500")

    bucket("b").faults = fail
    await expect_no_plan(find, tmp_path, Unavailable, match="500")


async def test_a_failing_mark_gives_no_plan(find, lake, tmp_path):
    def fail():
        raise Unreadable("s3://b/t/v1.meta", "cut")

    lake.during_mark = [fail]
    await expect_no_plan(find, tmp_path, Unreadable, match="cut")


async def test_an_unreadable_expired_source_only_shrinks_the_work(find, lake):
    live, freed = lake.put("s3://b/t/live.data"), lake.put("s3://b/t/freed.data", YOUNG)
    lake.source([live])
    lake.source([freed], retained=False, data=b"[")
    lake.source(["relative"], retained=False)
    lake.expired = ["relative"]
    plan, rows = await find()
    assert rows == []
    assert plan.skipped_sources == 3
    assert plan.verdicts[Verdict.YOUNG].files == 1


async def test_a_listing_that_shows_an_object_twice_is_not_trusted(find, lake, tmp_path):
    lake.roots = ("s3://b/t", "s3://b/t/x")
    lake.put("s3://b/t/x/1.data")
    await expect_no_plan(find, tmp_path, match="twice")


async def test_a_store_that_turns_out_to_have_no_order_is_listed_whole(find, lake):
    names = [lake.put(f"s3://b/t/{number:03d}.data") for number in range(100)]
    committed = "s3://b/t/committed-meanwhile.data"
    lake.during_mark = [lambda: lake.put(committed, YOUNG)]
    lake.source([*names[:50], committed, *(f"s3://b/t/lost-{number}.data" for number in range(1100))])
    plan, rows = await find(Unordered())
    assert paths_of(rows) == names[50:]
    assert (plan.matched, plan.missing_count) == (50, 1100)


async def test_a_store_that_cannot_be_listed_whole_either_gives_no_plan(find, lake, tmp_path):
    def fault(operation, address):
        if operation == "list":
            raise OutOfOrder(address, "b before a")

    lake.put("s3://b/t/1.data")
    bucket("b").faults = fault
    await expect_no_plan(find, tmp_path, OutOfOrder, match="b before a")


# A ready file list instead of a listing.

MADE = CUTOFF + timedelta(hours=20)


def deliver(lake, *, files=3):
    """An S3 Inventory of everything that is stored now, in several data files."""
    rows = inventories.rows_of_bucket("b")
    lake.inventory = inventories.s3_inventory(
        [inventories.csv_file(rows[number::files]) for number in range(files)], MADE
    )


async def test_the_plan_from_an_inventory_is_the_plan_from_a_listing(find, lake):
    live, freed = lake.put("s3://b/t/live.data"), lake.put("s3://b/t/freed.data", YOUNG)
    for path in ("s3://b/t//stray é.data", "s3://b/t/p=1/1.data", "s3://b/t/x.lock", "s3://b/t/strange", "s3://b/u/1"):
        lake.put(path)
    lake.put("s3://b/t/young.data", YOUNG)
    lake.source([live, "s3://b/t/lost.data"])
    lake.source([freed], retained=False)
    listed, _ = await find()
    deliver(lake)
    found, rows = await find()
    assert len(rows) == 3
    assert listed.as_of is None
    assert found.as_of == datetime(2026, 3, 1, 20, tzinfo=UTC)  # what is deleted by it is looked at once more
    assert replace(found, timings=listed.timings, as_of=None) == listed


async def test_what_an_inventory_does_not_know_is_never_a_candidate(find, lake):
    lake.put("s3://b/t/known.data")
    deliver(lake)
    lake.put("s3://b/t/unknown.data")
    plan, rows = await find()
    assert paths_of(rows) == ["s3://b/t/known.data"]
    assert sum(plan.verdicts.values(), Tally()).files == 1


async def test_only_files_that_are_gone_are_missing_from_an_inventory(find, lake, monkeypatch):
    gone = lake.put("s3://b/t/gone.data")
    deliver(lake)
    del bucket("b").objects["t/gone.data"]
    late = [lake.put(f"s3://b/t/late-{number}.data", YOUNG) for number in range(50)]
    lake.source([*late, "s3://b/t/never.data", gone])
    plan, rows = await find()
    assert rows == []
    assert plan.missing == ("s3://b/t/never.data",)
    monkeypatch.setattr(spark_engine, "_ASKED_HERE", 10)
    again, _ = await find()
    assert replace(again, timings=plan.timings) == plan


async def test_a_live_file_outside_a_partial_inventory_is_not_missing(find, lake):
    lake.put("s3://b/t/known.data")
    deliver(lake)
    lake.source([lake.put("s3://b/t/outside.data", OLD)])
    plan, rows = await find()
    assert paths_of(rows) == ["s3://b/t/known.data"]
    assert (plan.missing, plan.references) == ((), 1)


async def test_many_live_files_written_after_the_inventory_are_found_by_listing(find, lake):
    lake.put("s3://b/t/known.data")
    deliver(lake)
    lake.source([lake.put(f"s3://b/t/late-{number}.data", YOUNG) for number in range(1200)])
    plan, rows = await find()
    assert paths_of(rows) == ["s3://b/t/known.data"]
    assert (plan.missing_count, plan.references) == (0, 1200)


async def test_a_damaged_inventory_gives_no_plan(find, lake, tmp_path):
    lake.put("s3://b/t/x.data")
    deliver(lake, files=2)
    file = next(key for key in bucket("inventory").objects if key.endswith("-1.csv.gz"))
    bucket("inventory").objects[file] = Held(data=b"x", modified_at=MADE)
    await expect_no_plan(find, tmp_path, Unreadable, match=f"s3://inventory/{file}: it has 1 bytes")


async def test_an_inventory_that_lacks_the_table_gives_no_plan(find, lake, tmp_path):
    lake.put("s3://b/u/x.data")
    deliver(lake)
    lake.put("s3://b/t/x.data")
    await expect_no_plan(find, tmp_path, Refused, match="inventory_elsewhere")


# Single objects instead of a listing.


async def test_of_a_table_with_a_shortlist_nothing_else_is_looked_at(find, lake):
    for name in ("log/1.data", "log/2.data", "a.data", "b.data", "live.data", "unseen.data"):
        lake.put(f"s3://b/t/{name}")
    young = lake.put("s3://b/t/young.data", YOUNG)
    live = "s3://b/t/live.data"
    lake.tolerated = [live, "s3://b/t/elsewhere.data"]
    lake.named = ["s3://b/t/log/2.data"]
    asked = ("s3://b/t/a.data", "s3://b/t/b.data", "s3://b/t/gone.data", live, young)
    lake.shortlist = Shortlist(roots=(Location.parse("s3://b/t/log/"),), objects=asked)
    plan, rows = await find()
    assert paths_of(rows) == ["s3://b/t/a.data", "s3://b/t/b.data", "s3://b/t/log/1.data"]
    assert plan.missing_count == 0
    counted = {verdict: tally.files for verdict, tally in plan.verdicts.items() if tally.files}
    assert counted == {Verdict.LIVE: 2, Verdict.ORPHAN: 3, Verdict.YOUNG: 1}


async def test_what_metadata_records_is_judged_without_a_question(find, lake):
    """Names of expiring snapshots alone: nothing is asked for, nothing is missing, and age is of no matter."""
    going, live, stray = (f"s3://b/t/{name}.data" for name in ("going", "live", "stray"))
    lake.source([live, "s3://b/t/unseen.data"])
    lake.source([going, live], retained=False)
    lake.named = ["s3://b/t/head.data", "s3://elsewhere/u/guarded.data"]
    lake.expired = [going, "s3://b/t/guarded.data"]
    recorded = ((going, 7), (live, 8), (stray, 9), ("s3://b/t/guarded.data", 1))
    lake.shortlist = Shortlist(roots=(), objects=(), recorded=recorded, tolerates_all=False)
    plan, rows = await find()
    assert [(row.path, row.size_bytes, row.reason) for row in rows] == [(going, 7, Reason.EXPIRED)]
    assert (plan.missing_count, plan.missing, plan.missing_clash, plan.listed) == (0, (), (), False)
    counted = {verdict: tally.files for verdict, tally in plan.verdicts.items() if tally.files}
    assert counted == {Verdict.LIVE: 1, Verdict.ORPHAN: 1, Verdict.YOUNG: 1, Verdict.FOREIGN: 1}


async def test_a_shortlist_of_nothing_gives_an_empty_plan(find, lake):
    lake.put("s3://b/t/unseen.data")
    lake.source(["s3://b/t/live.data"])
    lake.shortlist = Shortlist(roots=(), objects=(), tolerates_all=False)
    plan, rows = await find()
    assert (rows, plan.missing_count, plan.references) == ([], 0, 1)


async def test_an_unanswered_shortlist_object_gives_no_plan(find, lake, tmp_path):
    lake.shortlist = Shortlist(roots=(), objects=(lake.put("s3://b/t/a.data"),))

    def deny(operation, _):
        if operation == "stat":
            raise Denied("s3://b/t/a.data", "no")

    bucket("b").faults = deny
    await expect_no_plan(find, tmp_path, Denied)


# Cancelling.


@pytest.mark.parametrize("where", ["list", "read", "stat"])
async def test_a_cancelled_plan_leaves_nothing_behind(open_engine, lake, tmp_path, where):
    lake.put("s3://b/t/x.data")
    lake.source(["s3://b/t/y.data"])
    storage = Stuck(where, tmp_path / "reached")
    async with contextlib.aclosing(open_engine(storage, tmp_path / "scratch")) as engine:
        task = asyncio.create_task(engine.find_orphans(lake.job(tmp_path / "plan.parquet")))
        await storage.reached()
        assert leftovers(tmp_path) or engine.name == "plain"  # which has no files but the plan
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert leftovers(tmp_path) == []
    assert not (tmp_path / "plan.parquet").exists()


# Reading references again.


async def test_references_are_read_again_with_the_same_rules(open_engine, lake, tmp_path):
    good = lake.source(["s3a://b/t/x.data", "bare"])
    lake.source(["s3://b/t/y"], retained=False, data=b"[")
    async with contextlib.aclosing(open_engine(MemoryStorage(), tmp_path / "scratch")) as engine:
        found = [
            (source, batch.column("path").to_pylist()) async for source, batch in engine.read_references(lake.sources)
        ]
        assert found == [(good, ["s3a://b/t/x.data", "bare"])]
        lake.source([], data=b"[")
        with pytest.raises(Unreadable):
            assert [batch async for _, batch in engine.read_references(lake.sources)]


# The oracle: plain Python sets.

PREFIXES = ["s3://b/t/", "s3a://b/t/", "s3n://b//t/", "s3://c/ext/", "s3://b/u/", "hdfs://nn/t/", "s3://c/t/"]
NAMES = ["1.data", "2.data", "p/1.data", "p//1.data", "1.meta", "1.lock", "strange"]

references = st.lists(st.builds(str.__add__, st.sampled_from(PREFIXES), st.sampled_from(NAMES)), max_size=6)
stored = st.dictionaries(
    st.builds(str.__add__, st.sampled_from(["s3://b/t/", "s3://c/ext/"]), st.sampled_from(NAMES)),
    st.sampled_from([OLD, YOUNG, None]),
    max_size=12,
)
tables = st.fixed_dictionaries(
    {
        "stored": stored,
        "named": references,
        "read": st.lists(references, max_size=3),
        "freed": st.lists(references, max_size=2),
        "expired": references,
        "released": references,
        "match_by": st.sampled_from(MatchBy),
    }
)


def oracle(table, roots):
    """Verdict per listed path, the match keys of what is missing, of what nobody looked for, and of all that is held,
    by the rules as they are written down."""
    match_by = table["match_by"]

    def key(path):
        return path.rpartition("/")[2] if match_by is MatchBy.NAME else Location.parse(path).match_key

    def raw(path):
        return Location.parse(path).raw

    def name(path):
        return path.rpartition("/")[2]

    bases = tuple(Location.parse(root).match_key + "/" for root in roots)
    several_buckets = len({Location.parse(root).authority for root in roots}) > 1

    def doubtful(path):
        return several_buckets or not Location.parse(path).match_key.startswith(bases)

    released = {raw(path) for path in table["released"]}
    held = table["named"] + [path for paths in table["read"] for path in paths if raw(path) not in released]
    held_keys = {key(path) for path in held}
    expired = {raw(path) for path in [*table["expired"], *(path for paths in table["freed"] for path in paths)]}
    elsewhere = {name(path) for path in held if doubtful(path)} if match_by is MatchBy.ADDRESS else set()
    verdicts = {}
    for path, modified_at in table["stored"].items():
        judged = classify.judge(
            ListLayout().classify(path),
            expired=path in expired,
            elsewhere=name(path) in elsewhere,
            modified_at=modified_at,
            cutoff=CUTOFF,
        )
        verdicts[path] = Verdict.LIVE if key(path) in held_keys else judged
    wanted = {key(path) for path in held if Location.parse(path).match_key.startswith(bases)}
    unverified = {key(path) for path in held if not Location.parse(path).match_key.startswith(bases)}
    return verdicts, wanted - {key(path) for path in table["stored"]}, unverified, held_keys


def build(table, roots):
    lake = ListLake(roots=roots, match_by=table["match_by"])
    for path, modified_at in table["stored"].items():
        lake.put(path, modified_at, data=path.encode())
    lake.named, lake.expired, lake.released = table["named"], table["expired"], table["released"]
    for paths in table["read"]:
        lake.source(paths)
    for paths in table["freed"]:
        lake.source(paths, retained=False)
    return lake


def plan_with(open_engine, folder, lake, storage):
    async def run():
        async with contextlib.aclosing(open_engine(storage, folder / "scratch")) as engine:
            return await engine.find_orphans(lake.job(folder / "plan.parquet"))

    return asyncio.run(run())


@pytest.mark.parametrize("open_engine", ["inprocess"], indirect=True)
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables)
def test_every_file_gets_the_verdict_that_plain_sets_give(open_engine, tmp_path, table):
    roots = ("s3://b/t", "s3://c/ext")
    plan = plan_with(open_engine, tmp_path, build(table, roots), MemoryStorage())
    verdicts, missing, unverified, held = oracle(table, roots)
    assert set(paths_of(rows_of(plan))) == {path for path, found in verdicts.items() if found is Verdict.ORPHAN}
    for found in Verdict:
        paths = [path for path, judged in verdicts.items() if judged is found]
        assert plan.verdicts[found] == Tally(files=len(paths), bytes=sum(len(path) for path in paths))
    assert plan.missing_count == len(missing) == len(plan.missing)
    assert (plan.references, plan.unverified) == (len(held), len(unverified))
    assert plan.matched == plan.verdicts[Verdict.LIVE].files
    going = {Path(path).name for path, found in verdicts.items() if found is Verdict.ORPHAN}
    assert set(plan.missing_clash) == going & {Path(path).name for path in plan.missing}


@pytest.mark.parametrize("open_engine", ["inprocess"], indirect=True)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, seed=st.integers(0, 99), page_rows=st.integers(1, 7))
def test_the_plan_does_not_depend_on_the_order_of_the_listing(open_engine, tmp_path, table, seed, page_rows):
    lake = build(table, ("s3://b/t", "s3://c/ext"))
    one = plan_with(open_engine, tmp_path, lake, MemoryStorage())
    other = plan_with(open_engine, tmp_path, lake, Shuffled(seed, page_rows))
    one.timings.clear()
    other.timings.clear()
    assert one == other


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, seed=st.integers(0, 99))
def test_the_simulators_plain_engine_gives_the_same_plan_and_digest(tmp_path, table, seed):
    lake = build(table, ("s3://b/t", "s3://c/ext"))
    one = plan_with(open_inprocess, tmp_path, lake, MemoryStorage())
    other = plan_with(open_plain, tmp_path, lake, Shuffled(seed, 3))
    assert replace(other, engine=one.engine, timings=one.timings) == one


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables, seed=st.integers(0, 99))
def test_both_engines_give_the_same_plan(spark_kept, tmp_path, table, seed):
    lake = build(table, ("s3://b/t", "s3://c/ext"))
    one = plan_with(open_inprocess, tmp_path, lake, MemoryStorage())
    other = plan_with(open_spark, tmp_path, lake, Shuffled(seed, 3))
    assert replace(other, engine=one.engine, timings=one.timings) == one


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    earlier=tables,
    later=tables,
    moved=st.sampled_from(["read", "freed", None]),
    roots=st.sampled_from([("s3://b/t",), ("s3://b/t", "s3://b/u"), ("s3://b/t", "s3://c/ext")]),
)
def test_a_cache_filled_by_an_earlier_cycle_changes_nothing_in_the_plan(tmp_path_factory, earlier, later, moved, roots):
    folder = tmp_path_factory.mktemp("cached")
    cache = FingerprintCache(folder / "cache", limit_bytes=10**8, key=b"k" * 32)

    def open_cached(storage, scratch):
        return InProcessEngine(
            storage=storage, decoder=decoder, cache=cache, scratch_dir=scratch, memory_limit="256MB", threads=2
        )

    # Sources are immutable: the later cycle sees those of the earlier one, by which side needs them, and one more.
    kept = {"read": earlier["read"], "freed": earlier["freed"]}
    if moved == "read":
        kept = {"read": [], "freed": earlier["read"] + earlier["freed"]}
    elif moved == "freed":
        kept = {"read": earlier["read"] + earlier["freed"], "freed": []}
    plan_with(open_cached, folder, build(earlier, roots), MemoryStorage())
    lake = build({**later, **kept}, roots)
    lake.source(["s3://b/t/new.data"])
    plans = [plan_with(opener, folder, lake, MemoryStorage()) for opener in (open_cached, open_cached, open_inprocess)]
    for plan in plans:
        plan.timings.clear()
    assert plans[0] == plans[1] == plans[2]
