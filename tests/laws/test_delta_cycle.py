"""What only Delta's log cleanup has to hold."""

from __future__ import annotations

from tests.builders.delta import NOW
from tests.laws.worlds.delta import LOG_RETENTION, build
from tests.peers.delta_reader import rebuild

from lakesweep.formats.delta.table import VacuumMode


async def test_a_checkpoint_without_its_commit_goes_when_it_is_due(tmp_path):
    world = build(tmp_path, (["checkpoint", "add", "checkpoint"], 37, "classic", VacuumMode.FULL, 1))
    world.place.delete(f"_delta_log/{0:020d}.json")
    checkpoint = f"_delta_log/{0:020d}.checkpoint.parquet"
    assert world.waits(checkpoint)
    await world.cycle()
    assert checkpoint in world.place.names()
    await world.cycle(now=NOW + LOG_RETENTION)
    assert checkpoint not in world.place.names()
    assert rebuild(world.place.path, 1, set()) == world.versions[1]
