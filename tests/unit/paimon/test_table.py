"""The table behind the port: what refuses it, what stops it, and what happens while others are at work."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from tests.builders.paimon_model import LIST_SCHEMA
from tests.builders.paimon_options import LASTING, once, spec, vars_of
from tests.builders.paimon_world import NOW, World

from lakesweep.formats import avro
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.paimon.warehouse import PaimonFormat
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import SettingsError, Unavailable, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.memory import Held, bucket

OLD = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0))


def history(world: World, count: int = 5) -> None:
    for number in range(count):
        world.table.append("a", extras=number % 2)
    world.table.overwrite("a")
    world.table.append("b")


# Refusals


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"type": "format-table"}, "unsupported_table_type"),
        ({"metastore": "rest"}, "rest_managed"),
        ({"chain-table.enabled": "true"}, "chain_table"),
        ({"metadata.iceberg.storage": "hive-catalog"}, "iceberg_compatible"),
        ({"metadata.iceberg-compatible": "true"}, "iceberg_compatible"),
        ({"snapshot.num-retained.min": "0"}, "bad_table_options"),
    ],
)
async def test_tables_under_other_rules_are_refused_before_anything_is_touched(
    options: dict[str, str], code: str, world: World
) -> None:
    world.make(options)
    history(world)
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.REFUSED
    assert run.refusal is not None
    assert run.refusal.code == code
    assert world.bucket.objects == before


@pytest.mark.parametrize("where", ["snapshot/snapshot-7", "snapshot/snapshot-2", "tag/tag-x"])
async def test_an_unknown_snapshot_version_anywhere_refuses_the_table(where: str, world: World) -> None:
    history(world)
    world.table.tag("x")
    key = f"{world.table.place}/{where}"
    document = json.loads(world.bucket.objects[key].data)
    world.table.put_json(where, document | {"version": 99})
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "unknown_snapshot_version"
    assert world.bucket.objects == before


async def test_an_unknown_manifest_version_refuses_the_table(world: World) -> None:
    history(world)
    name = world.table.lines["main"].metas[0]["_FILE_NAME"]
    key = f"{world.table.place}/manifest/{name}"
    data = world.bucket.objects[key].data
    container = avro.walk(data)
    rows = [row | {"_VERSION": 3} for row in avro.read_records(data)]
    changed = avro.write(container.schema, rows)
    world.bucket.objects[key] = Held(data=changed, modified_at=NOW - timedelta(days=3))
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code in ("unknown_manifest_version", "indeterminate")
    assert "version 3" in run.refusal.reason or "bytes" in run.refusal.reason
    assert world.bucket.objects == before


async def test_a_directory_without_schemas_is_refused(world: World) -> None:
    history(world)
    del world.bucket.objects[f"{world.table.place}/schema/schema-0"]
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "no_schema"
    assert "REST catalog" in run.refusal.reason


# Hints


@pytest.mark.parametrize("latest", ["7", "1", "garbage", "-1", ""])
@pytest.mark.parametrize("earliest", ["999", "5", "garbage"])
async def test_hints_may_lie(latest: str, earliest: str, world: World) -> None:
    history(world)
    world.table.put("snapshot/LATEST", latest.encode())
    world.table.put("snapshot/EARLIEST", earliest.encode())
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("1", "2", "3", "4", "5", "6")
    assert world.table.lost() == set()
    assert world.bucket.objects[f"{world.table.place}/snapshot/EARLIEST"].data == b"7"


@pytest.mark.parametrize("latest", ["8", "999"])
async def test_a_latest_hint_ahead_of_all_snapshots_stops_the_table(latest: str, world: World) -> None:
    history(world)
    world.table.put("snapshot/LATEST", latest.encode())
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "indeterminate"
    assert f"snapshot-{latest}" in run.refusal.reason
    assert "LATEST" in run.refusal.reason
    assert world.bucket.objects == before


@pytest.mark.parametrize("branch", ["main", "dev"])
async def test_lost_snapshots_that_the_latest_hint_still_knows_keep_files(branch: str, world: World) -> None:
    """As a restore leaves it that brings back old snapshots and not the newest: its files would be orphans."""
    history(world)
    if branch != "main":
        world.table.branch(branch)
        world.table.append("b", branch=branch)
    lost = max(key for key in world.table.stored() if key.startswith(f"{world.table._under(branch)}snapshot/snapshot-"))
    del world.bucket.objects[f"{world.table.place}/{lost}"]
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "indeterminate"
    assert lost in run.refusal.reason
    assert world.bucket.objects == before


async def test_a_rollback_while_the_hint_is_read_is_looked_at_again(world: World) -> None:
    history(world)
    world.table.put("snapshot/LATEST", b"8")
    ahead = f"{world.table.place}/snapshot/snapshot-8"
    put = world.table.put

    def roll_back(operation: str, address: str) -> None:
        if operation == "stat" and ahead in address:
            put("snapshot/LATEST", b"7")

    world.bucket.faults = roll_back
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()


async def test_a_latest_hint_that_cannot_be_read_stops_the_table(world: World) -> None:
    history(world)

    def deny(operation: str, address: str) -> None:
        if operation == "read" and address.endswith("/LATEST"):
            raise Unavailable(address, "no answer")

    world.bucket.faults = deny
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "LATEST" in (run.reason or "")
    assert world.bucket.objects == before


@pytest.mark.parametrize("branch", ["main", "dev"])
async def test_a_next_snapshot_that_is_not_listed_stops_the_table(branch: str, world: World) -> None:
    history(world)
    if branch != "main":
        world.table.branch(branch)
        world.table.append("b", branch=branch)
    newest = max(key for key in world.table.stored() if key.startswith(f"{world.table._under(branch)}snapshot/snap"))
    world.table._remove(f"{world.table._under(branch)}snapshot/LATEST")
    hidden = f"{world.table.place}/{newest}"
    held = world.bucket.objects[hidden]

    def hide(operation: str, address: str) -> None:
        if operation == "list":
            world.bucket.objects.pop(hidden, None)
        else:
            world.bucket.objects[hidden] = held

    world.bucket.faults = hide
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "not listed" in (run.reason or "")


async def test_missing_hints_change_nothing_and_earliest_is_written(world: World) -> None:
    history(world)
    del world.bucket.objects[f"{world.table.place}/snapshot/LATEST"]
    assert (await world.clean()).outcome is Outcome.DONE
    assert world.bucket.objects[f"{world.table.place}/snapshot/EARLIEST"].data == b"7"


async def test_a_hint_without_any_snapshot_stops_the_table(world: World) -> None:
    """A listing that shows nothing of a table that was committed to must not look like an empty table."""
    history(world)
    for number in range(1, 8):
        del world.bucket.objects[f"{world.table.place}/snapshot/snapshot-{number}"]
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "LATEST" in (run.reason or "")
    assert world.bucket.objects == before


async def test_a_snapshot_that_is_there_but_not_listed_stops_the_table(world: World) -> None:
    history(world)
    hidden = f"{world.table.place}/snapshot/snapshot-7"
    held = world.bucket.objects[hidden]

    def hide(operation: str, address: str) -> None:
        if operation == "list":
            world.bucket.objects.pop(hidden, None)
        else:
            world.bucket.objects[hidden] = held

    world.bucket.faults = hide
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "not listed" in (run.reason or "")


# Damage


@pytest.mark.parametrize("where", ["tag/tag-x", "snapshot/snapshot-7", "consumer/consumer-c", "changelog/changelog-1"])
async def test_what_protects_files_and_cannot_be_read_stops_the_table(where: str, world: World) -> None:
    history(world)
    world.table.tag("x")
    world.table.put(where, b'{"version": 3, "id"')
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert where.rpartition("/")[2] in (run.reason or "")
    assert world.bucket.objects == before


async def test_a_branch_without_a_schema_stops_the_table(world: World) -> None:
    history(world)
    world.table.branch("dev")
    del world.bucket.objects[f"{world.table.place}/branch/branch-dev/schema/schema-0"]
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "branch-dev" in (run.reason or "")


@pytest.mark.parametrize("which", ["baseManifestList", "deltaManifestList"])
@pytest.mark.parametrize("holder", ["latest", "tag", "branch"])
async def test_a_missing_list_of_what_stays_stops_the_table(which: str, holder: str, world: World) -> None:
    history(world)
    world.table.tag("x")
    world.table.branch("dev")
    document = world.table.lines["main"].snapshot
    assert document is not None
    if holder != "latest":
        world.table.append("a")
        world.table.merge()
    del world.bucket.objects[f"{world.table.place}/manifest/{document[which]}"]
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert world.bucket.objects == before


@pytest.mark.parametrize("part", ["list", "manifest", "data"])
async def test_what_an_expiring_snapshot_lacks_only_shrinks_the_work(part: str, world: World) -> None:
    """A killed run leaves such snapshots behind."""
    history(world)
    first = json.loads(world.bucket.objects[f"{world.table.place}/snapshot/snapshot-2"].data)
    world.table.merge()
    if part == "list":
        gone = [f"manifest/{first['deltaManifestList']}", f"manifest/{first['baseManifestList']}"]
    elif part == "manifest":
        gone = [
            key
            for key in world.table.needs["snapshot/snapshot-2"]
            if key.startswith("manifest/manifest-") and key not in world.table.needs["snapshot/snapshot-8"]
        ][:1]
    else:
        gone = [
            key
            for key in world.table.needs["snapshot/snapshot-2"]
            if key.startswith("dt=") and key not in world.table.needs["snapshot/snapshot-8"]
        ][:1]
    for key in gone:
        del world.bucket.objects[f"{world.table.place}/{key}"]
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.standing() == ["snapshot/snapshot-8"]
    assert world.table.lost() == set()


async def test_a_missing_live_file_is_for_a_person_to_look_at(world: World) -> None:
    history(world)
    live = next(key for key in world.table.needs["snapshot/snapshot-7"] if key.startswith("dt="))
    del world.bucket.objects[f"{world.table.place}/{live}"]
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "missing_live_files"


async def test_a_list_of_an_old_writer_cut_behind_a_block_is_seen_by_the_row_count(world: World) -> None:
    """Nothing records its length; what is left of it looks whole, and would lose every live file."""
    history(world)
    world.table.merge()
    line = world.table.lines["main"]
    document = dict(line.snapshot or {})
    base = f"{world.table.place}/manifest/{document['baseManifestList']}"
    data = world.bucket.objects[base].data
    empty = data[: avro.walk(data).body]
    world.bucket.objects[base] = Held(data=empty, modified_at=None)
    for name in ("baseManifestListSize", "deltaManifestListSize"):
        del document[name]
    world.table.put_json("snapshot/snapshot-8", document)
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "truncated" in (run.reason or "")
    assert world.bucket.objects == before


async def test_a_list_with_another_length_than_recorded_stops_the_table(world: World) -> None:
    history(world)
    document = world.table.lines["main"].snapshot
    assert document is not None
    key = f"{world.table.place}/manifest/{document['baseManifestList']}"
    data = world.bucket.objects[key].data
    world.bucket.objects[key] = Held(data=data[: avro.walk(data).body], modified_at=None)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "bytes" in (run.reason or "")


# Others at work


async def test_a_snapshot_that_goes_while_it_is_read_is_looked_for_anew(world: World) -> None:
    """With one snapshot retained, a concurrent expiry removes the only one that was listed: it must not look as if
    nothing were referenced."""
    world.table.append("a")
    world.table.append("b")
    world.table._remove("snapshot/snapshot-1")

    def replaced() -> None:
        for key in world.table.needs["snapshot/snapshot-2"]:
            if key.startswith("manifest/manifest-list-"):
                del world.bucket.objects[f"{world.table.place}/{key}"]
        world.table.append("c")
        world.table._remove("snapshot/snapshot-2")

    world.bucket.faults = once(lambda operation, address: operation == "read" and "manifest-list" in address, replaced)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()
    assert len([key for key in world.table.stored() if key.startswith("dt=")]) == 3


async def test_a_snapshot_expired_by_others_while_read_stops_nothing(world: World) -> None:
    """Writers expire with every commit, and reading manifests may take longer than that."""
    table = world.table
    table.append("a")
    table.merge()
    table.append("b")
    alone = {
        key for key in table.needs["snapshot/snapshot-1"] - table.needs["snapshot/snapshot-3"] if "manifest-" in key
    }

    def expire() -> None:
        table._remove("snapshot/snapshot-1")
        for key in alone:
            del world.bucket.objects[f"{table.place}/{key}"]

    def reads_it(operation: str, address: str) -> bool:
        return operation == "read" and "manifest-list" not in address and any(map(address.endswith, alone))

    world.bucket.faults = once(reads_it, expire)
    run = await world.clean(keep=3)
    assert run.outcome is Outcome.DONE, run.reason
    assert "snapshot/snapshot-1" not in table.stored()
    assert table.lost() == set()


async def test_a_tag_made_after_the_plan_keeps_its_snapshot_whole(world: World) -> None:
    history(world)

    def tagged() -> None:
        document = json.loads(world.bucket.objects[f"{world.table.place}/snapshot/snapshot-3"].data)
        world.table.put_json("tag/tag-late", document)
        world.table.needs["tag/tag-late"] = world.table.needs["snapshot/snapshot-3"]

    handle = world.handle()
    commit = handle.commit_expiry

    async def commit_then_tag(*arguments: Any) -> Any:
        answer = await commit(*arguments)
        tagged()
        return answer

    handle.commit_expiry = commit_then_tag  # type: ignore[method-assign]
    run = await world.clean(handle=handle)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.spared > 0
    assert world.table.lost() == set()


async def test_a_tag_past_its_own_time_keeps_its_files_until_somebody_deletes_it(world: World) -> None:
    history(world, count=3)
    world.table.tag("release")
    place = f"{world.table.place}/tag/tag-release"
    document = json.loads(world.bucket.objects[place].data)
    world.table.put_json(
        "tag/tag-release", document | {"tagCreateTime": [2026, 1, 1, 0, 0, 0, 0], "tagTimeRetained": 60}
    )
    world.table.overwrite("a")
    world.table.overwrite("b")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert "tag/tag-release" in world.table.standing()
    assert world.table.lost() == set()
    world.table.delete_tag("release")
    freed = await world.clean()
    assert freed.deletion.by_kind["data"].files > 0
    assert world.table.lost() == set()


async def test_the_sign_that_a_tag_is_there_is_no_tag(world: World) -> None:
    """Java writes it for those who wait for the tag (`tag.create-success-file`)."""
    history(world)
    world.table.tag("x")
    world.table.put_json("tag/tag-success-file/x_SUCCESS", {"creationTime": 1, "modificationTime": 1})
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()
    assert "tag/tag-success-file/x_SUCCESS" in world.table.stored()


async def test_a_consumer_that_was_not_heard_of_for_long_still_holds_its_snapshots(world: World) -> None:
    world.make({"consumer.expiration-time": "1 h"})
    history(world)
    world.table.consume("stale", 3)
    world.bucket.set_modified(f"{world.table.place}/consumer/consumer-stale", NOW - timedelta(days=400))
    run = await world.clean()
    assert run.expired_snapshots == ("1", "2")
    assert world.table.lost() == set()


async def test_a_consumer_that_appears_after_the_plan_takes_its_snapshots_back(world: World) -> None:
    history(world)
    handle = world.handle()
    commit = handle.commit_expiry

    async def commit_then_consume(*arguments: Any) -> Any:
        answer = await commit(*arguments)
        world.table.consume("late", 4)
        return answer

    handle.commit_expiry = commit_then_consume  # type: ignore[method-assign]
    await world.clean(handle=handle)
    assert [name for name in world.table.standing() if name.startswith("snapshot/")] == [
        f"snapshot/snapshot-{number}" for number in (4, 5, 6, 7)
    ]
    assert world.table.lost() == set()


def with_belongings(world: World, number: int) -> tuple[str, str]:
    """Give a snapshot statistics, and its newest manifest a sidecar as later writers do; where the two are."""
    table, place = world.table, f"snapshot/snapshot-{number}"
    document = json.loads(world.bucket.objects[f"{table.place}/{place}"].data)
    listed = world.bucket.objects[f"{table.place}/manifest/{document['deltaManifestList']}"].data
    (record,) = avro.read_records(listed)
    sidecar, statistics = f"{record['_FILE_NAME']}.sidecar", f"stat-{number}-0"
    extra = {"name": "_EXTRA_FILES", "type": ["null", {"type": "array", "items": "string"}], "default": None}
    schema = {**LIST_SCHEMA, "fields": [*LIST_SCHEMA["fields"], extra]}
    data = avro.write(schema, [record | {"_EXTRA_FILES": [sidecar]}])
    name = f"manifest-list-with-sidecar-{number}"
    table.put(f"manifest/{name}", data)
    table.put(f"manifest/{sidecar}", b"x")
    table.put(f"statistics/{statistics}", b"{}")
    changes = {"deltaManifestList": name, "deltaManifestListSize": len(data), "statistics": statistics}
    table.put_json(place, document | changes)
    return f"manifest/{sidecar}", f"statistics/{statistics}"


async def test_sidecars_and_statistics_stay_with_their_snapshot_and_go_with_it(world: World) -> None:
    history(world)
    going, staying = with_belongings(world, 2), with_belongings(world, 7)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    stored = set(world.table.stored())
    assert set(staying) <= stored
    assert not set(going) & stored


async def test_an_id_that_is_used_again_after_a_rollback_is_another_snapshot(world: World) -> None:
    history(world)
    handle = world.handle()
    state = await handle.load()
    plan = state.plan_expiry(OLD, NOW)
    assert "6" in [snapshot.id for snapshot in plan.expire]
    world.table.rollback(2)
    world.table.append("c")
    world.table.append("c")
    fresh = await handle.load()
    references = await fresh.references(plan)
    assert world.table.address + "/snapshot/snapshot-6" in references.retained
    assert world.table.address + "/snapshot/snapshot-5" in references.expired


async def test_a_rollback_to_a_snapshot_that_is_about_to_go_takes_it_back(world: World) -> None:
    class RolledBack(PaimonTable):
        """Another process goes back to snapshot 3 when nothing of it is deleted yet."""

        async def commit_expiry(self, *args: Any) -> Any:
            committed = await super().commit_expiry(*args)
            world.table.rollback(4)
            return committed

    history(world)
    handle = RolledBack(**vars_of(world.handle()))
    run = await world.clean(handle=handle)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.deletion.deleted.files > 0
    assert world.table.standing() == ["snapshot/snapshot-3"]
    assert world.table.lost() == set()


async def test_a_gap_in_the_ids_does_not_stop_expiry(world: World) -> None:
    history(world)
    world.table._remove("snapshot/snapshot-3")
    run = await world.clean()
    assert run.expired_snapshots == ("1", "2", "4", "5", "6")
    assert world.table.lost() == set()


async def test_ten_expirers_at_once_do_not_hurt_each_other(world: World) -> None:
    history(world, 12)

    async def one(number: int) -> Any:
        label = TableRef(tenant=TenantId(f"t{number}"), dataset="d", name="t", format=FormatName.PAIMON)
        return await world.clean(handle=world.handle(ref=label))

    runs = await asyncio.gather(*(one(number) for number in range(10)))
    assert all(run.outcome in (Outcome.DONE, Outcome.FAILED) for run in runs)
    assert world.table.lost() == set()
    assert (await world.clean()).outcome is Outcome.DONE
    assert world.table.lost() == set()


# Changelogs


@pytest.mark.parametrize("producer", ["input", "none"])
async def test_expired_snapshots_leave_longer_lived_changelogs(producer: str, world: World) -> None:
    world.make(LASTING | {"changelog-producer": producer})
    for _ in range(3):
        world.table.changelog("a")
    world.table.compact("a")
    changelogs = {key for key in world.table.stored() if "/changelog-" in key}
    appended = {file.places().pop() for file in world.table.files if file.source == 0}
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("1", "2", "3")
    stored = world.table.stored()
    assert {f"changelog/changelog-{number}" for number in (1, 2, 3)} <= stored
    assert changelogs <= stored
    # With a producer the changelog files are the changelog; without one streams read what the compaction deleted.
    assert appended <= stored if producer == "none" else appended.isdisjoint(stored)
    assert world.table.lost() == set()
    again = await world.clean()
    assert (again.outcome, again.deletion.deleted.files) == (Outcome.DONE, 0)


async def test_a_list_that_may_be_gone_must_be_whole_if_it_is_there(world: World) -> None:
    """Cut right behind its header it is a sound list of nothing, and only the recorded length tells."""
    world.table.changelog("a")
    world.table.branch("dev")
    world.table.append("a")
    document = json.loads(world.bucket.objects[f"{world.table.place}/branch/branch-dev/snapshot/snapshot-1"].data)
    key = f"{world.table.place}/manifest/{document['changelogManifestList']}"
    data = world.bucket.objects[key].data
    world.bucket.objects[key] = Held(data=data[: avro.walk(data).body], modified_at=NOW - timedelta(days=3))
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "indeterminate"
    assert world.bucket.objects == before


async def test_without_a_producer_what_deltas_add_and_delete_is_the_changelog(world: World) -> None:
    """Streams read the files that an overwrite deleted, lookup joins those of compactions. They go with the last
    changelog or snapshot that names them."""
    world.make(LASTING)
    world.table.append("a", extras=1)
    world.table.overwrite("a")
    world.table.append("b")
    world.table.compact("a")
    world.table.drop("b")
    data = {key for key in world.table.stored() if key.startswith("dt=")}
    assert (await world.clean()).expired_snapshots == ("1", "2", "3", "4")
    assert {key for key in world.table.stored() if key.startswith("dt=")} == data
    assert world.table.lost() == set()
    assert (await world.clean()).deletion.deleted.files == 0
    short = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "2", "snapshot.num-retained.max": "1"}
    world.table.put_json("schema/schema-1", world.table.schema(short) | {"id": 1})
    for _ in range(6):
        await world.clean()
    assert world.table.lost() == set()
    kept = {key for key in world.table.stored() if key.startswith("dt=")}
    first, overwriting, dropped, compacted = (file.places() for file in world.table.files)
    assert kept == compacted | dropped | overwriting
    assert first.isdisjoint(kept)


async def test_deltas_that_streams_read_stay_whole_after_a_merge(world: World) -> None:
    """From then on the changelogs alone name what was overwritten, compacted or dropped."""
    world.make(LASTING)
    world.table.append("a", extras=1)
    world.table.overwrite("a")
    world.table.merge()
    world.table.append("b")
    world.table.compact("a")
    world.table.drop("b")
    world.table.merge()
    before = {key for key in world.table.stored() if key.startswith(("dt=", "manifest/"))}
    run = await world.clean()
    assert run.expired_snapshots == ("1", "2", "3", "4", "5", "6")
    assert run.plan is not None
    assert run.plan.candidates.files == 6  # the snapshots' own files
    assert before <= world.table.stored()
    assert (await world.clean()).deletion.deleted.files == 0
    assert before <= world.table.stored()


async def test_what_streams_would_read_and_java_has_taken_is_not_missed(world: World) -> None:
    """Java keeps what writers appended, but takes what compactions wrote."""
    world.make(LASTING)
    world.table.append("a")
    world.table.compact("a")
    world.table.compact("a")
    await world.clean()
    for file in world.table.files:
        if file.source == 1 and file.name not in {one.name for one in world.table.lines["main"].live.values()}:
            for place in file.places():
                del world.bucket.objects[f"{world.table.place}/{place}"]
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason


async def test_consumers_that_need_only_changelogs_do_not_keep_snapshots(world: World) -> None:
    history(world)
    world.make(LASTING | {"consumer.changelog-only": "true", "changelog-producer": "input"}, "lasting")
    history(world)
    world.table.consume("reader", 2)
    run = await world.clean()
    assert run.expired_snapshots == ("1", "2", "3", "4", "5", "6")
    assert {f"changelog/changelog-{number}" for number in range(1, 7)} <= world.table.stored()
    world.make({"consumer.changelog-only": "true"}, "coupled")
    history(world)
    world.table.consume("reader", 2)
    assert (await world.clean()).expired_snapshots == ("1",)


async def test_a_changelog_of_a_branch_that_another_tool_took_is_not_missed(world: World) -> None:
    """Java expires the main table without regard to branches: first the changelog's manifests, then their list."""
    world.table.changelog("a")
    world.table.branch("dev")
    for manifest in ("manifest-", "manifest-list-"):
        gone = [key for key in world.table.lines["dev"].changelog if key.startswith(f"manifest/{manifest}")]
        for key in gone:
            world.bucket.objects.pop(f"{world.table.place}/{key}", None)
        world.table.append("b")
        run = await world.clean()
        assert run.outcome is Outcome.DONE, run.reason
    assert "branch/branch-dev/snapshot/snapshot-1" in world.table.standing()
    data = {key for key in world.table.needs["branch/branch-dev/snapshot/snapshot-1"] if "/data-" in key}
    assert data <= world.table.stored()


