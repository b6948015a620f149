"""A ghost goes only as the plan that a person approved, whole, and while nobody claims it. Otherwise it stays."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders.cycles import SetClock
from tests.builders.ghosts import ADA, LOG, aged, approved, content, executed, ghost, lake, opened, planned
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, to_toml, write_local

from lakesweep.cleanup.approve import Approvals
from lakesweep.cli.main import main
from lakesweep.daemon import ghost_table
from lakesweep.daemon.app import new_run_id
from lakesweep.daemon.shared_files import SharedFileIndex
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import Hold

NOBODY = TableRef(tenant=TenantId(""), dataset="", name="", format=FormatName.DELTA)
__all__ = ["lake"]  # a fixture, used by its name


async def test_an_approved_plan_removes_exactly_its_files(lake: LocalLake):
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        (plan,) = await planned(app)
        assert plan.plan
        assert (plan.outcome, plan.refusal and plan.refusal.code) == (Outcome.REFUSED, "ghost_not_approved")
        assert content(lake.root / "lake") == before
        assert await executed(app) == []
        await app.approve(plan.id, by="ada", digest=plan.plan.digest)
        assert await app.state.get_due("acme/~ghosts/old/clicks") is None, "the service never works on it"
        (done,) = await executed(app)
        document = await app.state.get_run(done.id)
        records = [record async for _, record in app.trails.inspector().records(done.id)]
        assert await executed(app) == []
        assert await app.ghosts("acme") == []
        assert b'lakesweep_ghost_bytes{tenant="acme"} 0.0' in app.metrics.exposition()
    assert (done.outcome, done.deletion.deleted.files) == (Outcome.DONE, 6)
    assert document["table"] == "acme/~ghosts/old/clicks"
    assert sum(record["record"] == "deleted" for record in records) == 6
    gone = before.keys() - content(lake.root / "lake").keys()
    assert all(path.startswith(f"{ghost(lake)}/") for path in gone)
    assert len(gone) == 6
    lake.check_live()


async def test_a_plan_is_approved_with_its_digest_only(lake: LocalLake):
    async with opened(lake) as app:
        (plan,) = await planned(app)
        for digest in (None, "0" * 64):
            with pytest.raises(Refused, match="digest") as refused:
                await app.approve(plan.id, by="ada", digest=digest)
            assert refused.value.code == "other_plan"
        assert await executed(app) == []


def registered(lake: LocalLake) -> None:
    dataset = {"id": "again", "format": "delta", "location": str(ghost(lake).parent)}
    lake.tenants["acme"]["datasets"] = [*lake.tenants["acme"]["datasets"], dataset]


def committed(lake: LocalLake) -> None:
    aged(ghost(lake) / LOG / f"{1:020}.json", b'{"commitInfo": {"operation": "WRITE"}}\n')


def written(lake: LocalLake) -> None:
    aged(ghost(lake) / "part-9.parquet")


def replaced(lake: LocalLake) -> None:
    path = ghost(lake) / "part-00001-live.parquet"
    os.utime(path, (LONG_AGO.timestamp() + 60, LONG_AGO.timestamp() + 60))


def referred_to(lake: LocalLake) -> None:
    """By a clone that is made only now."""
    add = {
        "path": f"file://{ghost(lake)}/part-00001-live.parquet",
        "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    aged(lake.directory("acme/d/clone") / LOG / f"{1:020}.json", json.dumps({"add": add}).encode() + b"\n")


def unreadable(lake: LocalLake) -> None:
    """A table that may use it."""
    aged(lake.directory("acme/d/clone") / LOG / f"{0:020}.json", b"{")


def away(lake: LocalLake) -> None:
    """A catalog that may claim it."""
    catalog = {"type": "sql", "uri": "sqlite:////no/x.db"}
    dataset = {"id": "away", "format": "iceberg", "namespace": "db", "catalog": catalog}
    lake.tenants["acme"]["datasets"] = [*lake.tenants["acme"]["datasets"], dataset]


def linked(lake: LocalLake) -> None:
    (ghost(lake) / "more").symlink_to(lake.directory("acme/d/source"))


def nested_delta(lake: LocalLake) -> None:
    write_local(ghost(lake) / "copies" / "inner", small_table("inner"))


def nested_iceberg(lake: LocalLake) -> None:
    aged(ghost(lake) / "x" / "metadata" / "00000-a.metadata.json")


def nested_paimon(lake: LocalLake) -> None:
    aged(ghost(lake) / "t" / "schema" / "schema-0")


def trashed(lake: LocalLake) -> None:
    aged(ghost(lake) / ".lakesweep-trash" / "run" / "x.parquet")


def own_files(lake: LocalLake) -> None:
    lake.tenants["acme"]["orphan_cleanup"] = {"trash": str(ghost(lake) / "_trash")}


def copied(lake: LocalLake) -> None:
    """To a place that a dataset knows: the same table lives on there, and may be on its way."""
    shutil.copytree(ghost(lake), lake.directory("acme/d/copy"))


def add_dataset(lake: LocalLake, location: Path) -> None:
    dataset = {"id": "new", "format": "delta", "location": str(location)}
    lake.tenants["acme"]["datasets"] = [*lake.tenants["acme"]["datasets"], dataset]


def inside(lake: LocalLake) -> None:
    """A table that is registered inside it. What it has there looks like data of the ghost."""
    (ghost(lake) / "inner").mkdir()
    add_dataset(lake, ghost(lake) / "inner")
    write_local(ghost(lake) / "inner" / "t", small_table("inner"))


def around(lake: LocalLake) -> None:
    write_local(ghost(lake).parent, small_table("outer"))
    add_dataset(lake, ghost(lake).parent)


def inner_tenant(lake: LocalLake) -> None:
    """A tenant whose root leads into it."""
    link = lake.root / "link"
    (ghost(lake) / "theirs").mkdir()
    link.symlink_to(ghost(lake) / "theirs")
    lake.tenants["other"] = {"id": "other", "root": str(link), "datasets": []}


def outer_tenant(lake: LocalLake) -> None:
    link = lake.root / "link"
    link.symlink_to(lake.root / "lake")
    lake.tenants["other"] = {"id": "other", "root": str(link), "datasets": []}


def artifacts(lake: LocalLake) -> None:
    """Lakesweep's own files in it: the plans of other ghosts, for one."""
    lake.tenants["acme"]["datasets"][0]["inventory"] = str(ghost(lake) / "inventory")


