"""Commits: atomic, retried, cleaned up before publishing and never after."""

from __future__ import annotations

import copy
import io
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.builders import paimon_model
from tests.builders.paimon_commits import EXPIRING, Ours, latest, live
from tests.builders.paimon_model import STRING, DataFile
from tests.builders.paimon_world import NOW, World

from lakesweep.formats import avro
from lakesweep.formats.paimon import drop
from lakesweep.formats.paimon.binaryrow import encode_row
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.manifests import ADD, read_entries, read_list
from lakesweep.formats.paimon.snapshots import MADE_FROM
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.errors import (
    CommitConflict,
    CommitUnknown,
    Indeterminate,
    LeaseLost,
    Refused,
    Unavailable,
    Unreadable,
)
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.storage.memory import Held


def history(world: World, **options: str) -> None:
    world.make(EXPIRING | {name.replace("_", "-"): value for name, value in options.items()})
    world.table.append("2020-01-01", extras=1)
    world.table.append("2026-04-30")
    world.table.append("2020-01-01")
    world.table.append(None)


async def drop_old(world: World, handle: PaimonTable | None = None) -> Any:
    """The new snapshot's document, or None when there is none."""
    handle = handle or world.handle()
    due = (await handle._with_partitions()).partitions
    old = [partition for partition in due if partition.values == ("2020-01-01",)]
    reload = handle._with_partitions
    went = await drop.drop_partitions(handle._committer(), handle.lists, reload, old, fence=Ours(), now=NOW)
    return latest(world) if went else None


def manifests(world: World) -> set[str]:
    return {key for key in world.table.stored() if key.startswith("manifest/")}


def files(count: int) -> list[DataFile]:
    return [DataFile(name=f"data-{uuid.uuid4()}-0.orc", partition="2026-04-30") for _ in range(count)]


def failing(operation: str, part: str, *, times: int = 1) -> Callable[[str, str], None]:
    left = times

    def hook(seen: str, address: str) -> None:
        nonlocal left
        if left and seen == operation and part in address:
            left -= 1
            raise Unavailable(address, "injected")

    return hook


async def test_a_drop_deletes_every_live_file_of_the_partition(world: World) -> None:
    history(world)
    document = await drop_old(world)
    assert document["id"] == 5
    assert document["commitKind"] == "OVERWRITE"
    assert (document["deltaRecordCount"], document["totalRecordCount"]) == (-20, 20)
    assert "operation" not in document
    assert document["commitIdentifier"] == 2**63 - 1
    assert world.bucket.objects[f"{world.table.place}/snapshot/LATEST"].data == b"5"
    assert await drop_old(world) is None


async def test_a_drop_copies_the_partition_as_its_writer_spelled_it(world: World) -> None:
    """Writers lay out the same value differently; a DELETE in other bytes would take nothing back."""
    world.make(EXPIRING)
    usual = encode_row(["2020-01-01"], STRING)
    world.table.commit("main", adds=[DataFile(name="data-a-0.orc", partition="2020-01-01", spelled=usual + bytes(8))])
    world.table.append("2020-01-01")
    run = await world.clean()
    assert run.expired_partitions, run.reason
    document = latest(world)
    delta = world.bucket.objects[f"{world.table.place}/manifest/{document['deltaManifestList']}"].data
    (meta,) = read_list(delta)
    entries = read_entries(world.bucket.objects[f"{world.table.place}/manifest/{meta.name}"].data)
    assert {(entry["_KIND"], entry["_PARTITION"]) for entry in entries} == {(1, usual), (1, usual + bytes(8))}
    assert document["totalRecordCount"] == 0


async def test_every_committers_name_is_its_own(world: World) -> None:
    history(world)
    one = await drop_old(world)
    world.table.lines["main"].next_id = 6
    world.make(EXPIRING, "t2")
    world.table.append("2020-01-01")
    other = await drop_old(world)
    assert one["commitUser"] != other["commitUser"]
    assert one["uuid"] != other["uuid"]


@pytest.mark.parametrize("part", ["manifest/manifest-", "manifest/manifest-list-"])
async def test_an_error_before_publishing_removes_what_was_written(part: str, world: World) -> None:
    history(world)
    before = manifests(world)
    world.bucket.faults = failing("put", part)
    with pytest.raises(Unavailable):
        await drop_old(world)
    assert manifests(world) == before
    assert latest(world)["id"] == 4


async def test_a_lost_answer_to_the_publishing_is_recognised_as_success(world: World) -> None:
    history(world)
    world.bucket.faults = failing("put_answer", "snapshot/snapshot-5")
    snapshot = await drop_old(world)
    assert snapshot["id"] == 5


