"""Expired snapshots are closed before their files go: whoever opens one finds all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders.paimon_options import LASTING, once
from tests.builders.paimon_world import World

from lakesweep.cleanup import table_notes
from lakesweep.formats.paimon import reader
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.errors import Unavailable
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.storage.memory import forget


def three_to_expire(world: World, **options: str) -> None:
    """Snapshots 1 to 3 name files that the fourth does not; an orphan comes before them by name."""
    world.make(dict(options))
    world.table.stray("aaa", old=True)
    for _ in range(4):
        world.table.overwrite("a")


def tagged(world: World) -> None:
    """A tag keeps the files of the first of two snapshots."""
    world.make({})
    world.table.append("a")
    document = json.loads(world.bucket.objects[f"{world.table.place}/snapshot/snapshot-1"].data)
    world.table.append("a")
    world.table.put_json("tag/tag-kept", document)
    world.table.needs["tag/tag-kept"] = world.table.needs["snapshot/snapshot-1"]


def is_delete(of: str) -> Callable[[str, str], bool]:
    return lambda call, address: call == "delete" and f"/{of}" in address


@pytest.mark.parametrize("options", [{}, LASTING])
async def test_no_snapshot_is_there_without_its_files_at_any_moment(world: World, options: dict[str, str]) -> None:
    three_to_expire(world, **options)
    seen: list[set[str]] = []
    world.bucket.faults = lambda *_: seen.append(world.table.lost())
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("1", "2", "3")
    assert not set().union(*seen)


async def test_expired_changelogs_are_closed_before_their_files_go(world: World) -> None:
    world.make(LASTING | {"changelog-producer": "input"})
    for _ in range(4):
        world.table.changelog("a")
    await world.clean()
    short = {"changelog-producer": "input", "changelog.num-retained.min": "2", "changelog.num-retained.max": "11"}
    world.table.put_json("schema/schema-1", world.table.schema(short | {"snapshot.num-retained.min": "1"}) | {"id": 1})
    gone: list[str] = []
    world.bucket.faults = lambda call, address: gone.append(address) if call == "delete" else None
    run = await world.clean()
    assert "changelog-1" in run.expired_snapshots, run.reason
    kinds = ["/changelog/" in address for address in gone]
    assert kinds == sorted(kinds, reverse=True)


async def test_a_snapshot_without_a_changelog_stays_and_so_do_later_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that gives only the beginning of a file makes a snapshot look like another one."""
    three_to_expire(world, **LASTING)
    stands = reader.still_stands

    async def cut(files: TableFiles, snapshot: PaimonSnapshot) -> bool:
        return snapshot.id != 2 and await stands(files, snapshot)

    monkeypatch.setattr(reader, "still_stands", cut)
    run = await world.clean()
    assert run.expired_snapshots == ("1",), run.reason
    left = {key.rpartition("/")[2] for key in world.table.stored()}
    assert {"changelog-1", "snapshot-2", "snapshot-3", "snapshot-4"} <= left
    assert not {"snapshot-1", "changelog-2", "changelog-3"} & left
    assert not world.table.lost()


async def test_readers_learn_where_history_begins_before_the_first_file_goes(world: World) -> None:
    three_to_expire(world)
    earliest: list[bytes] = []
    hint = f"{world.table.place}/snapshot/EARLIEST"
    world.bucket.faults = once(is_delete("bucket-0"), lambda: earliest.append(world.bucket.objects[hint].data))
    await world.clean()
    assert earliest == [b"4"]


async def test_a_snapshot_whose_file_cannot_be_deleted_keeps_all_its_files(world: World) -> None:
    three_to_expire(world)

    def refuse(call: str, address: str) -> None:
        if call == "delete" and address.endswith("/snapshot-2"):
            raise Unavailable(address, "no")

    world.bucket.faults = refuse
    run = await world.clean()
    world.bucket.faults = None
    assert run.outcome is Outcome.FAILED
    assert world.table.standing() == ["snapshot/snapshot-2", "snapshot/snapshot-3", "snapshot/snapshot-4"], "no hole"
    assert world.table.lost() == set()
    again = await world.clean()
    assert again.outcome is Outcome.DONE, again.reason
    assert world.table.standing() == ["snapshot/snapshot-4"]


