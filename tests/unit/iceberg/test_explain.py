"""Why a file stays, in sentences."""

from __future__ import annotations

import pytest
from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats.iceberg.metadata_source import BareSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage import memory

REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.ICEBERG)


@pytest.fixture(autouse=True)
def _fresh_bucket():
    memory.forget("lake")
    yield
    memory.forget("lake")


async def test_explain_names_snapshots_refs_and_roles():
    table = MetadataTable()
    ids = [table.commit(table.path(f"data/{name}.parquet"), at_ms=index) for index, name in enumerate("abc")]
    table.tag("v1", ids[0])
    stats = table.add_statistics(ids[0])
    first = table.write()
    table.write()
    table.store()
    storage = memory.MemoryStorage()
    place = Location.parse(table.location)
    handle = IcebergTable(REF, BareSource(location=place, storage=storage), storage, place)
    state = await handle.load()

    async def sentences(path: str) -> str:
        return "; ".join(await state.explain(Location.parse(path)))

    manifest = await sentences(table.manifests[ids[0]][0].path)
    assert f"manifest of snapshot {ids[0]}" in manifest
    assert "held by tag v1" in manifest
    assert f"snapshot {ids[2]}" in manifest, "later snapshots share it"
    assert "current metadata file" in await sentences(state.head)
    assert "metadata log" in await sentences(first)
    assert f"statistics of snapshot {ids[0]}" in await sentences(stats)
    assert "manifest list of" in await sentences(table.snapshots[0]["manifest-list"])
    assert "version hint" in await sentences(table.path("metadata/version-hint.text"))
    assert await sentences(table.path("data/nothing.parquet")) == ""


async def test_a_manifest_of_many_snapshots_needs_no_sentence_for_each():
    table = MetadataTable()
    table.commit(table.path("data/a.parquet"), at_ms=0)
    for index in range(1, 40):
        table.commit(at_ms=index)
    table.write()
    table.store()
    storage = memory.MemoryStorage()
    place = Location.parse(table.location)
    handle = IcebergTable(REF, BareSource(location=place, storage=storage), storage, place)
    first = table.manifests[1001][0].path
    found = await (await handle.load()).explain(Location.parse(first))
    assert len(found) == 21
    assert "20 older snapshots" in found[-1]