async def test_publishing_that_failed_for_sure_or_not_removes_nothing(world: World) -> None:
    history(world)
    before = manifests(world)
    world.bucket.faults = failing("put", "snapshot/snapshot-5", times=99)
    with pytest.raises(CommitUnknown):
        await drop_old(world)
    assert manifests(world) > before


async def test_publishing_that_cannot_be_looked_at_is_unknown(world: World) -> None:
    history(world)
    before = manifests(world)

    def hook(operation: str, address: str) -> None:
        if address.endswith("snapshot/snapshot-5") and operation in ("put_answer", "read"):
            raise Unavailable(address, "injected")

    world.bucket.faults = hook
    with pytest.raises(CommitUnknown):
        await drop_old(world)
    world.bucket.faults = None
    assert latest(world)["id"] == 5
    assert manifests(world) > before


async def test_a_hint_that_cannot_be_written_is_no_failed_commit(world: World) -> None:
    history(world)
    world.bucket.faults = failing("put", "snapshot/LATEST", times=99)
    assert (await drop_old(world))["id"] == 5


async def test_who_loses_the_race_looks_again_and_sees_what_the_winner_did(world: World) -> None:
    history(world)
    lost = 0

    def hook(operation: str, address: str) -> None:
        nonlocal lost
        if operation == "put" and lost < 2 and "snapshot/snapshot-" in address:
            lost += 1
            world.bucket.faults = None
            world.table.append("2020-01-01")
            world.bucket.faults = hook

    world.bucket.faults = hook
    snapshot = await drop_old(world)
    assert (lost, snapshot["id"]) == (2, 7)
    assert snapshot["deltaRecordCount"] == -40
    assert snapshot["totalRecordCount"] == 20


async def test_a_try_after_a_lost_race_reads_only_the_manifests_that_are_new(world: World) -> None:
    """On a table with many, others would else always be first."""
    history(world)
    (untouched,) = [meta["_FILE_NAME"] for meta in world.table.lines["main"].metas[1:2]]
    reads: list[int] = []

    def hook(operation: str, address: str) -> None:
        if operation == "read" and address.endswith(untouched):
            reads.append(len(reads))
        if operation == "put" and address.endswith("snapshot/snapshot-5"):
            world.bucket.faults = None
            world.table.append("b")
            world.bucket.faults = hook

    world.bucket.faults = hook
    assert (await drop_old(world))["id"] == 6
    assert reads == [0]


async def test_retries_are_bounded(world: World) -> None:
    history(world, **{"commit.max-retries": "2"})
    lost = 0

    def hook(operation: str, address: str) -> None:
        nonlocal lost
        if operation == "put" and "snapshot/snapshot-" in address:
            lost += 1
            world.bucket.faults = None
            world.table.append("b")
            world.bucket.faults = hook

    world.bucket.faults = hook
    with pytest.raises(CommitConflict):
        await drop_old(world)
    assert lost == 3


async def test_a_lost_lease_commits_nothing(world: World) -> None:
    class Lost:
        async def check(self) -> None:
            raise LeaseLost("gone")

    history(world)
    before = dict(world.bucket.objects)
    handle = world.handle()
    with pytest.raises(LeaseLost):
        await drop.drop_partitions(handle._committer(), handle.lists, handle._native, [], fence=Lost(), now=NOW)
    assert world.bucket.objects == before


async def test_a_snapshot_overwritten_right_after_us_is_a_lost_race(world: World) -> None:
    """Writers that rename over existing files can do that; then our commit never happened."""
    history(world)
    raced = False

    def hook(operation: str, address: str) -> None:
        nonlocal raced
        if operation == "put_answer" and address.endswith("snapshot-5") and not raced:
            raced = True
            world.bucket.faults = None
            world.table.append("b")
            world.bucket.faults = hook

    world.bucket.faults = hook
    snapshot = await drop_old(world)
    assert raced
    assert snapshot["id"] == 6


async def test_a_drop_keeps_other_index_entries_and_snapshot_properties(
    world: World,
) -> None:
    history(world)
    world.table.index()
    document = dict(world.table.lines["main"].snapshot or {})
    more = {"watermark": 77, "properties": {"a": "b"}, "nextRowId": 9, "logOffsets": {"0": 5}}
    world.table.put_json("snapshot/snapshot-5", document | more)
    await drop_old(world)
    dropped = latest(world)
    assert dropped["logOffsets"] == {"0": 5}
    assert (dropped["watermark"], dropped["nextRowId"], dropped["indexManifest"]) == (77, 9, document["indexManifest"])
    assert list(dropped["properties"]) == [MADE_FROM]  # others' describe their own commit
    compacted = await world.handle().compact_manifests(NOW, Ours())
    assert compacted is not None
    assert compacted.document["watermark"] == 77


