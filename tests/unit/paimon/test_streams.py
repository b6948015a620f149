"""A Paimon stream that stopped finds its newest commit and its uncommitted files when it comes back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.builders.paimon_world import NOW, World

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)


async def clean(world: World, policy: CleanupPolicy = POLICY) -> CleanupRun:
    run = await world.bench.run(world.handle(), policy)
    assert run.outcome is Outcome.DONE, run.reason
    return run


def snapshots(world: World) -> set[int]:
    found = [key for key in world.table.stored() if key.startswith("snapshot/snapshot-")]
    return {int(key.rpartition("-")[2]) for key in found}


def commits(world: World, *streams: str | None) -> None:
    for stream in streams:
        world.table.stream = stream
        world.table.append("a")


async def test_the_newest_snapshot_of_each_stream_stays_with_all_behind_it(world: World) -> None:
    commits(world, "one", "one", "two", None, None)
    run = await clean(world)
    assert snapshots(world) == {2, 3, 4, 5}
    why = {kept.id: kept.why for kept in run.expiry.keep}
    assert why["2"] == ("newest commit of the stream of commit user one, less than 168 h ago (stream_state_hours)")
    assert why["3"].startswith("newest commit of the stream of commit user two")


async def test_a_stream_that_stopped_longer_ago_holds_no_snapshot(world: World) -> None:
    commits(world, "one", None, None)
    await clean(world, replace(POLICY, stream_state=timedelta(hours=23)))
    assert snapshots(world) == {3}


async def test_batches_hold_no_snapshot(world: World) -> None:
    commits(world, None, None, None)
    await clean(world)
    assert snapshots(world) == {3}


async def test_uncommitted_files_of_a_streams_table_wait(world: World) -> None:
    commits(world, "one", None)
    stray = world.table.stray("pending", old=True)
    run = await clean(world)
    assert stray in world.table.stored()
    assert "commit user one writes to this table" in (run.stream or "")
    await clean(world, replace(POLICY, stream_state=timedelta(hours=25)))
    assert stray not in world.table.stored()


async def test_a_stream_of_a_branch_counts(world: World) -> None:
    commits(world, None)
    world.table.branch("dev")
    world.table.stream = "one"
    world.table.append("a", branch="dev")
    stray = world.table.stray("pending", old=True)
    await clean(world)
    assert stray in world.table.stored()


async def test_uncommitted_files_of_a_batch_table_have_the_grace_period(world: World) -> None:
    commits(world, None)
    stray = world.table.stray("left", old=True)
    await clean(world)
    assert stray not in world.table.stored()
    assert NOW - world.table.now < timedelta(days=2)
