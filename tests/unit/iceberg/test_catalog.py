"""Asking catalogs: what they are asked, what their failures are called, and that secrets stay secret."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from pyiceberg.utils.config import Config
from tests.builders.iceberg import Lake
from tests.builders.stores import LocalStorage
from tests.peers.ports import free_port
from tests.unit.iceberg.rest_stub import serve

from lakesweep.formats.iceberg.catalog import CommitStyle, IcebergCatalog
from lakesweep.formats.iceberg.format import IcebergFormat, join_name, split_name
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.errors import CatalogUnavailable, Refused, SettingsError, UnknownTable, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.local.store import LocalWriter


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path)


def catalog(properties: dict, **options: float) -> IcebergCatalog:
    return IcebergCatalog("prod", properties, LocalStorage(), LocalWriter(), **options)


def ref(name: str) -> TableRef:
    return TableRef(tenant=TenantId("acme"), dataset="prod", name=name, format=FormatName.ICEBERG)


async def test_tables_are_discovered_with_nested_namespaces(lake: Lake):
    lake.create("a")
    lake.catalog.create_namespace("db.deep")
    lake.catalog.create_table("db.deep.b", lake.create("c").table.schema())
    lake.catalog.create_namespace("other")
    lake.catalog.create_table("other.d", lake.create("e").table.schema())
    assert [one.name for one in await lake.format().tables()] == ["a", "c", "deep.b", "e"]
    assert [one.name for one in await lake.format(namespace=None).tables()] == [
        "db.a",
        "db.c",
        "db.deep.b",
        "db.e",
        "other.d",
    ]
    assert [one.name for one in await lake.format(namespace="db.deep").tables()] == ["b"]
    handle = await lake.format().open(ref("deep.b"))
    assert (await handle.load()).location.path.endswith("db.deep/b")


def test_names_with_dots_survive():
    for parts in (("a",), ("a", "b"), ("a.b", "c"), ("x", "y.z")):
        assert split_name(join_name(parts)) == parts


async def test_the_pointer_costs_no_file(lake: Lake):
    table = lake.create()
    table.append(1)
    handle = await table.open()
    head = await handle.head()
    Path(head.removeprefix("file://")).unlink()
    assert await handle.head() == head
    with pytest.raises(Unreadable, match="the catalog points at it"):
        await handle.load()


async def test_a_catalogs_own_name_may_differ_from_the_datasets(lake: Lake):
    lake.create("a")
    assert lake.properties["name"] == "lake"
    assert len(await catalog(lake.properties).tables(("db",))) == 1
    assert await catalog(lake.properties | {"name": "another"}).tables(None) == []


async def test_an_unknown_table_or_namespace_is_the_operators_mistake(lake: Lake):
    with pytest.raises(UnknownTable, match=r"db\.nothing"):
        await (await lake.format().open(ref("nothing"))).load()
    with pytest.raises(UnknownTable):
        await lake.format(namespace="nowhere").tables()


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest"},
        {"type": "no such type", "uri": "x"},
        {"uri": "gopher://x"},
        {"type": "sql", "uri": "not a url"},
        {"type": "sql", "uri": "nosuchdriver://x"},
        {"type": "bigquery"},
        {"py-catalog-impl": "no.such.Class"},
        {"name": "only a name"},
    ],
)
async def test_properties_that_do_not_fit_are_settings_errors(properties: dict):
    with pytest.raises(SettingsError, match="catalog"):
        await catalog(properties).tables(None)


def test_an_iceberg_dataset_needs_a_catalog():
    spec = DatasetSpec(
        tenant=TenantId("a"), tenant_root=Location.parse("/lake"), dataset="d", format=FormatName.ICEBERG
    )
    with pytest.raises(SettingsError, match="needs a catalog"):
        IcebergFormat(spec, LocalStorage(), None)


@pytest.mark.parametrize("kind", ["rest", "sql"])
async def test_a_catalog_that_is_not_there_is_named_without_its_secrets(kind: str, caplog, recwarn):
    caplog.set_level(logging.DEBUG)
    port = free_port()
    uri = {
        "rest": f"http://user:hunter2@127.0.0.1:{port}/api?key=hunter2",
        "sql": f"postgresql+psycopg2://user:hunter2@127.0.0.1:{port}/db",
    }[kind]
    properties = {
        "type": kind,
        "uri": uri,
        "token": "hunter2",
        "credential": "id:hunter2",
        "s3.secret-access-key": "hunter2",
    }
    with pytest.raises(CatalogUnavailable, match=f"127.0.0.1:{port}") as caught:
        await catalog(properties).tables(None)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in caplog.text
    assert not [one for one in recwarn if "hunter2" in str(one.message)]


async def test_a_secret_from_pyicebergs_own_variables_stays_one(monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__CREDENTIAL", "id:hunter2")
    found = catalog({"type": "rest", "uri": "http://127.0.0.1:1", "name": "lake"})
    assert found.explain(ValueError("hunter2 is not right")) == "ValueError: *** is not right"


async def test_a_malformed_variable_of_pyicebergs_own_is_the_operators_to_mend(monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE", "http://127.0.0.1:1")
    found = catalog({"type": "rest", "name": "lake"})
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # as a process that starts with it
    with pytest.raises(SettingsError, match="needs to be an object"):
        await found.tables(None)


async def test_a_catalog_that_does_not_answer_in_time_is_unavailable():
    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(CatalogUnavailable, match="did not answer"):
            await catalog({"type": "rest", "uri": f"http://127.0.0.1:{port}"}, timeout_seconds=0.2).tables(None)
    finally:
        server.close()


async def test_a_server_in_trouble_is_unavailable_and_its_text_stays_out(lake: Lake):
    lake.create()
    with serve(lake.another_client()) as stub:
        found = catalog({"type": "rest", "uri": stub.uri})
        assert (await found.pointer(("db", "t"))).metadata_location.startswith("file:/")
        stub.status = 500
        with pytest.raises(CatalogUnavailable, match="500"):
            await found.pointer(("db", "t"))
        stub.status = 403
        with pytest.raises(CatalogUnavailable, match="HTTP 403") as caught:
            await found.tables(None)
        assert "out of order" not in str(caught.value)
        await found.aclose()


async def test_a_server_that_hides_the_pointer_is_unavailable(lake: Lake):
    lake.create()
    with serve(lake.another_client()) as stub:
        stub.load_answer = lambda answer: answer | {"metadata-location": None}
        with pytest.raises(CatalogUnavailable, match="where the metadata"):
            await catalog({"type": "rest", "uri": stub.uri}).pointer(("db", "t"))


@pytest.mark.parametrize("through", ["sql", "rest"])
async def test_what_pyiceberg_cannot_parse_is_judged_by_us(lake: Lake, through: str):
    """Version 4 and inline manifests break pyiceberg's parser; our reason must come through instead."""
    table = lake.create()
    table.append(1)
    path = Path((await (await table.open()).head()).removeprefix("file://"))
    with serve(lake.another_client()) as stub:
        if through == "rest":
            real = json.loads(path.read_text())
            place = f"file:{path}"
            stub.load_answer = lambda answer: answer
            stub._load = lambda *_: (200, {"metadata-location": place, "metadata": real | {"format-version": 4}})
            lake.properties = {"type": "rest", "uri": stub.uri}
        path.write_text(path.read_text().replace('"format-version":2', '"format-version":4'))
        with pytest.raises(Refused) as caught:
            await (await table.open()).load()
        assert caught.value.code == "unsupported"