@pytest.mark.parametrize("option", ["snapshot.time-retained", "changelog.time-retained", "partition.expiration-time"])
async def test_forever_keeps_everything_and_stops_nothing(option: str, world: World) -> None:
    world.make({option: "3650000 d", "changelog-producer": "input"})
    for _ in range(3):
        world.table.changelog("2020-01-01")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_partitions == ()
    assert world.table.lost() == set()


# Heads, explanations, warehouses


async def test_the_head_moves_with_everything_that_protects_files(world: World) -> None:
    history(world)
    seen = [await world.handle().head()]
    for step in (
        lambda: world.table.append("a"),
        lambda: world.table.tag("x"),
        lambda: world.table.branch("dev"),
        lambda: world.table.append("a", branch="dev"),
        lambda: world.table.consume("c", 3),
        lambda: world.table.delete_tag("x"),
        lambda: world.table.rollback(1),
    ):
        step()
        seen.append(await world.handle().head())
    assert len(set(seen)) == len(seen)
    assert await world.handle().head() == seen[-1] == (await world.handle().load()).head


async def test_what_is_kept_can_be_explained(world: World) -> None:
    history(world)
    world.table.tag("x")
    handle = world.handle()
    state = await handle.load()
    manifest = Location.parse(f"{world.table.address}/manifest/{world.table.lines['main'].metas[0]['_FILE_NAME']}")
    assert {"snapshot 1 leads to it", "tag x leads to it"} <= set(await state.explain(manifest))
    snapshot = Location.parse(f"{world.table.address}/snapshot/snapshot-2")
    assert await state.explain(snapshot) == ("snapshot 2 leads to it",)
    assert await state.explain(Location.parse(f"{world.table.address}/manifest/unknown")) == ()


