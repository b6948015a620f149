"""Places that look like ghosts and are somebody's: views, other databases, links, other spellings, plain files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.builders.ghosts import aged, content, executed, ghost, opened, planned
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, write_local

from lakesweep.daemon.app import App
from lakesweep.formats import ghost_metadata
from lakesweep.formats.iceberg.catalog import IcebergCatalog
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.run import CleanupRun


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    made = LocalLake(root=tmp_path)
    made.add("acme", ["source", "clone"])
    return made


def root(lake: LocalLake) -> Path:
    return lake.root / "lake" / "acme"


async def tried(app: App) -> list[CleanupRun]:
    """As if somebody approved whatever can be approved."""
    runs = await planned(app)
    for run in runs:
        if run.refusal and run.refusal.code == "ghost_not_approved" and run.plan:
            await app.approve(run.id, by="ada", digest=run.plan.digest)
    return await executed(app) or runs


def view(place: Path) -> dict[str, Any]:
    return {"view-uuid": "fa6506c3", "format-version": 1, "location": f"file://{place}", "versions": [], "schemas": []}


def iceberg(lake: LocalLake, *namespaces: str) -> SqlCatalog:
    """A catalog of the tenant with a table `t` in each namespace. Its dataset covers the first."""
    uri = f"sqlite:///{lake.root}/c.db"
    catalog = SqlCatalog("c", uri=uri, warehouse=f"file://{root(lake)}/wh")
    for namespace in namespaces:
        catalog.create_namespace(namespace)
        table = catalog.create_table(f"{namespace}.t", pa.schema([("a", pa.int64())]))
        table.append(pa.table({"a": [1]}))
    age(lake)
    dataset = {
        "id": "ice",
        "format": "iceberg",
        "namespace": namespaces[0],
        "catalog": {"name": "c", "type": "sql", "uri": uri},
    }
    lake.tenants["acme"]["datasets"].append(dataset)
    return catalog


def age(lake: LocalLake) -> None:
    for path in (lake.root / "lake").rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))


@pytest.mark.parametrize("over", [None, "iceberg", "delta"])
async def test_a_view_is_no_ghost_even_where_a_table_was_dropped(lake: LocalLake, over: str | None):
    catalog = iceberg(lake, "mine", "other")
    place = root(lake) / "wh" / "other" / "t"
    if over == "iceberg":
        catalog.drop_table("other.t")
    else:
        shutil.rmtree(place)
        catalog.drop_table("other.t")
    if over == "delta":
        write_local(place, small_table("t"))
    aged(place / "metadata" / "00000-a.gz.metadata.json", json.dumps(view(place)).encode())
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        assert await tried(app) == []
    assert content(lake.root / "lake") == before


async def test_a_ghost_with_too_many_metadata_files_stays(lake: LocalLake, monkeypatch):
    """Each would be read, and whoever may write there says how many there are."""
    catalog = iceberg(lake, "mine", "other")
    catalog.drop_table("other.t")
    before = content(lake.root / "lake")
    monkeypatch.setattr(ghost_metadata, "MOST_FILES", 0)
    async with opened(lake) as app:
        told = await tried(app)
    assert told
    assert all("more than 0 metadata files" in str(one.reason) for one in told)
    assert content(lake.root / "lake") == before


async def test_a_table_that_is_listed_and_cannot_be_loaded_may_be_any_ghost(lake: LocalLake, monkeypatch):
    iceberg(lake, "mine", "theirs")
    real = IcebergCatalog.pointer

    async def pointer(self, identifier):
        if identifier[0] == "theirs":
            raise UnknownTable("404")
        return await real(self, identifier)

    monkeypatch.setattr(IcebergCatalog, "pointer", pointer)
    async with opened(lake) as app:
        with pytest.raises(Refused, match=r"theirs\.t") as refused:
            await app.ghosts("acme")
        assert refused.value.code == "neighbours_unknown"


async def test_a_table_that_is_dropped_while_it_is_asked_for_stops_nothing(lake: LocalLake, monkeypatch):
    catalog = iceberg(lake, "mine", "theirs")
    real = IcebergCatalog.pointer

    async def pointer(self, identifier):
        if identifier[0] == "theirs" and catalog.table_exists("theirs.t"):
            catalog.drop_table("theirs.t")
        return await real(self, identifier)

    monkeypatch.setattr(IcebergCatalog, "pointer", pointer)
    async with opened(lake) as app:
        assert [Path(one.location).parent.name for one in await app.ghosts("acme")] == ["theirs"]


@pytest.mark.parametrize("left", ["schema/schema-0", "snapshot/snapshot-1"])
async def test_the_other_databases_of_a_paimon_warehouse_are_no_ghosts(lake: LocalLake, left: str):
    warehouse = root(lake) / "wh"
    lake.tenants["acme"]["datasets"].append(
        {"id": "p", "format": "paimon", "warehouse": str(warehouse), "database": "a"}
    )
    schema = {
        "version": 3, "id": 0, "fields": [{"id": 0, "name": "k", "type": "INT"}], "highestFieldId": 0,
        "partitionKeys": [], "primaryKeys": [], "options": {"bucket": "-1"}, "comment": "",
    }  # fmt: skip
    for database, made in (("a", 1), ("b", 2)):
        table = warehouse / f"{database}.db" / "t"
        aged(table / "schema" / "schema-0", json.dumps({**schema, "timeMillis": made}).encode())
        (table / "snapshot").mkdir()
    other = warehouse / "b.db" / "t"
    if left != "schema/schema-0":
        shutil.rmtree(other / "schema")
        aged(
            other / "metadata" / "v1.metadata.json", json.dumps({"format-version": 1, "location": str(other)}).encode()
        )
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        assert await tried(app) == []
    assert content(lake.root / "lake") == before


def adds(lake: LocalLake, path: str, table: str = "clone") -> None:
    add = {"path": path, "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True}
    log = lake.directory(f"acme/d/{table}") / "_delta_log" / f"{1:020}.json"
    aged(log, json.dumps({"add": add}).encode() + b"\n")


async def codes(lake: LocalLake) -> list[str | None]:
    """Why whatever looks like a ghost stays, after a try in which nothing may go."""
    before = content(lake.root / "lake")
    async with opened(lake) as app:
        runs = await tried(app)
    assert content(lake.root / "lake") == before
    return [run.refusal and run.refusal.code for run in runs]


FOREIGN = ["sales/day=1/part-0.parquet", "dim/x.orc", "day=1/x.parquet", "data/x.avro", "_change_data/day=1/x.parquet"]


@pytest.mark.parametrize("name", FOREIGN)
async def test_plain_files_below_a_stray_log_keep_all_of_it(lake: LocalLake, name: str):
    write_local(ghost(lake), small_table("stray"))
    aged(ghost(lake) / name)
    assert await codes(lake) == ["foreign_table"]


async def test_files_beside_a_log_that_names_none_keep_all_of_it(lake: LocalLake):
    write_local(ghost(lake), small_table("stray", live=0))
    assert await codes(lake) == ["foreign_table"]


@pytest.mark.parametrize("name", ["dim/x.orc", "x.parquet", "day=1/x.parquet"])
async def test_plain_files_beside_data_without_metadata_keep_all_of_it(lake: LocalLake, name: str):
    aged(ghost(lake) / "data" / "day=1" / "f.parquet")
    aged(ghost(lake) / name)
    assert await codes(lake) == ["foreign_table"]


async def test_other_partitions_of_a_ghost_are_its_own(lake: LocalLake):
    table = small_table("clicks")
    moved = {name: f"day={at}/{name}" for at, name in enumerate((*table.live, *table.orphans))}
    log = table.log
    for name in table.live:
        log = log.replace(name, moved[name])
    for name, data in table.objects():
        aged(ghost(lake) / moved.get(name, name), log.encode() if "_delta_log" in name else data)
    async with opened(lake) as app:
        (run,) = await tried(app)
    assert (run.outcome, run.deletion.deleted.files) == ("done", 6)


@pytest.mark.parametrize("table", ["one", "whole"])
async def test_what_a_link_below_a_table_leads_to_is_no_ghost(lake: LocalLake, table: str):
    """Also through a second link, in the place that the first leads to."""
    aged(ghost(lake) / "data" / "f.parquet")
    link = lake.directory("acme/d/source") / "p=1"
    if table == "whole":
        (lake.root / "between").mkdir()
        (lake.root / "between" / "q").symlink_to(ghost(lake) / "data")
        link.symlink_to(lake.root / "between")
    else:
        link.symlink_to(ghost(lake) / "data" / "f.parquet")
    assert await codes(lake) == []


@pytest.mark.parametrize("how", ["alias", "file link", "root is a link", "another address"])
async def test_files_that_are_used_by_another_name_keep_a_ghost(lake: LocalLake, how: str):
    write_local(ghost(lake), small_table("clicks"))
    (lake.root / "alias").symlink_to(lake.root / "lake")
    name = "part-00001-live.parquet"
    path = f"file://{lake.root}/alias/acme/old/clicks/{name}"
    if how == "root is a link":
        lake.tenants["acme"]["root"] = f"{lake.root}/alias/acme"
        lake.tenants["acme"]["datasets"][0]["location"] = f"{lake.root}/alias/acme/tables"
    if how == "file link":
        (lake.root / "one.parquet").symlink_to(ghost(lake) / name)
        path = f"file://{lake.root}/one.parquet"
    if how == "another address":
        path = f"s3://the-same-disk/{lake.root.parts[1]}/{name}"
    adds(lake, path)
    assert await codes(lake) == (["ghost_claimed"] if how == "another address" else [])


async def test_old_metadata_of_a_known_table_keeps_a_ghost(lake: LocalLake):
    """Also where a newer metadata file beside it is another table's."""
    iceberg(lake, "mine", "other").drop_table("other.t")
    first = min((root(lake) / "wh" / "mine" / "t" / "metadata").glob("*.metadata.json"))
    aged(root(lake) / "wh" / "other" / "t" / "metadata" / "00000-a.metadata.json", first.read_bytes())
    assert await codes(lake) == []