async def test_a_consumer_of_a_closed_snapshot_fails_the_run_which_names_it(world: World) -> None:
    three_to_expire(world)
    before = world.table.stored()
    world.bucket.faults = once(is_delete("snapshot-3"), lambda: world.table.consume("late", 2))
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "snapshot 2" in (run.reason or "")
    assert "consumer late" in (run.reason or "")
    assert {name.split("/")[0] for name in before - world.table.stored()} == {"snapshot"}


async def test_a_tag_of_a_snapshot_that_was_read_before_it_closed_keeps_its_files(world: World) -> None:
    three_to_expire(world)
    key = "snapshot/snapshot-2"
    document = json.loads(world.bucket.objects[f"{world.table.place}/{key}"].data)

    def tag() -> None:
        world.table.put_json("tag/tag-late", document)
        world.table.needs["tag/tag-late"] = world.table.needs[key]

    world.bucket.faults = once(is_delete("snapshot-3"), tag)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert "tag/tag-late" in world.table.standing()
    assert world.table.lost() == set()


async def test_a_rollback_to_a_snapshot_that_closes_meanwhile_gets_it_back(world: World) -> None:
    """Java saw it there, and deletes what is younger while we delete it."""
    three_to_expire(world)
    before = world.table.stored()

    def roll_back() -> None:
        world.table.put("snapshot/LATEST", b"3")
        world.table._remove("snapshot/snapshot-4")

    world.bucket.faults = once(is_delete("snapshot-3"), roll_back)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "snapshot 3" in (run.reason or "")
    assert "snapshot/snapshot-3" in world.table.standing()
    assert world.table.lost() == set()
    gone = {name for name in before - world.table.stored() if not name.startswith("snapshot/")}
    assert gone == set()
    again = await world.clean()
    assert again.outcome is Outcome.DONE, again.reason


async def test_a_rollback_gets_its_snapshot_back_also_if_nothing_else_was_to_go(world: World) -> None:
    """A tag keeps its files, so that no later batch looks at the table again."""
    tagged(world)

    def roll_back() -> None:
        world.table.put("snapshot/LATEST", b"1")
        world.table._remove("snapshot/snapshot-2")

    world.bucket.faults = once(is_delete("snapshot-1"), roll_back)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "snapshot 1" in (run.reason or "")
    assert "snapshot/snapshot-1" in world.table.standing()
    assert world.table.lost() == set()


async def test_what_others_lost_is_not_put_back_for_a_hint_that_names_it(world: World) -> None:
    """All snapshots are lost after this run has deleted the first, and the hint is wrong: with the third put back, all
    that was committed later would look like orphans."""
    three_to_expire(world)

    def lose_all() -> None:
        world.table.put("snapshot/LATEST", b"3")
        for number in (2, 3, 4):
            del world.bucket.objects[f"{world.table.place}/snapshot/snapshot-{number}"]

    world.bucket.faults = once(is_delete("snapshot-1"), lose_all)
    before = world.table.stored()
    for _ in range(2):  # the run itself, and the next one
        run = await world.clean()
        assert run.outcome is Outcome.FAILED
        assert not [name for name in world.table.stored() if name.startswith("snapshot/snapshot-")]
    assert {name.split("/")[0] for name in before - world.table.stored()} == {"snapshot"}


@pytest.mark.parametrize("how", ["stopped", "not deleted"])
async def test_only_what_an_ended_sweep_has_begun_to_delete_is_put_back(world: World, how: str) -> None:
    """The run ends at the first of three snapshots. Then all are lost, and the hint wrongly names the third."""
    three_to_expire(world)

    def end(call: str, address: str) -> None:
        if is_delete("snapshot-1")(call, address):
            if how == "not deleted":
                raise Unavailable(address, "no")
            world.bench.stop.set()

    world.bucket.faults = end
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    world.bucket.faults = None
    world.table.put("snapshot/LATEST", b"3")
    for name in [one for one in world.table.stored() if one.startswith("snapshot/snapshot-")]:
        del world.bucket.objects[f"{world.table.place}/{name}"]
    assert (await world.clean()).outcome is not Outcome.DONE
    assert not [name for name in world.table.stored() if name.startswith("snapshot/snapshot-")]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("others", [True, False], ids=["files to go", "nothing else to go"])