async def test_a_warehouse_shows_its_tables_committed_to_or_not(world: World) -> None:
    history(world)
    world.make({}, "never")
    bucket(world.name).objects["wh/other.db/x/schema/schema-0"] = Held(data=b"{}", modified_at=None)
    bucket(world.name).objects["wh/d.db/no/table.txt"] = Held(data=b"", modified_at=None)
    whole = PaimonFormat(spec(world), Tools(storage=world.bench.storage, clock=world.bench.clock))
    assert [ref.name for ref in await whole.tables()] == ["d.never", "d.t", "other.x"]
    one = PaimonFormat(spec(world, "d"), Tools(storage=world.bench.storage, clock=world.bench.clock))
    assert [ref.name for ref in await one.tables()] == ["never", "t"]
    places = await whole.locations()
    assert {ref.name: [place.raw for place in found] for ref, found in places.items()}["other.x"] == [
        f"memory://{world.name}/wh/other.db/x/"
    ]
    table = await one.open((await one.tables())[1])
    assert table.location.raw == f"memory://{world.name}/wh/d.db/t"
    with pytest.raises(UnknownTable):
        await one.open(TableRef(tenant=TenantId("t"), dataset="else", name="t", format=FormatName.PAIMON))


async def test_a_warehouse_is_looked_through_without_listing_what_is_in_the_tables(world: World) -> None:
    history(world)
    asked: list[tuple[str, str]] = []
    world.bucket.faults = lambda *call: asked.append(call)
    whole = PaimonFormat(spec(world), Tools(storage=world.bench.storage, clock=world.bench.clock))
    assert [ref.name for ref in await whole.tables()] == ["d.t"]
    assert {name for call, name in asked if call == "list"} == {f"{world.table.address}/schema"}