async def test_inline_manifests_are_read_and_their_expiry_is_skipped(lake: Lake):
    table = lake.create(**{"format-version": "1"})
    table.append(1)
    handle = await table.open()
    head = Path((await handle.head()).removeprefix("file://"))
    document = json.loads(head.read_text())
    snapshot = document["snapshots"][0]
    listed = table.refresh().current_snapshot().manifests(table.table.io)
    del snapshot["manifest-list"]
    snapshot["manifests"] = [one.manifest_path for one in listed]
    head.write_text(json.dumps(document))
    state = await handle.load()
    assert state.native.no_expiry is not None
    assert "inline" in state.native.no_expiry


async def test_who_writes_a_commit_depends_on_the_catalog(lake: Lake):
    assert await catalog(lake.properties).commit_style() is CommitStyle.CLIENT
    with serve(lake.another_client()) as stub:
        assert await catalog({"type": "rest", "uri": stub.uri}).commit_style() is CommitStyle.SERVER
    own = catalog({"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"})
    assert await own.commit_style() is CommitStyle.UNKNOWN


async def test_a_catalog_that_is_empty_is_not_filled_with_tables(tmp_path: Path):
    path = tmp_path / "empty.db"
    with pytest.raises(CatalogUnavailable):
        await catalog({"type": "sql", "uri": f"sqlite:///{path}"}).tables(None)
    assert not path.exists() or path.stat().st_size == 0


async def test_locations_include_tables_that_may_not_be_cleaned(lake: Lake):
    lake.create("plain")
    lake.create("frozen", **{"gc.enabled": "false"})
    broken = lake.create("broken")
    newer = lake.create("newer")
    for table, old, new in ((broken, "{", "}"), (newer, '"format-version":2', '"format-version":4')):
        path = Path(table.table.metadata_location.removeprefix("file://"))
        path.write_text(path.read_text().replace(old, new))
    ours = lake.format()
    found = await ours.locations()
    assert sorted(one.name for one in found) == ["broken", "frozen", "newer", "plain"]
    assert all(places[0].path.rstrip("/").endswith(one.name) for one, places in found.items())
    assert await ours.locations() == found
