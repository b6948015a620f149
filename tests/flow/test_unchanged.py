"""A cycle that can find nothing new ends after the head was read, and never keeps anything waiting longer for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, sweep
from tests.builders.faults import Faults, Killed
from tests.builders.iceberg import pause
from tests.builders.iceberg_flow import plant
from tests.builders.paimon_model import ModelTable

from lakesweep.formats.delta.table import DeltaTable
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage import memory
from lakesweep.storage.local.store import LocalStorage

AGE = timedelta(days=30)
POLICY = CleanupPolicy(max_snapshot_age=AGE, listing_interval=timedelta(days=90))
DUE = ListingMode.WHEN_DUE
MINUTE = timedelta(minutes=1)
REF = TableRef(tenant=TenantId("acme"), dataset="d", name="t", format=FormatName.DELTA)


async def run(bench, table, policy=POLICY, listing=DUE, *, execute=True):
    ours = table.lake.format(storage=bench.storage, writer=bench.writer)
    return await bench.run(await ours.open((await table.open()).ref), policy, execute=execute, listing=listing)


def is_unchanged(done) -> bool:
    return (done.outcome, done.reason) == (Outcome.DONE, "unchanged")


@pytest.fixture
async def table(lake, bench):
    """Two snapshots, the older of which expires in twenty days; a cycle has found nothing to do."""
    table = lake.create()
    table.append(1)
    pause()
    table.overwrite(2)
    done = await run(bench, table)
    assert (done.outcome, done.reason, done.expired_snapshots) == (Outcome.DONE, None, ())
    return table


async def test_nothing_is_read_but_the_head(bench, table):
    bench.faults = Faults()
    done = await run(bench, table)
    assert is_unchanged(done)
    assert [name for name in bench.faults.calls if name.startswith("storage")] == []
    assert (done.plan, done.deletion.deleted.files) == (None, 0)


async def test_a_commit_is_seen(bench, table):
    table.append(3)
    assert not is_unchanged(await run(bench, table))
    assert is_unchanged(await run(bench, table))


async def test_other_rules_are_seen(bench, table):
    done = await run(bench, table, replace(POLICY, max_snapshot_age=timedelta(days=1)))
    assert not is_unchanged(done)
    assert len(done.expired_snapshots) > 0


async def test_what_comes_of_age_is_seen_in_its_very_minute(bench, table):
    first = await run(bench, table, listing=ListingMode.ALWAYS)
    wait = first.comes_of_age - bench.clock.now()
    assert timedelta(days=19) < wait < timedelta(days=21)
    bench.clock.at = first.comes_of_age - MINUTE
    assert is_unchanged(await run(bench, table))
    bench.clock.at = first.comes_of_age
    done = await run(bench, table)
    assert len(done.expired_snapshots) > 0
    assert done.plan.listed is False


async def test_garbage_waits_for_the_next_listing_and_no_longer(bench, table):
    orphan = plant(table, "data/orphan.parquet")
    policy = replace(POLICY, listing_interval=timedelta(hours=10))
    assert not is_unchanged(await run(bench, table, policy, ListingMode.ALWAYS))
    assert not orphan.exists()
    orphan = plant(table, "data/orphan.parquet")
    bench.clock.at += timedelta(hours=10) - MINUTE
    assert is_unchanged(await run(bench, table, policy))
    bench.clock.at += MINUTE
    assert (await run(bench, table, policy)).plan.listed
    assert not orphan.exists()


async def test_without_an_interval_every_regular_cycle_lists(bench, table):
    policy = replace(POLICY, listing_interval=None)
    bench.regular_wait = timedelta(hours=24)
    assert not is_unchanged(await run(bench, table, policy))
    bench.clock.at += timedelta(hours=23)
    assert is_unchanged(await run(bench, table, policy)), "a look ahead of its time"
    bench.clock.at += timedelta(hours=1)
    assert (await run(bench, table, policy)).plan.listed


async def test_a_look_by_hand_is_never_skipped_and_puts_off_no_listing(bench, table):
    assert (await run(bench, table, listing=ListingMode.ALWAYS)).plan.listed
    policy = replace(POLICY, listing_interval=timedelta(hours=10))
    await run(bench, table, policy, ListingMode.ALWAYS)
    bench.clock.at += timedelta(hours=9)
    assert (await run(bench, table, policy, ListingMode.ALWAYS, execute=False)).plan.listed
    bench.clock.at += timedelta(hours=2)
    assert (await run(bench, table, policy)).plan.listed


async def test_a_killed_or_refused_cycle_leaves_no_note(bench, table):
    plant(table, "data/orphan.parquet")
    bench.faults = Faults(at=12, kill=True)
    with pytest.raises((Killed, BaseExceptionGroup)):
        await run(bench, table, listing=ListingMode.ALWAYS)
    bench.faults = Faults()
    assert not is_unchanged(await run(bench, table))
    strict = replace(POLICY, ceilings=replace(POLICY.ceilings, files=1))
    for name in ("second", "third"):
        plant(table, f"data/{name}.parquet")
    refused = await run(bench, table, strict, ListingMode.ALWAYS)
    assert refused.outcome is Outcome.REFUSED
    assert not is_unchanged(await run(bench, table, strict))


async def test_a_cycle_that_expired_leaves_a_note_of_its_own_commit(bench, table):
    bench.clock.at += timedelta(days=25)
    assert len((await run(bench, table)).expired_snapshots) > 0
    assert is_unchanged(await run(bench, table))
    table.append(3)
    assert not is_unchanged(await run(bench, table)), "and of no other commit"


async def test_by_hand_only_what_would_not_list_is_skipped(bench, lake):
    table, never = lake.create(), ListingMode.NEVER
    table.append(1)
    first = await run(bench, table, listing=never)
    assert (first.outcome, first.plan.listed) == (Outcome.DONE, True), "it was never listed before"
    second = await run(bench, table, listing=never)
    assert is_unchanged(second)
    assert (second.plan, second.last_listed_at) == (None, first.last_listed_at)
    assert (await run(bench, table, listing=never, execute=False)).plan is not None, "a plan is always made"
    table.append(2)
    assert not is_unchanged(await run(bench, table, listing=never))
    assert (await run(bench, table, listing=ListingMode.ALWAYS)).plan.listed


async def test_a_plan_by_hand_is_listing_enough_for_a_run_by_hand_alone(bench, lake):
    table = lake.create()
    table.append(1)
    assert (await run(bench, table, listing=ListingMode.ALWAYS, execute=False)).plan.listed
    assert (await run(bench, table, listing=ListingMode.NEVER)).plan.listed is False
    assert is_unchanged(await run(bench, table, listing=ListingMode.NEVER))
    assert (await run(bench, table)).plan.listed, "no listing was executed yet"


async def test_a_clock_that_was_set_back_skips_nothing(bench, table):
    await run(bench, table, listing=ListingMode.ALWAYS)
    bench.clock.at -= timedelta(days=1)
    for listing in (DUE, ListingMode.NEVER):
        assert not is_unchanged(await run(bench, table, listing=listing))
        await run(bench, table, listing=ListingMode.ALWAYS)
        bench.clock.at -= timedelta(days=1)


async def test_an_expiry_that_was_not_swept_is_seen(bench, table):
    before = table.refresh().metadata_location
    table.append(3)
    await run(bench, table)
    await bench.store.set_pending_expiry((await table.open()).ref.label, before, "r")
    assert not is_unchanged(await run(bench, table))


async def test_a_delta_table_is_looked_at_when_a_removed_file_may_go(tmp_path):
    """A week after its removal and not before, however often it is looked at; log files come of age at midnight."""
    writer = DeltaWriter(LocalPlace(tmp_path / "lake" / "t"))
    writer.create(days_ago(90))
    writer.add("part-1.parquet", "part-2.parquet", at=days_ago(80))
    writer.remove("part-1.parquet", at=days_ago(3))
    bench = Bench(root=tmp_path / "lake", clock=SetClock(NOW), scratch=tmp_path / "scratch", listing=DUE)

    async def look(at):
        bench.clock.at = at
        done = (await sweep(writer.place, execute=True, policy=POLICY, bench=bench)).run
        assert done.outcome is Outcome.DONE, done.reason
        return done

    first = await look(NOW)
    assert first.comes_of_age == days_ago(3) + timedelta(days=7, milliseconds=1)
    assert is_unchanged(await look(first.comes_of_age - MINUTE))
    assert "part-1.parquet" in writer.place.names()
    done = await look(first.comes_of_age + MINUTE)
    assert (is_unchanged(done), done.plan.listed, done.deletion.deleted.files) == (False, False, 1)
    assert "part-1.parquet" not in writer.place.names()
    assert done.comes_of_age >= days_ago(3) + timedelta(days=30), "the next is the log's own retention"
    assert is_unchanged(await look(done.comes_of_age - MINUTE))
    assert not is_unchanged(await look(done.comes_of_age + MINUTE))


@pytest.mark.parametrize(("change", "seen"), [(None, False), ("commit", True), ("rewritten", True), ("iceberg", True)])
async def test_what_comes_to_a_delta_table_is_seen_by_its_trace(tmp_path, change, seen):
    writer = DeltaWriter(LocalPlace(tmp_path / "lake" / "t"))
    writer.create(days_ago(90))
    writer.add("part-1.parquet", at=days_ago(80))
    storage = LocalStorage()
    table = DeltaTable(REF, Location.parse(str(tmp_path / "lake" / "t")), storage, SetClock(NOW))
    trace = (await table.load()).trace
    log = tmp_path / "lake" / "t" / "_delta_log"
    if change == "commit":
        writer.add("part-2.parquet", at=days_ago(1))
    elif change == "rewritten":
        newest = max(log.glob("*.json"))
        newest.write_text(newest.read_text() + "\n")
    elif change == "iceberg":
        (tmp_path / "lake" / "t" / "metadata").mkdir()
        (tmp_path / "lake" / "t" / "metadata" / "v1.metadata.json").write_text("{}")
    assert await table.is_still_at(trace) is not seen
    assert not await table.is_still_at("another format's trace")


@pytest.mark.parametrize(("change", "seen"), [(None, False), ("commit", True), ("consumer", True), ("schema", True)])
async def test_what_comes_to_a_paimon_table_is_seen_by_its_trace(change, seen):
    model = ModelTable(memory.bucket("traces"), "wh/db.db/t", NOW - timedelta(days=9), {})
    model.append("2026-01-01")
    place = Location.parse("memory://traces/wh/db.db/t")
    storage = memory.MemoryStorage()
    table = PaimonTable(ref=REF, location=place, storage=storage, tenant_root=Location.parse("memory://traces/wh"))
    trace = (await table.load()).trace
    objects = model.bucket.objects
    schema = next(key for key in objects if "/schema/" in key)
    if change == "commit":
        model.append("2026-01-02")
    elif change == "consumer":
        objects["wh/db.db/t/consumer/consumer-c"] = objects[schema]
    elif change == "schema":
        objects["wh/db.db/t/schema/schema-1"] = objects[schema]
    try:
        assert await table.is_still_at(trace) is not seen
        assert not await table.is_still_at("another format's trace")
    finally:
        memory.forget("traces")


async def test_a_paimon_table_on_a_disk_is_seen_to_stand_still(tmp_path):
    """A disk knows the time of a file more exactly than a listing tells it."""
    model = ModelTable(memory.bucket("on disk"), "t", NOW - timedelta(days=9), {})
    model.append("2026-01-01")
    for key, held in model.bucket.objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(held.data)
    memory.forget("on disk")
    place = Location.parse(str(tmp_path / "t"))
    table = PaimonTable(ref=REF, location=place, storage=LocalStorage(), tenant_root=Location.parse(str(tmp_path)))
    assert await table.is_still_at((await table.load()).trace)
