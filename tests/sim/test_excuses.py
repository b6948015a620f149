"""What a model excuses covers nothing else."""

from __future__ import annotations

import json

import pytest
from tests.sim.formats.paimon import PaimonModel
from tests.sim.formats.paimon_drops import goes_astray, take_over
from tests.sim.world import Call, Lost, World

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
            world.effected = world.calls
        else:
            world.calls += 1
            operation = "read" if step == "other" else step
            world.last, world.call = world.call, Call("lakesweep", "storage", operation, targets[step], world.calls)


@pytest.mark.parametrize("way", WAYS)
def test_only_a_drop_between_the_last_look_and_the_put_is_excused(way):
    steps, excused = WAYS[way]
    world = World()
    model = PaimonModel(world)
    model.create()
    tell(world, model, steps)
    assert goes_astray(model, OURS, {"id": 2, "commitKind": "OVERWRITE"}, model.dropped) is excused
    assert not goes_astray(model, OURS, {"id": 2, "commitKind": "COMPACT"}, model.dropped)
    assert not goes_astray(model, OURS, {"id": 3, "commitKind": "OVERWRITE"}, model.dropped)
    assert not goes_astray(model, BASE, {"id": 2, "commitKind": "OVERWRITE"}, model.dropped)


def test_a_rollback_that_leaves_the_base_of_a_commit_is_not_excused():
    """Nor is one that comes before its last look."""
    for target, moment, excused in ((0, "after", True), (1, "after", False), (0, "before", False)):
        world = World()
        model = PaimonModel(world)
        model.create()
        model.log.commit(adds=[model.log.data("a")])
        if moment == "before":
            model.goes_back(target)
        tell(world, model, ["read", "effect"])
        if moment == "after":
            model.goes_back(target)
        tell(world, model, ["put"])
        ours = world.put(OURS, json.dumps({"id": 2, "commitKind": "COMPACT"}).encode(), "lakesweep")
        with pytest.raises(Lost):
            take_over(model, OURS, ours)
        ours = world.put(OURS, json.dumps({"id": 2, "commitKind": "OVERWRITE"}).encode(), "lakesweep")
        if excused:
            take_over(model, OURS, ours)
        else:
            with pytest.raises(KeyError, match="baseManifestList"):  # read like any other commit
                take_over(model, OURS, ours)
        assert model.hides_rollback is excused


def test_nothing_may_be_deleted_while_a_rollback_is_hidden():
    model = PaimonModel(World())
    model.create()
    stray = model.log.data("a").address
    model.astray, model.hides_rollback = OURS, True
    with pytest.raises(Lost, match="hides a rollback"):
        model.judge(stray, None, "lakesweep")
    model.do("stray")
    model.judge(stray, None, "lakesweep")
