"""The expiry commit and its races: no ref is ever lost, nothing is committed in vain, every outcome is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from tests.builders.iceberg import Lake, LakeTable, later
from tests.builders.stores import LocalStorage
from tests.unit.iceberg.expiring import OLD, POLICY, Fence, expire, expired, prolong

from lakesweep.formats.iceberg.metadata_source import BareSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.errors import CommitConflict, LeaseLost, Refused, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.create()


async def test_old_snapshots_leave_and_the_rows_stay(table: LakeTable):
    ids = table.history()
    rows = table.rows()
    assert expired(await expire(await table.open())) == set(ids[:2])
    assert table.snapshot_ids() == {ids[2]}
    assert table.rows() == rows


async def test_no_file_is_deleted_by_the_commit(lake: Lake, table: LakeTable):
    table.history()
    before = lake.files()
    await expire(await table.open())
    assert before < lake.files()


async def test_nothing_to_expire_writes_no_metadata(lake: Lake, table: LakeTable):  # testRemoveSnapshotsNoOp
    table.history()
    handle = await table.open()
    head, files, fence = await handle.head(), lake.files(), Fence()
    assert (await expire(handle, fence, days=1)).empty
    assert await handle.head() == head
    assert lake.files() == files
    assert fence.checks == 0


async def test_an_empty_table_is_left_alone(table: LakeTable):
    assert (await expire(await table.open())).empty


async def test_a_second_expiry_finds_nothing(table: LakeTable):
    table.history()
    handle = await table.open()
    await expire(handle)
    assert (await expire(handle)).empty


async def test_tags_branches_and_staged_snapshots_are_kept_as_planned(table: LakeTable):
    ids = table.history()
    table.tag("v1", ids[0])
    table.branch("audit", ids[1])
    staged = table.stage(9)
    assert expired(await expire(await table.open(), days=29)) == set()
    assert expired(await expire(await table.open())) == {staged}
    assert table.snapshot_ids() == set(ids)
    assert table.head("v1") == ids[0]
    assert table.head("audit") == ids[1]


async def test_an_aged_ref_leaves_with_its_snapshot_in_one_commit(table: LakeTable):
    ids = table.history()
    table.tag("old", ids[0], max_ref_age_ms=1000)
    handle = await table.open()
    head = await handle.head()
    plan = await expire(handle)
    assert plan.drop_refs == ("old",)
    found = table.refresh()
    assert set(found.metadata.refs) == {"main"}
    assert found.metadata.metadata_log[-1].metadata_file == head, "one commit, not two"


async def test_statistics_of_expired_snapshots_leave_in_the_same_commit(table: LakeTable):
    ids = table.history()
    table.add_partition_statistics(ids[0])
    kept = table.add_partition_statistics(ids[2])
    handle = await table.open()
    head = await handle.head()
    await expire(handle)
    found = table.refresh().metadata
    assert [one.statistics_path for one in found.partition_statistics] == [kept]
    assert found.metadata_log[-1].metadata_file == head


async def test_a_stale_view_never_drops_a_tag_made_meanwhile(table: LakeTable):
    ids = table.history()
    handle = await table.open()
    state = await handle.load()
    table.tag("made meanwhile", ids[0])
    _, plan = await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert expired(plan) == {ids[1]}
    assert table.head("made meanwhile") == ids[0]
    assert ids[0] in table.snapshot_ids()


async def test_a_stale_view_never_undoes_a_rollback(table: LakeTable):
    ids = table.history()
    handle = await table.open()
    state = await handle.load()
    table.rollback(ids[0])
    _, plan = await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert ids[0] not in expired(plan)
    assert table.current == ids[0]
    assert [row["id"] for row in table.rows()] == [1]


async def test_a_stale_view_never_drops_a_branch_made_meanwhile(table: LakeTable):
    ids = table.history()
    handle = await table.open()
    state = await handle.load()
    table.branch("late", ids[1])
    await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert table.head("late") == ids[1]


@pytest.mark.parametrize(
    "act",
    [
        lambda table, first: table.tag("late", first),
        lambda table, first: table.branch("late", first),
        lambda table, first: table.rollback(first),
        lambda table, first: table.set({"history.expire.max-snapshot-age-ms": str(10**12)}),
        lambda table, first: table.set({"history.expire.min-snapshots-to-keep": "9"}),
    ],
    ids=["tag", "branch", "rollback", "age", "number"],
)
async def test_what_comes_right_before_the_commit_still_keeps_a_snapshot(table: LakeTable, act):
    ids = table.history()
    acts = [act]
    fence = Fence(lambda _: acts.pop()(table, ids[0]) if acts else None)
    assert ids[0] not in expired(await expire(await table.open(), fence))
    assert ids[0] in table.snapshot_ids()


async def test_a_tag_that_is_prolonged_right_before_the_commit_stays(table: LakeTable):
    ids = table.history()
    table.tag("old", ids[0], max_ref_age_ms=1000)
    acts = [lambda: prolong(table, "old")]
    plan = await expire(await table.open(), Fence(lambda _: acts.pop()() if acts else None))
    assert plan.drop_refs == ()
    assert table.head("old") == ids[0]


async def test_gc_disabled_right_before_the_commit_stops_it(table: LakeTable):
    ids = table.history()
    with pytest.raises(Refused) as caught:
        await expire(await table.open(), Fence(lambda _: table.set({"gc.enabled": "false"})))
    assert caught.value.code == "gc_disabled"
    assert table.snapshot_ids() == set(ids)


async def test_a_commit_between_all_attempts_ends_in_a_conflict(table: LakeTable):
    ids = table.history()
    fence = Fence(table.append)
    with pytest.raises(CommitConflict):
        await expire(await table.open(), fence)
    assert fence.checks == 5
    assert set(ids) <= table.snapshot_ids()


async def test_an_append_meanwhile_is_kept_and_the_expiry_goes_through(table: LakeTable):
    ids = table.history()
    handle = await table.open()
    state = await handle.load()
    new = table.append(4)
    after, plan = await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert expired(plan) == set(ids)
    assert table.snapshot_ids() == {new}
    assert after.head == await handle.head()


async def test_two_cleaners_at_once_both_end_well(table: LakeTable):
    ids = table.history()
    first, second = await table.open(), await table.open()
    stale = await second.load()
    assert expired(await expire(first)) == set(ids[:2])
    _, plan = await second.commit_expiry(stale, POLICY, later(**OLD), Fence())
    assert plan.empty


async def test_a_lost_lease_stops_before_the_commit(lake: Lake, table: LakeTable):
    table.history()

    def lose(_: int) -> None:
        raise LeaseLost("somebody else")

    handle = await table.open()
    head = await handle.head()
    with pytest.raises(LeaseLost):
        await expire(handle, Fence(lose))
    assert await handle.head() == head


async def test_a_table_dropped_meanwhile_is_not_made_again(lake: Lake, table: LakeTable):
    table.history()
    handle = await table.open()
    state = await handle.load()
    lake.catalog.drop_table("db.t")
    with pytest.raises(UnknownTable):
        await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert lake.catalog.list_tables("db") == []


async def test_version_3_cannot_be_committed_by_a_client_so_its_expiry_is_skipped(lake: Lake):
    table = lake.create(**{"format-version": "2"})
    table.history()
    handle = await table.open()
    state = await handle.load()
    assert state.native.no_expiry is None
    path = Path(state.head.removeprefix("file://"))
    path.write_text(path.read_text().replace('"format-version":2', '"format-version":3'))
    handle = await table.open()  # a handle reads a file with a UUID in its name only once
    state = await handle.load()
    plan = state.plan_expiry(POLICY, later(**OLD))
    assert plan.skipped is not None
    assert "version 3" in plan.skipped
    assert plan.empty
    assert len(plan.keep) == 3
    after, committed = await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert committed.empty
    assert after.head == state.head
    references = await state.references(plan)
    assert references.expired == ()


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"format-version":2', '"format-version":2,"future-field":{"a":1}', "future-field"),
        ('"manifest-list"', '"future-key":7,"manifest-list"', r"snapshots\[0\].future-key"),
        ('"type":"branch"', '"type":"branch","future-rule":1', "refs.main.future-rule"),
        (
            '{"spec-id":0,"fields":[]}',
            '{"spec-id":0,"fields":[{"name":"z","transform":"zorder[3]","source-id":1,"field-id":1000}]}',
            r"partition-specs\[0\].fields\[0\].transform",
        ),
    ],
)
async def test_fields_that_pyiceberg_would_drop_keep_it_from_writing(table: LakeTable, old: str, new: str, place: str):
    table.history()
    handle = await table.open()
    path = Path((await handle.head()).removeprefix("file://"))
    path.write_text(path.read_text().replace(old, new))
    plan = (await handle.load()).plan_expiry(POLICY, later(**OLD))
    assert plan.empty
    assert plan.skipped is not None
    assert re.search(place, plan.skipped)


async def test_an_old_partition_spec_may_name_a_column_that_was_dropped(lake: Lake):
    by_name = PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="by_name")
    table = lake.create(partition_spec=PartitionSpec(by_name))
    ids = table.history()
    with table.refresh().update_spec() as spec:
        spec.remove_field("by_name")
    with table.refresh().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("name")
    assert expired(await expire(await table.open())) == set(ids[:2])
    assert table.snapshot_ids() == {ids[2]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"spec-id":0,"fields":[]}', '{"spec-id":0,"fields":[%s]}'),
        ('{"order-id":0,"fields":[]}', '{"order-id":0,"fields":[%s]}'),
    ],
    ids=["partition", "sort"],
)
async def test_a_field_without_its_column_is_named_before_a_commit_is_tried(table: LakeTable, old: str, new: str):
    table.history()
    handle = await table.open()
    path = Path((await handle.head()).removeprefix("file://"))
    fields = {"source-id": 99, "field-id": 1000, "name": "p", "transform": "identity"}
    if "order-id" in old:
        fields = {"source-id": 99, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new % json.dumps(fields)))
    state = await handle.load()
    plan = state.plan_expiry(POLICY, later(**OLD))
    assert plan.empty
    assert plan.skipped is not None
    assert "Cannot find source column" in plan.skipped
    assert "remove this field" in plan.skipped
    after, committed = await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert committed.empty
    assert after.head == state.head


async def test_a_bare_table_cannot_commit(table: LakeTable):
    table.history()
    location = Location.parse(table.table.location())
    ref = TableRef(tenant=TenantId("x"), dataset="y", name="z", format=FormatName.ICEBERG)
    bare = IcebergTable(ref, BareSource(location=location, storage=LocalStorage()), LocalStorage(), location)
    assert not bare.executable
    with pytest.raises(Refused, match="no catalog"):
        await bare.commit_expiry(await bare.load(), POLICY, later(**OLD), Fence())
