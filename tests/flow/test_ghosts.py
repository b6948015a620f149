"""Directories of former tables are found, and nothing that anybody claims or uses is ever taken for one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate
from tests.builders.iceberg import SCHEMA
from tests.builders.shared_files import iceberg
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, to_toml, write_local

from lakesweep.cli.main import main
from lakesweep.daemon import ghosts, lake_map, lake_report
from lakesweep.daemon.app import App
from lakesweep.daemon.lake_map import draw
from lakesweep.daemon.lake_report import Named
from lakesweep.model.errors import Refused
from lakesweep.model.ghost import digest
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.schema import Settings


async def look(settings, *, before=None):
    async with App.open(settings) as app:
        if before:
            await before(app)
        return await app.ghosts("acme")


def place(table) -> Path:
    return Path(table.location().removeprefix("file://"))


@pytest.fixture
def deltas(tmp_path):
    """A dataset with two tables in one directory, and room beside it."""
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["source", "clone"])
    return lake


def settings_of(lake):
    return Settings.model_validate(lake.settings(state={"url": "memory://"}))


async def test_a_table_that_was_dropped_from_its_catalog_is_a_ghost(lake):
    kept, dropped = lake.create("kept"), lake.create("dropped")
    for table in (kept, dropped):
        table.append(1)
    location, uuid = place(dropped.table), str(dropped.table.metadata.table_uuid)

    async def plan_then_drop(app):
        (work,) = await app.resolve("acme/prod/dropped")
        await app.plan(work)
        lake.catalog.drop_table("db.dropped")

    (ghost,) = await look(iceberg(lake), before=plan_then_drop)
    assert (ghost.location.rstrip("/"), ghost.format) == (f"file://{location}", "iceberg")
    assert (ghost.name, ghost.uuid, ghost.tenant) == ("acme/prod/dropped", uuid, "acme")
    files = [path for path in location.rglob("*") if path.is_file()]
    assert (ghost.files, ghost.bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert ghost.newest_modified_at is not None
    assert any("metadata.json" in sentence for sentence in ghost.evidence)
    assert kept.rows()


@pytest.mark.parametrize("left", ["metadata", "data"])
async def test_what_is_left_of_a_former_table_is_a_ghost(lake, left):
    lake.create("kept").append(1)
    dropped = lake.create("dropped")
    dropped.append(1)
    lake.catalog.drop_table("db.dropped")
    shutil.rmtree(place(dropped.table) / ("data" if left == "metadata" else "metadata"))
    (ghost,) = await look(iceberg(lake))
    assert ghost.format == ("iceberg" if left == "metadata" else "unknown")


async def test_ghosts_of_delta_and_paimon_are_found_beside_a_dataset(deltas):
    root = deltas.root / "lake" / "acme"
    write_local(root / "old" / "team" / "clicks", small_table("clicks"))
    for name in ("schema/schema-0", "snapshot/snapshot-1", "bucket-0/data-1.orc"):
        path = root / "old" / "flink.db" / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = await look(settings_of(deltas))
    assert [(Path(one.location).name, one.format) for one in found] == [("t", "paimon"), ("clicks", "delta")]
    assert any("cannot be read" in sentence for sentence in found[0].evidence)
    assert digest(found) == digest(reversed(found))
    assert digest(found) != digest(found[:1])


async def test_no_known_table_and_nothing_inside_or_around_one_is_a_ghost(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["source"])
    inner = lake.directory("acme/d/source") / "copies" / "inner"
    write_local(inner, small_table("inner"))
    loose = tmp_path / "lake" / "acme" / "tables" / "data" / "loose.parquet"
    loose.parent.mkdir()
    loose.write_bytes(b"x")
    write_local(tmp_path / "lake" / "acme" / ".lakesweep-trash" / "run" / "t", small_table("gone"))
    assert await look(settings_of(lake)) == []


async def test_a_copy_of_a_known_table_is_no_ghost(deltas):
    """By its identity, or by the place that its metadata names: somebody may be about to register it."""
    shutil.copytree(deltas.directory("acme/d/source"), deltas.root / "lake" / "acme" / "backup" / "source")
    assert await look(settings_of(deltas)) == []


async def test_metadata_that_names_a_known_place_is_no_ghost(lake):
    kept = lake.create("kept")
    kept.append(1)
    copy = place(kept.table).parent / "copy"
    shutil.copytree(place(kept.table) / "metadata", copy / "metadata")
    for path in copy.rglob("*.metadata.json"):
        other = json.loads(path.read_text()) | {"table-uuid": "00000000-0000-4000-8000-000000000000"}
        path.write_text(json.dumps(other))
    assert await look(iceberg(lake)) == []


async def test_a_table_at_the_tenants_root_is_no_ghost(tmp_path):
    write_local(tmp_path / "lake" / "t", small_table("t"))
    root = str(tmp_path / "lake")
    dataset = {"id": "d", "format": "delta", "location": root}
    settings = Settings.model_validate(
        {
            "service": {"data_dir": str(tmp_path / "state")},
            "state": {"url": "memory://"},
            "tenants": [{"id": "acme", "root": f"{root}/t", "datasets": [{**dataset, "location": f"{root}/t"}]}],
        }
    )
    assert await look(settings) == []


async def test_a_place_whose_files_another_table_added_is_no_ghost(lake):
    staging = lake.create("staging")
    staging.append(1)
    (task,) = staging.table.refresh().scan().plan_files()
    target = lake.catalog.create_table("db.target", SCHEMA)
    target.add_files([task.file.file_path])
    lake.catalog.drop_table("db.staging")
    assert await look(iceberg(lake)) == []
    assert len(target.refresh().scan().to_arrow()) == 1


async def test_the_source_of_a_shallow_clone_is_no_ghost(deltas):
    former = deltas.root / "lake" / "acme" / "old" / "source"
    write_local(former, small_table("former"))
    add = {
        "path": f"file://{former}/part-00000-live.parquet",
        "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    log = deltas.directory("acme/d/clone") / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"add": add}) + "\n")
    assert await look(settings_of(deltas)) == []


async def test_the_earlier_place_of_a_moved_table_is_no_ghost(lake):
    moved = lake.create("moved")
    moved.append(7)
    left = moved.table.location()
    lake.catalog.commit_table(moved.refresh(), (), (SetLocationUpdate(location=f"{left}-now"),))
    moved.append(8)
    assert await look(iceberg(lake)) == []


async def test_nothing_is_called_a_ghost_while_a_catalog_cannot_be_read(lake):
    lake.create("dropped").append(1)
    lake.catalog.drop_table("db.dropped")
    settings = iceberg(lake)
    away = {
        "id": "away",
        "format": "iceberg",
        "namespace": "db",
        "catalog": {"type": "sql", "uri": "sqlite:////no/x.db"},
    }
    tenant = settings.tenants[0].model_dump(exclude_unset=True)
    both = {**settings.model_dump(exclude_unset=True), "tenants": [{**tenant, "datasets": [*tenant["datasets"], away]}]}
    assert len(await look(settings)) == 1
    with pytest.raises(Refused, match="acme/away cannot be read") as refused:
        await look(Settings.model_validate(both))
    assert refused.value.code == "neighbours_unknown"


async def test_nothing_is_called_a_ghost_while_a_table_cannot_be_read(deltas):
    write_local(deltas.root / "lake" / "acme" / "old" / "clicks", small_table("clicks"))
    assert len(await look(settings_of(deltas))) == 1
    (deltas.directory("acme/d/clone") / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(Refused, match="acme/d/clone cannot be read"):
        await look(settings_of(deltas))


async def test_a_report_reports_the_ghosts_of_its_tenants(deltas):
    write_local(deltas.root / "lake" / "acme" / "old" / "clicks", small_table("clicks"))
    async with App.open(settings_of(deltas)) as app:
        named = [Named(label="acme/d/source", format=FormatName.DELTA)]
        before = await lake_report.make(app.settings, app.state, app.clock, named, ["acme"])
        assert (before["ghosts"], before["ghosts_looked_at"]) == ([], None)
        (found,) = await app.ghosts("acme")
        after = await lake_report.make(app.settings, app.state, app.clock, named, ["acme"])
    assert [one["location"] for one in after["ghosts"]] == [found.location]
    assert after["ghosts_looked_at"] is not None


def test_the_command_lists_them_and_refuses_what_it_cannot_know(deltas, tmp_path, capsys):
    write_local(deltas.root / "lake" / "acme" / "old" / "clicks", small_table("clicks"))
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(deltas.settings(logging={"level": "error"})))
    assert main(["ghosts", "--json", "--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    (ghost,) = told["ghosts"]
    assert set(ghost) >= {"location", "format", "tenant", "files", "bytes", "newest_modified_at", "evidence"}
    assert (len(told["digest"]), "refused" in told) == (64, False)
    assert main(["ghosts", "acme", "--config", str(config)]) == 0
    assert "1 ghost" in capsys.readouterr().out
    assert main(["ghosts", "acne", "--config", str(config)]) == 2
    (deltas.directory("acme/d/clone") / "_delta_log" / f"{0:020}.json").write_text("{")
    capsys.readouterr()
    assert main(["ghosts", "--config", str(config)]) == 3
    told = capsys.readouterr()
    assert told.out == "1 tenant not searched\n"
    assert "acme/d/clone cannot be read" in told.err
    assert main(["ghosts", "--json", "--config", str(config)]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["ghosts"], [(one["tenant"], one["code"]) for one in told["refused"]]) == (
        [],
        [("acme", "neighbours_unknown")],
    )
    assert "acme/d/clone cannot be read" in told["refused"][0]["reason"]


async def test_a_map_says_whose_everything_is(deltas):
    root = deltas.root / "lake" / "acme"
    write_local(root / "old" / "clicks", small_table("clicks", live=1, orphans=0))
    (root / "notes.txt").write_text("hello")
    (root / "stray").mkdir()
    (root / "stray" / "x.bin").write_bytes(b"12345678")
    (root / ".lakesweep-trash" / "r1").mkdir(parents=True)
    (root / ".lakesweep-trash" / "r1" / "a.parquet").write_bytes(b"12345")
    async with App.open(settings_of(deltas)) as app:
        drawn = await draw(app, "acme")
    whose = {tuple(place["tables"]): place["files"] for place in drawn["places"]}
    assert whose == {("acme/d/source",): 6, ("acme/d/clone",): 6}
    assert [Path(one["location"]).name for one in drawn["ghosts"]] == ["clicks"]
    loose = {Path(one["location"]).name: one["files"] for one in drawn["unclaimed"]}
    assert loose == {"old": 2, "stray": 1, "acme": 1}
    assert (drawn["unclaimed_files"], drawn["overlaps"], drawn["unread"]) == (4, [], [])
    assert [(Path(one["location"]).name, one["files"], one["bytes"]) for one in drawn["trash"]] == [
        (".lakesweep-trash", 1, 5)
    ]


def test_places_that_overlap_or_are_shared_are_reported():
    def ref(name):
        return TableRef(tenant=TenantId("acme"), dataset="d", name=name, format=FormatName.DELTA)

    places = {
        ref("outer"): (Location.parse("s3://lake/a"),),
        ref("inner"): (Location.parse("s3://lake/a/b"), Location.parse("s3://lake/c")),
        ref("twin"): (Location.parse("s3://lake/c/"),),
        ref("near"): (Location.parse("s3://lake/ab"),),
    }
    owners = lake_map.owners(places)
    assert lake_map.overlaps(owners) == [["s3://lake/c/", "s3://lake/c/"], ["s3://lake/a/", "s3://lake/a/b/"]]


def test_the_map_is_a_command(deltas, tmp_path, capsys):
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(deltas.settings(logging={"level": "error"})))
    assert main(["map", "--json", "--config", str(config)]) == 0
    assert [one["tenant"] for one in json.loads(capsys.readouterr().out)["tenants"]] == ["acme"]
    assert main(["map", "acme", "--config", str(config)]) == 0
    assert "unclaimed: 0 B in 0 files" in capsys.readouterr().out
    old = deltas.root / "lake" / "acme" / "old"
    write_local(old / "clicks", small_table("clicks", live=1, orphans=0))
    (old / "notes.txt").write_text("hello")
    assert main(["map", "acme", "--config", str(config)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"ghost .*/old/clicks/", told)
    assert re.search(r"  5 B +1  nobody .*/old\b", told)  # what is a ghost's is not told twice
    assert "in 3 files, ghosts included" in told


def test_a_map_that_could_not_read_everything_fails(deltas, tmp_path, capsys):
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(deltas.settings(logging={"level": "error"})))
    (deltas.directory("acme/d/clone") / "_delta_log" / f"{0:020}.json").write_text("{")
    assert main(["map", "--config", str(config)]) == 4
    assert "could not be read" in capsys.readouterr().out
    assert main(["map", "--json", "--config", str(config)]) == 4
    assert json.loads(capsys.readouterr().out)["tenants"][0]["unread"]


# --- what a tenant can do to whoever looks


HOSTILE = "evil\x1b[31m<script>alert(1)</script>\u202e"


def test_hostile_names_reach_no_terminal_and_no_page(deltas, tmp_path, capsys):
    write_local(deltas.root / "lake" / "acme" / "old" / HOSTILE.replace("/", "_"), small_table("clicks"))
    config, page = tmp_path / "lakesweep.toml", tmp_path / "report.html"
    config.write_text(to_toml(deltas.settings(logging={"level": "error"})))
    for command in (["ghosts"], ["ghosts", "--plan"], ["map"], ["report"], ["report", "--html", str(page)]):
        assert main([*command, "--config", str(config)]) == 0
        told = capsys.readouterr()
        assert "\x1b" not in told.out + told.err
        assert "\u202e" not in told.out + told.err
    assert "<script>alert" not in page.read_text()


async def test_a_tree_without_end_is_looked_at_to_a_bounded_depth(deltas):
    place = deltas.root / "lake" / "acme"
    write_local(place.joinpath(*["deep"] * 6, "t"), small_table("near"))
    write_local(place.joinpath(*["deep"] * 60, "t"), small_table("far"))
    assert [Path(one.location).name for one in await look(settings_of(deltas))] == ["t"]


async def test_too_many_directories_are_refused_and_not_half_looked_at(deltas, monkeypatch):
    monkeypatch.setattr(ghosts, "MOST_DIRECTORIES", 20)
    for number in range(30):
        (deltas.root / "lake" / "acme" / "old" / str(number)).mkdir(parents=True)
    with pytest.raises(Refused, match="more than 20 directories"):
        await look(settings_of(deltas))


async def test_metadata_larger_than_allowed_makes_no_plan(deltas):
    place = deltas.root / "lake" / "acme" / "old" / "clicks"
    write_local(place, small_table("clicks"))
    log = place / "_delta_log" / f"{1:020}.json"
    log.write_bytes(b'{"commitInfo": {"x": "' + b"y" * 3_000_000 + b'"}}\n')
    os.utime(log, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    values = deltas.settings(state={"url": "memory://"}, storage={"max_metadata_bytes": 1_048_576})
    values["storage"] |= {"local": {"age_by": "modification"}}
    async with App.open(Settings.model_validate(values)) as app:
        (found,) = await app.ghosts("acme")
        plan = await app.plan(app.ghost_search("acme").work(found))
    assert plan.refusal
    assert (plan.plan, plan.refusal.code) == (None, "indeterminate")
