"""What may change behind a decision, and what may be spelled in a way of its own: each once lost or stranded files."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import paimon_model
from tests.builders.paimon_commits import EXPIRING, Ours, latest, live
from tests.builders.paimon_model import DataFile, ModelTable
from tests.builders.paimon_options import LASTING, once, vars_of
from tests.builders.paimon_world import NOW, World

from lakesweep.formats import avro
from lakesweep.formats.paimon.binaryrow import Timestamp
from lakesweep.formats.paimon.schema import parse_type
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.storage.memory import Held


async def clean_while(world: World, happens: Callable[[], object], *, after_commit: bool = False) -> CleanupRun:
    """A cycle in which another process acts between plan and expiry, or between expiry and sweep."""

    class Meanwhile(PaimonTable):
        async def commit_expiry(self, *args: Any) -> Any:
            if not after_commit:
                happens()
            committed = await super().commit_expiry(*args)
            if after_commit:
                happens()
            return committed

    return await world.clean(handle=Meanwhile(**vars_of(world.handle())))


# Partitions


async def test_a_partition_that_was_written_to_after_the_plan_is_not_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = DataFile.entry

    def dated(file: DataFile, kind: int) -> dict[str, Any]:
        whole = described(file, kind)
        fresh = {"_CREATION_TIME": int(NOW.timestamp() * 1000)} if file.source == 1 else {}
        return whole | {"_FILE": whole["_FILE"] | fresh}

    monkeypatch.setattr(DataFile, "entry", dated)
    world.make(EXPIRING | {"partition.expiration-strategy": "update-time"})
    world.table.append("a")
    world.table.append("b")
    run = await clean_while(world, lambda: world.table.append("a", source=1))
    assert run.expired_partitions == ("dt=b",), run.reason
    assert await live(world) == {file.name for file in world.table.files if file.partition == "a"}


HOURLY = EXPIRING | {"partition.expiration-time": "1 h", "partition.timestamp-formatter": "yyyy-MM-dd HH"}


def with_writers(world: World, monkeypatch: pytest.MonkeyPatch, offsets: list[int], **options: str) -> None:
    """A table with the partition of 16:00 on the day before, each file by a writer at another offset from UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    described = DataFile.entry

    def dated(file: DataFile, kind: int) -> dict[str, Any]:
        whole = described(file, kind)
        made = world.table.now + timedelta(hours=offsets[min(len(world.table.files), len(offsets) - 1)])
        return whole | {"_FILE": whole["_FILE"] | {"_CREATION_TIME": int(made.timestamp() * 1000)}}

    monkeypatch.setattr(DataFile, "entry", dated)
    world.make(HOURLY | options)
    world.table.now = NOW - timedelta(minutes=2)
    for _ in offsets:
        world.table.append("2026-04-30 16")