def touched(lake: LocalLake) -> None:
    """By a writer that has not committed yet, under a name that no format writes."""
    (ghost(lake) / "notes.txt").write_text("hello")


def lost(lake: LocalLake) -> None:
    (ghost(lake) / "part-00001-live.parquet").unlink()


CHANGES = {
    registered: "ghost_claimed",
    committed: "ghost_not_approved",
    written: "ghost_not_approved",
    replaced: "ghost_not_approved",
    lost: "ghost_not_approved",
    referred_to: "ghost_claimed",
    unreadable: "neighbours_unknown",
    away: "neighbours_unknown",
    linked: "foreign_table",
    nested_delta: "foreign_table",
    nested_iceberg: "foreign_table",
    nested_paimon: "foreign_table",
    trashed: "foreign_table",
    own_files: "ghost_claimed",
    copied: "ghost_claimed",
    inside: "ghost_claimed",
    around: "ghost_claimed",
    inner_tenant: "ghost_claimed",
    outer_tenant: "ghost_claimed",
    artifacts: "ghost_claimed",
    touched: "ghost_young",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_what_happens_between_plan_and_run_keeps_it_whole(lake: LocalLake, change):
    async with opened(lake) as app:
        await approved(app)
    change(lake)
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        (run,) = await executed(app)
    assert (run.outcome, run.refusal and run.refusal.code) == (Outcome.REFUSED, CHANGES[change]), run.reason
    assert content(lake.root / "lake") == before


@pytest.mark.parametrize(
    "change", [committed, written, replaced, referred_to, unreadable], ids=lambda change: change.__name__
)
async def test_what_happens_during_a_sweep_keeps_all_that_is_left(lake: LocalLake, change):
    async with opened(lake) as app:
        await approved(app)
        left: list[dict[str, bytes]] = []

        def watch(progress) -> None:
            if progress.phase == "sweeping" and progress.done and not left:
                change(lake)
                left.append(content(lake.root / "lake"))

        (run,) = await executed(app, watch)
    assert run.outcome is Outcome.REFUSED, run.reason
    assert run.deletion.deleted.files == 1
    assert content(lake.root / "lake") == left[0]


async def test_a_restore_brings_a_ghost_back_with_every_byte(lake: LocalLake):
    before = content(lake.root / "lake")
    async with opened(lake, deletion="trash") as app:
        await approved(app)
        (done,) = await executed(app)
        assert content(ghost(lake)) == {}
        undone = await app.restoring(done.id, [], ADA).execute(new_run_id())
        assert (undone.result.restored.files, undone.paused) == (6, True)
        assert content(lake.root / "lake") == before
        assert await executed(app) == []


@pytest.mark.parametrize("new", [f"{LOG}/{7:020}.json", "snapshot/snapshot-1", "metadata/1.metadata.json", "a.orc"])
async def test_a_ghost_is_not_restored_into_a_new_tables_place(lake: LocalLake, new: str):
    async with opened(lake, deletion="trash") as app:
        await approved(app)
        (done,) = await executed(app)
        aged(ghost(lake) / new)
        before = content(lake.root / "lake")
        with pytest.raises(Refused, match="something else") as refused:
            await app.restoring(done.id, [], ADA).execute(new_run_id())
        assert refused.value.code == "foreign_table"
    assert content(lake.root / "lake") == before


def test_the_commands_plan_approve_execute_and_restore(lake: LocalLake, capsys):
    config = lake.root / "lakesweep.toml"
    config.write_text(to_toml(lake.settings(logging={"level": "error"}, orphan_cleanup={"deletion": "trash"})))

    def called(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--config", str(config)])
        return code, capsys.readouterr().out

    before = content(lake.root / "lake")
    assert called("run", "--ghosts", "--execute")[0] == 3
    code, out = called("ghosts", "--plan", "--json")
    (told,) = json.loads(out)["ghosts"]
    plan = told["plan"]
    assert (code, plan["refused"]["code"], plan["orphans"]["count"]) == (0, "ghost_not_approved", 6)
    assert called("approve", plan["run_id"])[0] == 3
    code, out = called("show", plan["run_id"][:8], "--json")
    assert (code, json.loads(out)["digest"]) == (0, plan["digest"])
    assert called("approve", plan["run_id"], "--digest", plan["digest"])[0] == 0
    assert "approved: `lakesweep run --ghosts --execute`" in called("ghosts", "--plan")[1]
    assert called("run", "--ghosts")[0] == 0
    assert content(lake.root / "lake") == before
    code, out = called("run", "--ghosts", "acme", "--execute", "--json")
    (done,) = json.loads(out)["tables"]
    assert (code, done["outcome"], done["deleted"]["count"]) == (0, "done", 6)
    assert content(ghost(lake)) == {}
    assert called("restore", done["run_id"])[0] == 0
    assert content(lake.root / "lake") == before
    assert called("run", "--ghosts", "acne", "--execute")[0] == 2
    assert called("run", "--ghosts", "--no-listing")[0] == 2
    assert called("run", "--execute")[0] == 2


def test_a_ghost_that_cannot_be_planned_says_why(lake: LocalLake, capsys):
    touched(lake)
    config = lake.root / "lakesweep.toml"
    config.write_text(to_toml(lake.settings(logging={"level": "error"})))
    assert main(["ghosts", "--plan", "--config", str(config)]) == 3
    assert "ghost_grace_hours" in capsys.readouterr().out


async def test_of_a_very_large_ghost_a_new_commit_still_ends_the_sweep(lake: LocalLake, monkeypatch):
    monkeypatch.setattr(ghost_table, "LISTED_WHOLE", 3)
    async with opened(lake) as app:
        await approved(app)

        def watch(progress) -> None:
            if progress.phase == "sweeping" and progress.done == 1:
                committed(lake)

        (run,) = await executed(app, watch)
    assert (run.outcome, run.deletion.deleted.files) == (Outcome.REFUSED, 1), run.reason


async def test_a_new_table_that_waits_for_its_first_commit_stays(lake: LocalLake):
    path = lake.root / "lake" / "acme" / "new" / "orders" / "data" / "a.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    async with opened(lake) as app:
        codes = {run.table.name: run.refusal and run.refusal.code for run in await planned(app)}
    assert codes == {"new/orders": "ghost_young", "old/clicks": "ghost_not_approved"}


async def test_a_ghost_whose_metadata_cannot_be_read_stays(lake: LocalLake):
    """Nothing tells whose it was. Paimon's, and one that Delta itself would not read."""
    other = lake.root / "lake" / "acme" / "old" / "flink.db" / "t"
    for name in ("schema/schema-0", "snapshot/snapshot-1", "bucket-0/data-1.orc"):
        aged(other / name, b"{}")
    aged(ghost(lake) / LOG / f"{0:020}.json", b"{")
    async with opened(lake) as app:
        runs = await planned(app)
    assert [(run.outcome, run.refusal and run.refusal.code) for run in runs] == [(Outcome.FAILED, "indeterminate")] * 2


async def test_a_link_to_a_table_is_no_ghost(lake: LocalLake):
    (lake.root / "lake" / "acme" / "old" / "same").symlink_to(lake.directory("acme/d/source"))
    async with opened(lake) as app:
        assert [Path(one.location).name for one in await app.ghosts("acme")] == ["clicks"]


async def test_names_that_no_format_writes_stay_where_they_are(lake: LocalLake):
    kept = {"notes.txt", "x.managed.blob", f"{LOG}/readme.md"}
    for name in kept:
        aged(ghost(lake) / name)
    async with opened(lake) as app:
        await approved(app)
        (done,) = await executed(app)
    assert (done.outcome, done.deletion.deleted.files) == (Outcome.DONE, 6)
    assert content(ghost(lake)).keys() == {str(ghost(lake) / name) for name in kept}


async def test_what_opens_a_ghost_to_readers_goes_first(lake: LocalLake):
    async with opened(lake) as app:
        (plan,) = await planned(app)
        paths = [row.path async for rows in app.candidates(plan) for row in rows]
    assert f"/{LOG}/" in paths[0]


async def test_a_hold_on_the_table_that_it_was_holds_its_ghost(lake: LocalLake):
    async with opened(lake) as app:
        (work,) = await app.resolve("acme/d/source")
        await app.plan(work)
        shutil.move(lake.directory("acme/d/source") / LOG, lake.root / "log")
        registered_at = lake.directory("acme/d/source")
        (found,) = [one for one in await app.ghosts("acme") if one.location.rstrip("/").endswith(str(registered_at))]
        assert found.name == "acme/d/source"
        await app.state.set_hold(Hold(scope="acme/d/source", since=app.clock.now(), by="ada", reason="no"))
        held = await app.run(app.ghost_search("acme").work(found), execute=True)
    assert held.refusal
    assert held.refusal.code == "held"


async def test_what_a_table_uses_is_read_anew_for_other_places(lake: LocalLake):
    """A clone tells paths without their store, and only of the places that matter at that time."""
    add = {
        "path": f"{ghost(lake)}/part-00001-live.parquet",
        "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    aged(lake.directory("acme/d/clone") / LOG / f"{1:020}.json", json.dumps({"add": add}).encode() + b"\n")
    async with opened(lake) as app:
        (work,) = await app.resolve("acme/d/clone")
        borrowed = SharedFileIndex(app.adapters.storage("acme"))
        for begins in (["elsewhere"], [str(lake.root).split("/")[1]]):
            used = await borrowed.of([work.table], pa.array(begins, pa.string()))
    assert any("part-00001-live" in key for uses in used.values() for key in uses.keys.to_pylist())


async def test_files_that_wait_to_be_confirmed_keep_a_ghost_whole(lake: LocalLake):
    async with opened(lake, confirm_after_hours=24) as app:
        (plan,) = await planned(app)
    assert plan.refusal
    assert plan.refusal.code == "ghost_young"


async def test_places_outside_all_tables_count_among_what_a_clone_may_mean(lake: LocalLake):
    """Of a path in another store Delta may mean the same path in any."""
    add = {
        "path": "s3://gone/zzz/old/t/part-0.parquet",
        "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    aged(lake.directory("acme/d/clone") / LOG / f"{1:020}.json", json.dumps({"add": add}).encode() + b"\n")
    async with opened(lake) as app:
        tenant = app.settings.tenants[0]
        await app.neighbours.shared_files(tenant, [Location.parse("/tmp/x")], NOBODY)
        shared = await app.neighbours.shared_files(tenant, [Location.parse("/zzz/old/t")], NOBODY)
    assert [ref.label for ref in shared] == ["acme/d/clone"]


async def test_a_place_that_is_claimed_later_keeps_what_is_data_only(lake: LocalLake):
    """There is no metadata that would tell, and the claimed place is not there yet."""
    left = lake.root / "lake" / "acme" / "old" / "left"
    shutil.rmtree(ghost(lake))
    aged(left / "data" / "f.parquet")
    async with opened(lake) as app:
        await approved(app)
    lake.tenants["acme"]["orphan_cleanup"] = {"trash": str(left / "_trash")}
    async with opened(lake) as app:
        (run,) = await executed(app)
    assert run.refusal
    assert run.refusal.code == "ghost_claimed"
    assert (left / "data" / "f.parquet").exists()


async def test_what_comes_to_a_ghosts_place_later_is_not_taken_for_its_rest(lake: LocalLake):
    """Only of a ghost that a run left half-way the metadata need not be readable."""
    async with opened(lake) as app:
        await approved(app)
        (done,) = await executed(app)
        assert done.outcome is Outcome.DONE
        aged(ghost(lake) / LOG / f"{0:020}.json", b"{")
        (plan,) = await planned(app)
    assert plan.refusal
    assert plan.refusal.code == "indeterminate"


async def test_an_approval_of_a_ghost_ends_at_its_time(lake: LocalLake):
    async with opened(lake) as app:
        plan = await approved(app)
        assert plan.plan
        approvals = Approvals(state=app.state, artifacts=app.artifacts)
        label, digest, now = plan.table.label, plan.plan.digest, app.clock.now()
        assert await approvals.is_given(label, digest, now)
        assert not await approvals.is_given(label, digest, now + timedelta(hours=25))
        app.clock = SetClock(now + timedelta(hours=25))
        assert await app.ghost_search("acme").approved() == []
