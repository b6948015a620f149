"""A Paimon table whose listing is an inventory: snapshots come and go in the hours that it does not know."""

from __future__ import annotations

from datetime import timedelta

from tests.builders.inventories import plain_file
from tests.builders.paimon_world import NOW, World

from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.storage.memory import Held


def take_inventory(world: World) -> None:
    rows = [
        {
            "path": f"memory://{world.name}/{key}",
            "size_bytes": len(held.data),
            "modified_at": held.modified_at,
            "etag": held.etag,
        }
        for key, held in sorted(world.bucket.objects.items())
    ]
    world.bucket.objects["list.parquet"] = Held(data=plain_file(rows), modified_at=NOW - timedelta(hours=12))
    world.bench.inventory = Location.parse(f"memory://{world.name}/list.parquet")


def snapshots(world: World) -> set[str]:
    return {key.rpartition("/")[2] for key in world.bucket.objects if "/snapshot/snapshot-" in key}


async def test_a_snapshot_newer_than_the_list_does_not_outlive_its_files(world: World) -> None:
    for _ in range(3):
        world.table.append("a")
    take_inventory(world)
    world.table.append("a")
    world.table.overwrite("a")
    world.table.append("b")
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("1", "2", "3", "4", "5")
    assert snapshots(world) == {"snapshot-6"}
    assert world.bucket.objects[f"{world.table.place}/snapshot/EARLIEST"].data == b"6"
    assert run.deletion.already_gone == 0


async def test_snapshots_asked_for_do_not_hide_a_wrong_inventory(world: World) -> None:
    world.table.append("a")
    placed = dict(world.bucket.objects)
    world.bucket.objects.clear()
    world.bucket.objects["wh/d.db/other/file"] = Held(data=b"x", modified_at=NOW - timedelta(days=1))
    take_inventory(world)
    world.bucket.objects.update(placed)
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "inventory_elsewhere"