@pytest.mark.parametrize(("offsets", "goes"), [([-8], False), ([0], True), ([-8, 0], False), ([0, -8], False)])
async def test_the_writers_clock_is_learnt_from_their_commits(
    offsets: list[int], goes: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight hours west of here the partition of 16:00 has just begun; for writers here it ended long ago. Of several
    writers the westernmost counts."""
    with_writers(world, monkeypatch, offsets)
    run = await world.clean()
    assert bool(run.expired_partitions) is goes, run.reason


@pytest.mark.parametrize("age", [None, timedelta(minutes=59)])
async def test_a_partition_with_a_file_that_storage_may_have_taken_just_now_stays(
    age: timedelta | None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_writers(world, monkeypatch, [0])
    (file,) = world.table.files
    (place,) = file.places()
    key = f"{world.table.place}/{place.rpartition('/')[0]}/data-young-0.orc"
    world.bucket.objects[key] = Held(data=b"", modified_at=None if age is None else NOW - age)
    assert (await world.clean()).expired_partitions == ()


async def test_where_files_may_lie_on_external_paths_the_last_zone_decides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage is asked in the table's own directory only."""
    with_writers(world, monkeypatch, [0], **{"data-file.external-paths": f"{world.bench.root}/elsewhere"})
    assert (await world.clean()).expired_partitions == ()


@pytest.mark.parametrize("options", [{}, EXPIRING | {"partition.expiration-time": "9999 d"}])
async def test_partitions_go_by_what_the_table_says_when_they_are_dropped(
    options: dict[str, str], world: World
) -> None:
    world.make(EXPIRING)
    world.table.append("2020-01-01")
    run = await clean_while(
        world, lambda: world.table.put_json("schema/schema-1", world.table.schema(options) | {"id": 1})
    )
    assert run.expired_partitions == (), run.reason
    assert len(await live(world)) == 1


@pytest.mark.parametrize(
    ("type_", "written_as", "old", "odd"),
    [
        ("TIMESTAMP(3)", "TIMESTAMP(3)", Timestamp(1_577_836_800_000), Timestamp(1_577_836_800_000_000)),
        ("DATE", "INT", 18_262, 1_577_836_800),
    ],
)
async def test_a_partition_outside_the_calendar_stays_and_stops_nothing(
    type_: str, written_as: str, old: Any, odd: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody wrote microseconds for milliseconds, or seconds for days."""
    keyed = ModelTable.schema({})["fields"]
    keyed[1]["type"] = type_
    monkeypatch.setattr(paimon_model, "STRING", [parse_type(written_as)])
    world.make(EXPIRING | {"snapshot.clean-empty-directories": "true"})
    world.table.put_json("schema/schema-0", world.table.schema(EXPIRING) | {"fields": keyed})
    world.table.append(old)
    world.table.append(odd)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert len(run.expired_partitions) == 1
    assert await live(world) == {world.table.files[1].name}
    world.table.lines["main"].next_id = 4
    world.table.append(odd)
    assert (await world.clean()).outcome is Outcome.DONE


# Rollbacks


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_a_commit_does_not_take_back_a_rollback(commits: int, world: World) -> None:
    """It was drafted on top of a snapshot that is gone, or another one by now."""
    for _ in range(4):
        world.table.append("a")

    def roll_back() -> None:
        world.table.rollback(1)
        for _ in range(commits):
            world.table.append("b")

    world.bucket.faults = once(lambda call, name: call == "put" and "manifest-list-" in name, roll_back)
    await world.handle().compact_manifests(NOW, Ours())
    world.bucket.faults = None
    assert await live(world) == {file.name for file in world.table.lines["main"].live.values()}
    assert latest(world)["id"] == 4 + commits


async def test_a_draft_that_a_rollback_made_void_leaves_nothing_behind(world: World) -> None:
    for _ in range(3):
        world.table.append("a")
    world.table.rollback(2)
    before = world.table.stored()
    world.table.append("a")
    after = world.table.stored()
    world.bucket.faults = once(lambda call, name: call == "put", lambda: world.table.rollback(1))
    assert await world.handle().compact_manifests(NOW, Ours()) is None
    assert world.table.stored() - before <= after


@pytest.mark.parametrize("forward", ["rollback to tag", "fast-forward"])
async def test_a_restored_snapshot_without_changelog_stops_nothing(forward: str, world: World) -> None:
    """Neither a tag nor a branch of other tools keeps the changelog of what it stands for."""
    world.table.changelog("a")
    world.table.tag("x")
    if forward == "fast-forward":
        world.table.branch("dev")
    for _ in range(3):
        world.table.append("a")
    if forward == "fast-forward":
        for key in world.table.lines["dev"].changelog:
            world.bucket.objects.pop(f"{world.table.place}/{key}")
        world.table.delete_tag("x")
    assert (await world.clean()).expired_snapshots == ("1", "2", "3")
    place = f"{world.table.place}/snapshot/snapshot"
    tag = "branch/branch-dev/snapshot/snapshot-1" if forward == "fast-forward" else "tag/tag-x"
    world.bucket.objects[f"{place}-1"] = world.bucket.objects[f"{world.table.place}/{tag}"]
    del world.bucket.objects[f"{place}-4"]
    world.table.put("snapshot/LATEST", b"1")
    old = world.table.stray("old", old=True)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert old not in world.table.stored()
    assert world.table.needs[tag] - world.table.lines.get("dev", world.table.lines["main"]).changelog <= (
        world.table.stored()
    )


@pytest.mark.parametrize("lasting", [{}, LASTING | {"changelog-producer": "input"}])
async def test_what_came_back_without_its_changelog_may_expire_again(lasting: dict[str, str], world: World) -> None:
    world.make(lasting)
    world.table.changelog("a")
    world.table.tag("x")
    for key in world.table.lines["main"].changelog:
        del world.bucket.objects[f"{world.table.place}/{key}"]
    world.table.append("a")
    for expired in (("1",), ()):
        run = await world.clean()
        assert (run.outcome, run.expired_snapshots) == (Outcome.DONE, expired), run.reason
    assert world.table.lost() == set()


# Branches


async def test_a_branch_with_a_slash_in_its_name_keeps_its_files(world: World) -> None:
    """Java makes directories of it, below those of a branch that may be there as well."""
    world.table.append("a")
    world.table.branch("feature")
    world.table.branch("feature/x")
    world.table.append("a", branch="feature/x")
    world.table.tag("v1/rc", branch="feature/x")
    world.table.overwrite("a", branch="feature/x")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()
    world.table.delete_branch("feature/x")
    assert (await world.clean()).deletion.deleted.files > 0
    assert world.table.lost() == set()


async def test_a_branch_with_a_slash_alone_does_not_stop_the_table(world: World) -> None:
    world.table.append("a")
    world.table.branch("team/x")
    world.table.append("b", branch="team/x")
    world.table.overwrite("a")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()


async def test_a_changelog_of_a_branch_is_kept_by_the_rules_of_the_branch(world: World) -> None:
    """The branch has no changelog producer, so what it appended is its changelog, whatever the main table does."""
    world.make({"changelog-producer": "input"})
    world.table.append("a")
    world.table.branch("dev")
    world.table.append("b", branch="dev")
    world.table.overwrite("b", branch="dev")
    under = f"{world.table.place}/branch/branch-dev"
    world.bucket.objects[f"{under}/changelog/changelog-2"] = world.bucket.objects.pop(f"{under}/snapshot/snapshot-2")
    appended = next(file for file in world.table.files if file.partition == "b")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert appended.places() <= world.table.stored()


async def test_a_changelog_of_a_branch_may_have_lost_its_files_to_the_main_table(world: World) -> None:
    """The branch began with a snapshot of the main table, whose expiry took the changelog along; later it expired in
    the branch as well, and left a changelog behind."""
    world.table.changelog("a")
    taken = world.table.lines["main"].changelog
    world.table.branch("dev")
    world.table.append("b", branch="dev")
    world.table.append("a")
    for key in taken:
        del world.bucket.objects[f"{world.table.place}/{key}"]
    world.table._remove("snapshot/snapshot-1")
    under = f"{world.table.place}/branch/branch-dev"
    world.bucket.objects[f"{under}/changelog/changelog-1"] = world.bucket.objects.pop(f"{under}/snapshot/snapshot-1")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.lost() == set()


# Consumers and changelogs


async def test_a_consumer_that_appears_after_the_plan_takes_its_changelogs_back(world: World) -> None:
    options = LASTING | {"consumer.changelog-only": "true", "changelog-producer": "input"}
    world.make(options)
    for _ in range(4):
        world.table.changelog("a")
    changelogs = {key for key in world.table.stored() if "/changelog-" in key}
    assert (await world.clean()).expired_snapshots == ("1", "2", "3")
    short = options | {
        "changelog.num-retained.min": "1",
        "changelog.time-retained": "2 h",
        "snapshot.time-retained": "1 h",
    }
    world.table.put_json("schema/schema-1", world.table.schema(short) | {"id": 1})
    run = await clean_while(world, lambda: world.table.consume("reader", 1), after_commit=True)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("changelog-1", "changelog-2")
    assert changelogs <= world.table.stored()
    assert "changelog/changelog-1" in world.table.stored()


@pytest.mark.parametrize("what", ["rolled back", "created anew", "dropped"])
async def test_no_changelog_is_left_of_a_snapshot_that_is_no_more(what: str, world: World) -> None:
    world.make(LASTING | {"changelog-producer": "input"})
    for _ in range(4):
        world.table.changelog("a")

    def happens() -> None:
        if what == "rolled back":
            world.table.rollback(3)
            return
        for key in world.table.stored():
            world.table._remove(key)
        if what == "created anew":
            create_anew()

    def create_anew() -> None:
        world.table.put_json("schema/schema-0", world.table.schema({}) | {"timeMillis": 2})

    world.bucket.faults = once(lambda call, name: call == "put" and "/changelog/changelog-1" in name, happens)
    run = await world.clean()
    world.bucket.faults = None
    left = {key for key in world.table.stored() if key.startswith("changelog/changelog-")}
    if what == "rolled back":
        assert left == {"changelog/changelog-1"}
    else:
        assert run.refusal is not None, run.reason
        assert run.refusal.code == "table_changed"
        assert world.table.stored() == (set() if what == "dropped" else {"schema/schema-0"})
        create_anew()
    again = await world.clean()
    assert again.outcome is Outcome.DONE, again.reason
    assert world.table.lost() == set()


async def test_a_truncated_changelog_list_is_seen_by_its_row_count(world: World) -> None:
    world.table.changelog("a")
    document = dict(world.table.lines["main"].snapshot or {})
    key = f"{world.table.place}/manifest/{document['changelogManifestList']}"
    data = world.bucket.objects[key].data
    world.bucket.objects[key] = Held(data=data[: avro.walk(data).body], modified_at=None)
    del document["changelogManifestListSize"]
    world.table.put_json("snapshot/snapshot-1", document | {"changelogRecordCount": 10})
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "truncated" in (run.reason or "")
    assert world.bucket.objects == before
