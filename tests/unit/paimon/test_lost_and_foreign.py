"""Tables that lost a part of themselves, that share a place, or that say what we do not understand: doubt keeps all."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders.paimon_model import INDEX_SCHEMA, DataFile
from tests.builders.paimon_options import spec
from tests.builders.paimon_world import NOW, World

from lakesweep.formats import avro
from lakesweep.formats.paimon.warehouse import PaimonFormat
from lakesweep.formats.spec import Tools
from lakesweep.model.errors import LakesweepError, Unavailable
from lakesweep.model.run import Outcome
from lakesweep.storage import memory
from lakesweep.storage.memory import Held


@pytest.mark.parametrize("tagged", [False, True])
async def test_a_table_that_lost_all_its_snapshots_keeps_its_files(tagged: bool, world: World) -> None:
    world.table.append("a")
    if tagged:
        world.table.tag("x")
    world.table.append("b")
    for key in [key for key in world.table.stored() if key.startswith("snapshot/")]:
        del world.bucket.objects[f"{world.table.place}/{key}"]
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.REFUSED, run.reason
    assert run.refusal is not None
    assert run.refusal.code == "no_snapshots"
    assert world.bucket.objects == before


async def test_a_branch_that_lost_its_snapshots_keeps_its_files(world: World) -> None:
    world.table.append("a")
    world.table.branch("dev")
    world.table.append("b", branch="dev")
    world.table.tag("x", branch="dev")
    world.table.append("c", branch="dev")
    before = dict(world.bucket.objects)
    for left in ("a hint", "tag x of branch dev"):
        for key in list(world.bucket.objects):
            if "/branch-dev/snapshot/" in key and (left != "a hint" or not key.endswith("LATEST")):
                del world.bucket.objects[key]
        run = await world.clean()
        assert run.outcome in (Outcome.FAILED, Outcome.REFUSED)
        assert left in (run.reason or ""), run.reason
        assert world.bucket.objects == {key: before[key] for key in world.bucket.objects}
        assert all(key in world.bucket.objects for key in before if "/snapshot/" not in key)


async def test_a_consumer_shows_that_a_main_table_had_snapshots(world: World) -> None:
    """All that was ever committed is the branch's, too, and yet the main table was not empty."""
    world.table.append("a")
    world.table.branch("dev")
    world.table.consume("c", 2)
    for key in [key for key in world.table.stored() if key.startswith("snapshot/")]:
        world.table._remove(key)
    world.table.stray("old", old=True)
    before = world.table.stored()
    run = await world.clean()
    assert run.refusal is not None
    assert run.refusal.code == "no_snapshots"
    assert "consumer c has read all before snapshot 2" in run.refusal.reason
    assert world.table.stored() == before


@pytest.mark.parametrize("later", [0, 1])
async def test_a_branch_does_not_replace_a_main_table_without_snapshots(later: int, world: World) -> None:
    """But where all that was ever committed is the branch's, the main table may well be empty."""
    world.table.append("a")
    world.table.branch("dev")
    for _ in range(later):
        world.table.append("b")
    for key in [key for key in world.table.stored() if key.startswith("snapshot/")]:
        world.table._remove(key)
    old = world.table.stray("old", old=True)
    before = world.table.stored()
    run = await world.clean()
    if later:
        assert run.refusal is not None
        assert run.refusal.code == "no_snapshots"
        assert world.table.stored() == before
    else:
        assert run.outcome is Outcome.DONE, run.reason
        assert world.table.stored() == before - {old}


async def test_a_table_whose_home_is_an_external_path_of_another_keeps_its_files(world: World) -> None:
    """Its buckets are where those of the other one would be."""
    other = world.make({}, "other")
    other.append("a")
    world.make({"data-file.external-paths": other.address})
    world.table.append("a")
    run = await world.clean()
    assert run.refusal is not None, run.reason
    assert run.refusal.code == "foreign_table"
    assert other.lost() == set()