async def test_a_name_with_dots_is_the_table_that_is_there(world: World) -> None:
    """A neighbour whose place is taken for another one protects nothing."""
    for place in ("d.e.db/t", "d.db/f.g.t"):
        bucket(world.name).objects[f"wh/{place}/schema/schema-0"] = Held(data=b"{}", modified_at=None)
    whole = PaimonFormat(spec(world), Tools(storage=world.bench.storage, clock=world.bench.clock))
    places = {ref.name: found for ref, found in (await whole.locations()).items()}
    root = f"memory://{world.name}/wh"
    assert places["d.e.t"] == (Location.parse(f"{root}/d.e.db/t/"),)
    assert places["d.f.g.t"] == (Location.parse(f"{root}/d.db/f.g.t/"),)
    bucket(world.name).objects["wh/d.db/e.t/schema/schema-0"] = Held(data=b"{}", modified_at=None)
    with pytest.raises(UnknownTable, match=r"d\.e\.t"):
        await whole.locations()


def test_a_dataset_without_a_warehouse_is_a_settings_error(world: World) -> None:
    root = Location.parse("memory://x/wh")
    bare = DatasetSpec(tenant=TenantId("t"), tenant_root=root, dataset="d", format=FormatName.PAIMON)
    with pytest.raises(SettingsError, match="warehouse"):
        PaimonFormat(bare, Tools(storage=world.bench.storage, clock=world.bench.clock))