async def test_after_a_kill_at_any_call_the_next_run_opens_the_table(others: bool, tmp_path: Path) -> None:
    """The process dies at the first, second, … call behind the delete of the snapshot that somebody rolls back to."""
    closing = 3 if others else 1
    kills = 0
    while True:
        world = World(tmp_path / str(kills))
        (three_to_expire if others else tagged)(world)
        died = await cross_and_die(world, closing, kills)
        run = await world.clean()
        assert run.outcome is Outcome.DONE, run.reason
        assert f"snapshot/snapshot-{closing}" in world.table.standing()
        assert world.table.lost() == set()
        forget(world.name)
        if not died:
            break
        kills += 1
    assert kills > 2


async def cross_and_die(world: World, closing: int, after: int) -> bool:
    """Roll back to a snapshot while a run deletes it, and kill the run so many calls later. False if it ends before."""
    left: int | None = None

    def hook(call: str, address: str) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                raise Killed
        elif is_delete(f"snapshot-{closing}")(call, address):
            world.table.put("snapshot/LATEST", str(closing).encode())
            world.table._remove(f"snapshot/snapshot-{closing + 1}")
            left = after

    world.bucket.faults = hook
    try:
        await world.clean()
    except Killed:
        return True
    finally:
        world.bucket.faults = None
    return False


async def test_a_table_created_anew_gets_no_snapshot_of_the_one_before(world: World) -> None:
    """Its first snapshot went by its name; what this run remembers under that name is the other table's."""
    three_to_expire(world)

    def create_anew() -> None:
        for key in world.table.stored():
            del world.bucket.objects[f"{world.table.place}/{key}"]
        world.table.put_json("schema/schema-0", world.table.schema({}) | {"timeMillis": 7})
        world.table.put("snapshot/LATEST", b"1")

    world.bucket.faults = once(is_delete("snapshot-2"), create_anew)
    run = await world.clean()
    assert run.outcome is not Outcome.DONE
    assert world.table.stored() == {"schema/schema-0", "snapshot/LATEST"}


async def test_a_hint_in_a_table_created_anew_is_refused_with_what_to_do(world: World) -> None:
    """The table is dropped and created anew right before the hint of the closed snapshots is written."""
    three_to_expire(world)

    def create_anew() -> None:
        for key in world.table.stored():
            del world.bucket.objects[f"{world.table.place}/{key}"]
        world.table.put_json("schema/schema-0", world.table.schema({}) | {"timeMillis": 7})

    world.bucket.faults = once(lambda call, name: call == "put" and name.endswith("/EARLIEST"), create_anew)
    await world.clean()
    assert world.table.stored() == {"schema/schema-0", "snapshot/EARLIEST"}
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "no_snapshots"
    assert "delete the hint" in run.refusal.reason
    world.table._remove("snapshot/EARLIEST")
    assert (await world.clean()).outcome is Outcome.DONE


async def test_what_a_crash_after_closing_leaves_goes_as_orphans_next_time(world: World) -> None:
    three_to_expire(world)

    def die() -> Any:
        raise Killed

    world.bucket.faults = once(is_delete("bucket-0"), die)
    with pytest.raises(Killed):
        await world.clean()
    world.bucket.faults = None
    assert world.table.standing() == ["snapshot/snapshot-4"]
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    kept = world.table.needs["snapshot/snapshot-4"] | {"snapshot/snapshot-4", "snapshot/LATEST", "snapshot/EARLIEST"}
    assert world.table.stored() - {"schema/schema-0"} == kept


async def test_a_snapshot_that_was_the_newest_again_during_the_run_stays(world: World) -> None:
    """A rollback to one that was to go, and a commit on top of it: it is old, and was current a moment ago."""
    three_to_expire(world)

    def go_back_and_on() -> None:
        world.table.rollback(2)
        world.table.overwrite("a")

    world.bucket.faults = once(is_delete("snapshot-1"), go_back_and_on)
    policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1, batch_size=1)
    run = await world.bench.run(world.handle(), policy, execute=True)
    assert run.outcome is Outcome.DONE, run.reason
    assert world.table.standing() == ["snapshot/snapshot-2", "snapshot/snapshot-3"]
    assert world.table.lost() == set()
    assert await table_notes.closing_note(world.bench.store, world.handle().ref.label) == ""