async def test_live_files_on_an_external_path_elsewhere_are_asked_for(world: World) -> None:
    """They are kept and never listed, at first sight and from the cache; one that is lost stops the table."""
    outside = "memory://elsewhere/ext/dt=a/bucket-0"
    world.make({"data-file.external-paths": "memory://elsewhere/ext"})
    first, second = (DataFile(name=f"data-{n}-0.orc", partition="a", external=outside) for n in range(2))
    world.table.append("a")
    world.table.commit("main", adds=[first])
    world.table.commit("main", adds=[replace(second, extras=("data-1-0.orc.index",))])
    world.table.commit("main", adds=[], deletes=[first])
    live = ["data-1-0.orc", "data-1-0.orc.index"]
    elsewhere = memory.bucket("elsewhere").objects
    elsewhere.update({f"ext/dt=a/bucket-0/{name}": memory.Held(data=b"x", modified_at=None) for name in live})
    for _ in range(2):
        run = await world.clean()
        assert run.outcome is Outcome.DONE, run.reason
        assert run.plan is not None
        assert (run.plan.missing_count, run.plan.unverified) == (0, 0)
    memory.forget("elsewhere")
    lost = await world.clean()
    assert lost.plan is not None
    assert (lost.outcome, lost.plan.missing) == (Outcome.REFUSED, tuple(f"{outside}/{name}" for name in live))


async def test_live_files_on_external_paths_inside_the_root_are_checked(world: World) -> None:
    inside = f"memory://{world.name}/wh/ext"
    world.make({"data-file.external-paths": inside})
    world.table.commit("main", adds=[DataFile(name="data-1-0.orc", partition="a", external=f"{inside}/dt=a/bucket-0")])
    run = await world.clean()
    assert run.plan is not None, run.reason
    assert (run.plan.missing_count, run.plan.unverified) == (1, 0)


async def test_what_was_left_in_a_table_that_was_never_committed_to_goes(world: World) -> None:
    old = world.table.stray("old", old=True)
    run = await world.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert old not in world.table.stored()


@pytest.mark.parametrize("value", ["manifest-list-1-0", {"live": ["index-manifest-1"]}])
async def test_a_field_we_do_not_know_that_names_files_refuses_the_table(value: Any, world: World) -> None:
    """Index manifests and statistics came that way: a field more, and no new version."""
    world.table.append("a")
    document = dict(world.table.lines["main"].snapshot or {})
    world.table.put_json("snapshot/snapshot-1", document | {"unheardOf": value})
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.refusal is not None
    assert "unheardOf" in run.refusal.reason
    assert world.bucket.objects == before
    world.table.put_json("snapshot/snapshot-1", document | {"unheardOf": 7, "commitUser": "index-builder"})
    assert (await world.clean()).outcome is Outcome.DONE


@pytest.mark.parametrize("kind", [2, -1])
async def test_an_index_entry_of_unknown_kind_is_damage(kind: int, world: World) -> None:
    world.table.index()
    document = json.loads(world.bucket.objects[f"{world.table.place}/snapshot/snapshot-1"].data)
    key = f"{world.table.place}/manifest/{document['indexManifest']}"
    rows = [row | {"_KIND": kind} for row in avro.read_records(world.bucket.objects[key].data)]
    world.bucket.objects[key] = Held(data=avro.write(INDEX_SCHEMA, rows), modified_at=NOW - timedelta(days=3))
    before = dict(world.bucket.objects)
    run = await world.clean()
    assert run.outcome is Outcome.FAILED
    assert "kind" in (run.reason or "")
    assert world.bucket.objects == before


async def test_a_neighbour_that_cannot_be_read_now_leaves_the_places_unknown(world: World) -> None:
    """Half of its places would hide that two tables share one."""
    shared = f"memory://{world.name}/wh/shared"
    world.make({"data-file.external-paths": shared}, "other")
    format_ = PaimonFormat(spec(world), Tools(storage=world.bench.storage, clock=world.bench.clock))
    (places,) = [found for ref, found in (await format_.locations()).items() if ref.name == "d.other"]
    assert [place.raw for place in places] == [f"{world.table.address}/", f"{shared}/"]

    def away(call: str, name: str) -> None:
        if call == "read" and "other/schema" in name:
            raise Unavailable(name, "injected")

    world.bucket.faults = away
    with pytest.raises(LakesweepError, match="injected"):
        await format_.locations()
