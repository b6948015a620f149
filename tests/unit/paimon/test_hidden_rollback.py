"""A rollback between the last look of our own partition commit and its snapshot file: no store can prevent that. The
commit then hides the rollback, and nothing is deleted until a person has decided which of the two is meant."""

from __future__ import annotations

import json

import pytest
from tests.builders.paimon_commits import EXPIRING, latest
from tests.builders.paimon_options import once
from tests.builders.paimon_world import World

from lakesweep.model.errors import Unavailable
from lakesweep.model.run import Outcome


def roll_back_under_our_commit(world: World, commits: int) -> None:
    """Right before the snapshot file of our own partition commit is there: its last look has been."""
    world.make(EXPIRING | {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    for day in ("2020-01-01", "2026-04-29", "2026-04-30"):
        world.table.append(day)

    def roll_back() -> None:
        world.table.rollback(1)
        for _ in range(commits):
            world.table.append("2026-04-30")

    world.bucket.faults = once(lambda call, name: call == "put" and name.endswith("/snapshot-4"), roll_back)


@pytest.mark.parametrize("commits", [0, 1])
async def test_a_commit_that_hides_a_rollback_stops_every_run(commits: int, world: World) -> None:
    roll_back_under_our_commit(world, commits)
    for _ in range(3):  # the run itself and all later ones
        run = await world.clean()
        assert run.outcome is Outcome.FAILED
        assert run.refusal is not None
        assert run.refusal.code == "indeterminate"
        assert "snapshot 4" in (run.reason or "")
        assert run.deletion.deleted.files == 0
    hint = world.bucket.objects[f"{world.table.place}/snapshot/LATEST"].data
    assert int(hint) == 2 + commits, "readers follow it to where the rollback went"
    assert {"snapshot/snapshot-1", "snapshot/snapshot-2"} <= world.table.stored()
    assert world.table.lost() == set()


@pytest.mark.parametrize("kept", ["rollback", "commit"])
async def test_a_hidden_rollback_is_over_once_a_person_has_decided(kept: str, world: World) -> None:
    roll_back_under_our_commit(world, 0)
    await world.clean()
    if kept == "rollback":
        del world.bucket.objects[f"{world.table.place}/snapshot/snapshot-4"]
    else:
        world.table.put("snapshot/LATEST", b"4")
        for number in (1, 2):
            world.table._remove(f"snapshot/snapshot-{number}")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason


@pytest.mark.parametrize("hint", [b"2", b"3", None], ids=["rolled back", "only lost", "hint lost too"])
async def test_a_commit_that_is_the_only_snapshot_left_stops_every_run(hint: bytes | None, world: World) -> None:
    """All other snapshots are lost in the moment of the commit: what it dropped may be all that somebody wants."""
    roll_back_under_our_commit(world, 0)

    def lose_all() -> None:
        for number in (1, 2, 3):
            del world.bucket.objects[f"{world.table.place}/snapshot/snapshot-{number}"]
        if hint is None:
            del world.bucket.objects[f"{world.table.place}/snapshot/LATEST"]
        else:
            world.table.put("snapshot/LATEST", hint)

    world.bucket.faults = once(lambda call, name: call == "put" and name.endswith("/snapshot-4"), lose_all)
    for _ in range(3):
        run = await world.clean()
        assert run.refusal is not None
        assert run.refusal.code == "indeterminate"
        assert "snapshot 4" in (run.reason or "")
        assert run.deletion.deleted.files == 0
    assert "write 4 into snapshot/LATEST" in (run.reason or "")
    world.table.put("snapshot/LATEST", b"4")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason


async def test_the_base_of_a_commit_stays_until_the_hint_has_reached_the_commit(world: World) -> None:
    """A hint that could not be written must not stop the table, once nothing else shows what the commit follows."""
    roll_back_under_our_commit(world, 0)

    def fail(call: str, name: str) -> None:
        if call == "put" and name.endswith("/LATEST"):
            raise Unavailable(name, "no")

    world.bucket.faults = fail
    for _ in range(2):
        run = await world.clean()
        assert run.outcome is Outcome.DONE, run.reason
        assert "snapshot/snapshot-3" in world.table.stored()
        assert "snapshot/snapshot-2" not in world.table.stored()
    assert run.expiry is not None
    assert "snapshot/LATEST is behind snapshot 4" in run.expiry.keep[0].why
    world.bucket.faults = None
    world.table.put("snapshot/LATEST", b"4")
    assert (await world.clean()).outcome is Outcome.DONE
    assert "snapshot/snapshot-3" not in world.table.stored()


async def test_a_commit_on_top_of_ours_confirms_it_although_there_is_no_hint(world: World) -> None:
    """Java's fast-forward deletes the hint, and only the next commit writes it again."""
    world.make(EXPIRING | {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    for day in ("2020-01-01", "2026-04-29", "2026-04-30"):
        world.table.append(day)
    assert (await world.clean()).expired_partitions
    assert (await world.clean()).outcome is Outcome.DONE
    assert "snapshot/snapshot-3" not in world.table.stored()
    document = latest(world) | {"id": 5, "commitUser": "java", "commitKind": "COMPACT"}
    world.table.put_json("snapshot/snapshot-5", {**document, "properties": {}})
    del world.bucket.objects[f"{world.table.place}/snapshot/LATEST"]
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert "snapshot/snapshot-4" not in world.table.stored()


async def test_a_rollback_that_still_deletes_after_our_last_look_stops_the_run(world: World) -> None:
    """Java lists what to delete before our snapshot file is there, and deletes it after our last look."""
    roll_back_under_our_commit(world, 0)
    world.bucket.faults = once(
        lambda call, name: call == "put" and name.endswith("/LATEST"), lambda: world.table.rollback(1)
    )
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "snapshot 4" in (run.reason or "")
    assert world.table.lost() == set()


async def test_a_commit_of_ours_whose_base_has_expired_stops_nothing(world: World) -> None:
    """Nor one of others on top of it that carries our property on, as Java's compaction of manifests does."""
    world.make(EXPIRING)
    for day in ("2020-01-01", "2026-04-29", "2026-04-30"):
        world.table.append(day)
    assert (await world.clean()).expired_partitions
    document = latest(world) | {"id": 5, "commitUser": "java", "commitKind": "COMPACT"}
    world.table.put_json("snapshot/snapshot-5", document)
    world.table.put("snapshot/LATEST", b"5")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason


async def test_a_rollback_of_our_commit_keeps_its_hint(world: World) -> None:
    """Others believe the hint, and cannot read a table whose hint names a snapshot that is gone."""
    roll_back_under_our_commit(world, 0)

    def roll_back() -> None:
        world.table._remove("snapshot/snapshot-4")
        world.table.put("snapshot/LATEST", b"3")

    world.bucket.faults = once(lambda call, name: call == "put" and name.endswith("/LATEST"), roll_back)
    run = await world.clean()
    assert world.bucket.objects[f"{world.table.place}/snapshot/LATEST"].data == b"3"
    assert run.outcome is Outcome.DONE, run.reason


async def test_a_commit_never_lands_in_a_gap_before_the_newest_snapshot(world: World) -> None:
    """The table has become a branch that begins with a later id, while ours was being drafted."""
    roll_back_under_our_commit(world, 0)
    key = f"{world.table.place}/snapshot/snapshot-3"

    def forward() -> None:
        document = json.loads(world.bucket.objects[key].data) | {"id": 6}
        world.table.put_json("snapshot/snapshot-6", document)
        world.table.put("snapshot/LATEST", b"6")

    world.bucket.faults = once(lambda call, name: call == "put" and "/manifest-list-" in name, forward)
    await world.clean()
    assert "snapshot/snapshot-4" not in world.table.stored()
    assert "snapshot/snapshot-7" in world.table.stored()