async def test_external_roots_inside_the_tenants_root_are_roots_and_others_are_not(world: World) -> None:
    inside, outside = f"memory://{world.name}/wh/ext", "memory://elsewhere/ext"
    within = f"memory://{world.name}/wh/d.db/t/more"
    world.make({"data-file.external-paths": f"{inside},{outside},{within}", "data-file.path-directory": "data"})
    history(world)
    state = await world.handle().load()
    assert [root.raw for root in state.roots] == [f"{world.table.address}/", f"{inside}/"]


async def test_nothing_is_expired_beyond_what_the_plan_let_go_of(world: World) -> None:
    """Between plan and commit time passes and snapshots are added; the plan's rows know nothing of those."""
    history(world)
    handle = world.handle()
    state = await handle.load()
    plan = state.plan_expiry(CleanupPolicy(max_snapshot_age=timedelta(0), min_snapshots_to_keep=5), NOW)
    await state.references(plan)
    _, committed = await handle.commit_expiry(state, OLD, NOW, _Ours())
    assert [snapshot.id for snapshot in committed.expire] == [snapshot.id for snapshot in plan.expire] == ["1", "2"]


async def test_a_dry_run_and_a_load_after_it_see_the_same_table(world: World) -> None:
    history(world)
    before = dict(world.bucket.objects)
    run = await world.clean(execute=False)
    assert run.outcome is Outcome.DRY_RUN
    assert run.expiry is not None
    assert len(run.expiry.expire) == 6
    assert world.bucket.objects == before


async def test_references_without_expiry_name_everything(world: World) -> None:
    history(world)
    handle = world.handle()
    state = await handle.load()
    references = await state.references(ExpiryPlan(head=state.head))
    assert references.expired == ()
    assert all(source.retained for source in references.sources)


class _Ours:
    async def check(self) -> None:
        return None
