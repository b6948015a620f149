"""The one thing that a model excuses covers nothing else."""

from __future__ import annotations

import pytest
from tests.sim.formats.paimon import PaimonModel
from tests.sim.formats.paimon_drops import goes_astray
from tests.sim.world import Call, World

BASE, OURS = (f"{PaimonModel.location}/snapshot/snapshot-{number}" for number in (1, 2))
WAYS = {
    "dropped while the file is on its way": (["read", "effect", "put", "drop"], True),
    "dropped right after the look": (["read", "effect", "drop", "put"], True),
    "dropped before the look has its answer": (["read", "drop", "effect", "put"], False),
    "dropped before the look": (["drop", "read", "effect", "put"], False),
    "dropped, then looked at another snapshot": (["read", "effect", "drop", "other", "effect", "put"], False),
    "never looked": (["other", "effect", "put", "drop"], False),
    "never dropped": (["read", "effect", "put"], False),
}


def tell(world: World, model: PaimonModel, steps: list[str]) -> None:
    targets = {"read": BASE, "put": OURS, "other": f"{model.location}/snapshot/LATEST"}
    for step in steps:
        if step == "drop":
            model.dropped = (world.calls, world.effected)
        elif step == "effect":
            assert world.call is not None
            world.after(world.call)
        else:
            world.before(Call("lakesweep", "storage", "read" if step == "other" else step, targets[step]))


@pytest.mark.parametrize("way", WAYS)
def test_only_a_drop_between_the_last_look_and_the_put_is_excused(way):
    steps, excused = WAYS[way]
    world = World()
    model = PaimonModel(world)
    model.create()
    tell(world, model, steps)
    assert goes_astray(model, OURS, {"id": 2, "commitKind": "OVERWRITE"}) is excused
    assert not goes_astray(model, OURS, {"id": 2, "commitKind": "COMPACT"})
    assert not goes_astray(model, OURS, {"id": 3, "commitKind": "OVERWRITE"})
    assert not goes_astray(model, BASE, {"id": 2, "commitKind": "OVERWRITE"})
