"""What test_commit.py and its neighbours are made of."""

from __future__ import annotations

import json
from typing import Any

from tests.builders.paimon_world import World

from lakesweep.formats.paimon import merge
from lakesweep.formats.paimon.manifests import ADD, read_entries

EXPIRING = {"partition.expiration-time": "7 d", "partition.expiration-check-interval": "1 h"}


class Ours:
    async def check(self) -> None:
        return None


def latest(world: World) -> dict[str, Any]:
    numbers = [int(key.rpartition("-")[2]) for key in world.table.stored() if key.startswith("snapshot/snapshot-")]
    return json.loads(world.bucket.objects[f"{world.table.place}/snapshot/snapshot-{max(numbers)}"].data)


async def live(world: World) -> set[str]:
    """Names of the latest snapshot's files: of all changes of a file the last one counts."""
    handle = world.handle()
    found: dict[Any, str] = {}
    for meta in await handle.lists.manifests_of((await handle.load()).native.latest):
        for entry in read_entries(await handle.lists.read_manifest(meta)):
            if entry["_KIND"] == ADD:
                found[merge.identity(entry)] = entry["_FILE"]["_FILE_NAME"]
            else:
                del found[merge.identity(entry)]
    return set(found.values())