async def test_an_index_manifest_that_is_cut_off_is_not_committed_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut behind a block it looks whole, and a commit would carry on fewer deletion vectors."""
    history(world)
    world.table.index()
    before, whole = latest(world), TableFiles.read

    async def cut(files: TableFiles, location: Location) -> bytes:
        data = await whole(files, location)
        return data[: avro.walk(data).body] if location.name == before["indexManifest"] else data

    monkeypatch.setattr(TableFiles, "read", cut)
    with pytest.raises(Unreadable, match="recorded"):
        await drop_old(world)
    assert latest(world) == before


async def test_a_latest_snapshot_with_fields_we_do_not_know_is_not_committed_on(world: World) -> None:
    history(world)
    document = dict(world.table.lines["main"].snapshot or {})
    world.table.put_json("snapshot/snapshot-4", document | {"unheardOf": 1})
    handle = world.handle()
    state = await handle.load()
    plan = state.plan_expiry(CleanupPolicy(), NOW)
    assert plan.partitions == ()
    assert "unheardOf" in (plan.skipped or "")
    assert await drop_old(world) is None
    with pytest.raises(Refused, match="unheardOf"):
        await world.handle().compact_manifests(NOW, Ours())
    assert latest(world)["id"] == 4


async def test_unreadable_statistics_stop_a_commit(world: World) -> None:
    history(world)
    document = dict(world.table.lines["main"].snapshot or {})
    world.table.put_json("snapshot/snapshot-4", document | {"statistics": "stat-1"})
    world.table.put_json("statistics/stat-1", {"schemaId": 0})
    before = manifests(world)
    world.bucket.faults = failing("read", "statistics/")
    with pytest.raises(Unavailable):
        await drop_old(world)
    assert manifests(world) == before
    await drop_old(world)
    assert latest(world)["statistics"] == "stat-1"


async def test_a_duplicate_add_stops_a_merge(world: World) -> None:
    history(world)
    twice = DataFile(name="data-twice.orc", partition="a")
    world.table.commit("main", adds=[twice])
    world.table.commit("main", adds=[twice])
    before = manifests(world)
    with pytest.raises(Indeterminate, match="added twice"):
        await world.handle().compact_manifests(NOW, Ours())
    assert manifests(world) == before


async def test_a_manifest_that_is_another_one_when_it_is_read_again_stops_a_merge(world: World) -> None:
    """Which entries are left is decided before they are written, and from then on each has to be found."""
    world.table.commit("main", adds=[DataFile(name="data-a.orc", partition="a")])
    world.table.append("b")
    name = world.table.lines["main"].metas[0]["_FILE_NAME"]
    key = f"{world.table.place}/manifest/{name}"
    other = avro.write(paimon_model.MANIFEST_SCHEMA, [DataFile(name="data-b.orc", partition="a").entry(ADD)])
    assert len(other) == len(world.bucket.objects[key].data), "its length would tell as well"
    before = manifests(world)
    reads = 0

    def hook(operation: str, address: str) -> None:
        nonlocal reads
        reads += operation == "read" and address.endswith(name)
        if reads == 2:
            world.bucket.objects[key] = Held(data=other, modified_at=None)

    world.bucket.faults = hook
    with pytest.raises(Indeterminate, match="2 entries are left of merged manifests, but 1 were written"):
        await world.handle().compact_manifests(NOW, Ours())
    assert manifests(world) == before
    assert latest(world)["id"] == 2


@pytest.mark.parametrize("part", ["list", "manifest"])
async def test_manifests_we_cannot_write_are_an_outcome_and_no_crash(part: str, world: World) -> None:
    world.make(EXPIRING)
    world.table.append("2020-01-01")
    document = dict(world.table.lines["main"].snapshot or {})
    if part == "list":
        document["deltaManifestListSize"] = as_parquet(world, document["deltaManifestList"])
    else:
        (meta,) = world.table.lines["main"].metas
        listed = [meta | {"_FILE_SIZE": as_parquet(world, meta["_FILE_NAME"])}]
        document["deltaManifestList"], document["deltaManifestListSize"] = world.table._list(listed)
    world.table.put_json("snapshot/snapshot-1", document)
    run = await world.bench.run(world.handle(), CleanupPolicy(dry_run=False))
    assert run.outcome is Outcome.FAILED
    assert run.reason == "nothing can be committed on top of snapshot 1: neither Avro nor ORC"


def as_parquet(world: World, name: str) -> int:
    """Write a manifest or a list anew in a container that is read, but not written; its new length."""
    key = f"{world.table.place}/manifest/{name}"
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(avro.read_records(world.bucket.objects[key].data)), sink)
    world.bucket.objects[key] = Held(data=sink.getvalue(), modified_at=None)
    return len(sink.getvalue())


async def test_a_commit_is_as_young_as_it_is_and_not_as_its_plan(world: World) -> None:
    """Planning may take hours. By the plan's time the snapshot before it would have been replaced long ago, and would
    go at once although everybody was reading it."""
    history(world)
    world.bench.clock.at = NOW + timedelta(hours=3)
    document = await drop_old(world)
    assert document["timeMillis"] == int(world.bench.clock.at.timestamp() * 1000)


async def test_a_file_that_was_added_again_is_never_put_before_its_delete(world: World) -> None:
    """A large manifest may stay as it is when its neighbours are merged, but then not in front of them."""
    history(world, **{"manifest.target-file-size": "2400 b"})
    back = DataFile(name="data-back.orc", partition="2026-04-30")
    world.table.commit("main", adds=[back, *files(40)])
    world.table.commit("main", deletes=[back], kind="OVERWRITE")
    world.table.commit("main", adds=[back, *files(40)])
    before = await live(world)
    await drop_old(world)
    old = {file.name for file in world.table.files if file.partition == "2020-01-01"}
    assert await live(world) == before - old
    assert back.name in before


@pytest.mark.parametrize("extra", [{"_EXTRA_FILES": None}, {}])
async def test_entries_without_a_field_for_extra_files_outlive_a_merge(
    extra: dict[str, None], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = copy.deepcopy(paimon_model.MANIFEST_SCHEMA)
    fields = [field for field in schema["fields"][-1]["type"]["fields"] if field["name"] != "_EXTRA_FILES"]
    fields += [{"name": name, "type": ["null", {"type": "array", "items": "string"}]} for name in extra]
    schema["fields"][-1]["type"]["fields"] = fields
    monkeypatch.setattr(paimon_model, "MANIFEST_SCHEMA", schema)
    described = DataFile.entry

    def entry(file: DataFile, kind: int) -> dict[str, Any]:
        whole = described(file, kind)
        rest = {name: value for name, value in whole["_FILE"].items() if name != "_EXTRA_FILES"}
        return whole | {"_FILE": rest | extra}

    monkeypatch.setattr(DataFile, "entry", entry)
    for _ in range(5):
        world.table.append("a")
    before = await live(world)
    assert await world.handle().compact_manifests(NOW, Ours()) is not None
    assert await live(world) == before
    assert len(before) == 5


async def test_a_commit_merges_manifests_as_the_options_say(world: World) -> None:
    history(world, **{"manifest.merge-min-count": "3"})
    for _ in range(4):
        world.table.append("b")
    await drop_old(world)
    state = await world.handle().load()
    handle = world.handle()
    metas = await handle.lists.manifests_of(state.native.latest)
    assert [meta.entries for meta in metas] == [8, 2]


async def test_the_check_interval_holds_between_two_runs_of_one_process(world: World) -> None:
    history(world)
    checked: dict[str, Any] = {}
    policy = CleanupPolicy(dry_run=False)
    first = await world.bench.run(world.handle(checked=checked), policy)
    assert first.expired_partitions == ("dt=2020-01-01",)
    world.table.lines["main"].next_id = 6
    assert checked
    handle = world.handle(checked=checked)
    state = await handle.load()
    assert state.native.partitions_checked_at == NOW
    state = await world.handle(checked={world.table.address: NOW - timedelta(hours=2)}).load()
    assert state.native.partitions_checked_at is not None


async def test_without_a_writer_a_due_partition_is_refused_and_orphans_are_not(world: World) -> None:
    history(world)
    run = await world.bench.run(world.handle(writer=None), CleanupPolicy(dry_run=False))
    assert run.refusal is not None
    assert run.refusal.code == "no_writer"
    with pytest.raises(Refused):
        await world.handle(writer=None).compact_manifests(NOW, Ours())
    world.make({}, "plain")
    world.table.append("a")
    run = await world.bench.run(world.handle(writer=None), CleanupPolicy(dry_run=False))
    assert run.outcome is Outcome.DONE
