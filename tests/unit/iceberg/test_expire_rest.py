"""The expiry commit through a REST server: it may drop refs, lose answers, say no, and must be looked at afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.iceberg import Lake, LakeTable, later, pause
from tests.unit.iceberg.expiring import OLD, POLICY, Fence, expire, expired, prolong
from tests.unit.iceberg.rest_stub import RestStub, serve

from lakesweep.model.errors import CatalogUnavailable, CommitUnknown, Refused
from lakesweep.model.snapshot import ExpiryPlan


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.create()


@pytest.fixture
def rest(lake: Lake):
    with serve(lake.another_client()) as stub:
        lake.properties = {"type": "rest", "uri": stub.uri, "name": "lake"}
        yield stub


def once(act: Callable[[], None]) -> Callable[[], None]:
    """Acts the first time it is called."""
    acts = [act]

    def call() -> None:
        if acts:
            acts.pop()()

    return call


async def test_a_server_is_sent_standard_requirements_only(rest: RestStub, table: LakeTable):
    ids = table.history()
    table.tag("v1", ids[0])
    await expire(await table.open())
    kinds = [one["type"] for one in rest.commits[0]["requirements"]]
    assert sorted(kinds) == ["assert-ref-snapshot-id", "assert-ref-snapshot-id", "assert-table-uuid"]
    assert table.snapshot_ids() == {ids[0], ids[2]}


async def test_all_snapshots_are_seen_although_the_server_shows_heads_only(rest: RestStub, table: LakeTable):
    ids = table.history()
    state = await (await table.open()).load()
    assert {int(snapshot.id) for snapshot in state.snapshots} == set(ids)
    assert state.head.startswith("file:///")


async def test_version_3_goes_through_a_server(rest: RestStub, table: LakeTable):
    table.history()
    handle = await table.open()
    path = Path((await handle.head()).removeprefix("file://"))
    path.write_text(path.read_text().replace('"format-version":2', '"format-version":3'))
    plan = (await handle.load()).plan_expiry(POLICY, later(**OLD))
    assert plan.skipped is None
    assert len(plan.expire) == 2


async def test_a_rollback_meanwhile_stops_the_server(rest: RestStub, table: LakeTable):
    ids = table.history()
    rest.before_commit = once(lambda: table.rollback(ids[0]))
    plan = await expire(await table.open())
    assert len(rest.commits) == 2
    assert table.current == ids[0]
    assert ids[0] not in expired(plan)


async def test_a_tag_dropped_by_the_server_is_refused_until_resolved(rest: RestStub, table: LakeTable):
    ids = table.history()
    handle = await table.open()
    before = await handle.load()
    rest.before_commit = once(lambda: table.tag("unseen", ids[0]))
    with pytest.raises(Refused, match="tag unseen") as caught:
        await handle.commit_expiry(before, POLICY, later(**OLD), Fence())
    assert caught.value.code == "ref_lost"
    state = await handle.load()
    earlier = await handle.load_at(before.head, state)
    assert earlier is not None
    with pytest.raises(Refused, match="tag unseen"):
        await state.references(ExpiryPlan(head=state.head), earlier)


async def test_a_tag_that_was_prolonged_while_we_dropped_it_is_a_lost_one(rest: RestStub, table: LakeTable):
    ids = table.history()
    table.tag("old", ids[0], max_ref_age_ms=1000)
    rest.before_commit = once(lambda: prolong(table, "old"))
    with pytest.raises(Refused, match="tag old") as caught:
        await expire(await table.open())
    assert caught.value.code == "ref_lost"


async def test_commits_after_ours_do_not_hide_a_lost_tag(rest: RestStub, table: LakeTable):
    ids = table.history()
    handle = await table.open()
    rest.before_commit = once(lambda: table.tag("unseen", ids[0]))

    def append_behind(_: int) -> None:
        table.append(50)
        table.append(51)

    rest.commit_answer = append_behind
    with pytest.raises(Refused) as caught:
        await expire(handle)
    assert caught.value.code == "ref_lost"


async def test_a_tag_that_its_owner_dropped_again_is_not_lost(rest: RestStub, table: LakeTable):
    ids = table.history()
    handle = await table.open()

    def come_and_go() -> None:
        table.tag("short", ids[0])
        table.refresh().manage_snapshots().remove_tag("short").commit()

    rest.before_commit = once(come_and_go)
    assert expired(await expire(handle)) == set(ids[:2])


@pytest.mark.parametrize("limit", ["its own", "the table's"])
async def test_a_tag_that_had_outlived_its_age_is_not_lost(lake: Lake, table: LakeTable, limit: str):
    """Short-lived tags come and go while an earlier cycle still waits to be finished."""
    ids = table.history()
    before = await (await table.open()).load()
    if limit == "its own":
        table.tag("daily", ids[0], max_ref_age_ms=1)
    else:
        table.tag("daily", ids[0])
        table.set({"history.expire.max-ref-age-ms": "1"})
    pause()
    assert ids[0] in expired(await expire(await table.open()))
    handle = await table.open()
    state = await handle.load()
    earlier = await handle.load_at(before.head, state)
    found = await state.references(ExpiryPlan(head=state.head), earlier)
    assert any(str(ids[0]) in path for path in found.expired)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.set({"history.expire.min-snapshots-to-keep": "100"}),
        lambda table: prolong(table, "work", "branch"),
    ],
)
async def test_a_retention_changed_during_the_commit_needs_a_person(
    rest: RestStub, table: LakeTable, change: Callable[[LakeTable], None]
):
    ids = table.history()
    table.branch("work", ids[2])
    rest.before_commit = once(lambda: change(table))
    with pytest.raises(Refused, match="retention was changed") as caught:
        await expire(await table.open())
    assert caught.value.code == "ref_unverified"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_lost_answer_to_a_commit_that_happened_is_found_out(rest: RestStub, table: LakeTable, status: int):
    ids = table.history()
    rest.commit_answer = lambda _: status
    plan = await expire(await table.open())
    assert expired(plan) == set(ids[:2])
    assert len(rest.commits) == 1


async def test_a_server_error_before_the_commit_is_tried_again(rest: RestStub, table: LakeTable):
    ids = table.history()
    handle = await table.open()
    answers = iter([True])
    real = rest._commit
    rest._commit = lambda name, request: (500, {}) if next(answers, False) else real(name, request)
    assert expired(await expire(handle)) == set(ids[:2])


async def test_a_server_that_never_commits_leaves_the_table_whole(rest: RestStub, table: LakeTable):
    ids = table.history()
    handle = await table.open()
    rest._commit = lambda *_: (503, {})
    with pytest.raises(CommitUnknown):
        await expire(handle)
    assert table.snapshot_ids() == set(ids)


@pytest.mark.parametrize("status", [400, 403, 429])
async def test_a_server_that_says_no_is_not_asked_again(rest: RestStub, table: LakeTable, status: int):
    table.history()
    handle = await table.open()
    asked = []
    rest._commit = lambda *_: (asked.append(1), (status, {"error": {"message": "no", "type": "E", "code": status}}))[1]
    with pytest.raises(CatalogUnavailable, match="refused the expiry"):
        await expire(handle)
    assert len(asked) == 1


async def test_a_log_that_does_not_reach_back_is_refused(rest: RestStub, table: LakeTable):
    table.history()
    handle = await table.open()
    state = await handle.load()

    def cut_log(_: int) -> None:
        path = Path(table.refresh().metadata_location.removeprefix("file://"))
        document = json.loads(path.read_text())
        document["metadata-log"] = []
        path.write_text(json.dumps(document))

    rest.commit_answer = cut_log
    with pytest.raises(Refused) as caught:
        await handle.commit_expiry(state, POLICY, later(**OLD), Fence())
    assert caught.value.code == "ref_unverified"
