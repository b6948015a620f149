"""Every place with a log below a dataset's location is a table, and nothing else is."""

from __future__ import annotations

import pytest
from tests.builders.cycles import SetClock
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace

from lakesweep.formats.delta.format import DeltaFormat
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import Denied, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage import memory
from lakesweep.storage.memory import MemoryStorage


def _format(location: str | None) -> DeltaFormat:
    spec = DatasetSpec(
        tenant=TenantId("acme"),
        tenant_root=Location.parse("memory://x/"),
        dataset="bronze",
        format=FormatName.DELTA,
        location=Location.parse(location) if location else None,
    )
    return DeltaFormat(spec, Tools(storage=MemoryStorage(), clock=SetClock(NOW)))


def _lake(*tables: str) -> str:
    """A bucket with tables at these places, and their address."""
    first = MemoryPlace(prefix="bronze")
    for name in tables:
        DeltaWriter(MemoryPlace(first.bucket, f"bronze/{name}".rstrip("/"))).create()
    return first.location.raw


async def test_every_child_with_a_log_is_a_table_at_any_depth():
    location = _lake("orders", "sales/eu", "sales/us")
    formats = _format(location)
    refs = await formats.tables()
    assert [ref.name for ref in refs] == ["orders", "sales/eu", "sales/us"]
    assert [ref.label for ref in refs][1] == "acme/bronze/sales/eu"
    state = await (await formats.open(refs[1])).load()
    assert state.location.raw == f"{location}/sales/eu"
    assert (await formats.locations())[refs[0]] == (Location.parse(f"{location}/orders/"),)


async def test_the_location_itself_may_be_a_table():
    formats = _format(_lake(""))
    refs = await formats.tables()
    assert [ref.name for ref in refs] == ["."]
    assert (await (await formats.open(refs[0])).load()).location.name == "bronze"


async def test_a_directory_without_commits_is_no_table():
    place = MemoryPlace(prefix="bronze")
    place.put("x/_delta_log/_last_checkpoint", b"{}", NOW)
    place.put("y/part-0.parquet", b"", NOW)
    place.put("_delta_log_of_old/00000000000000000000.json", b"", NOW)
    assert await _format(place.location.raw).tables() == []


async def test_a_table_in_a_hidden_directory_is_not_ours():
    assert [ref.name for ref in await _format(_lake("t", ".trash/t", "t/_backup/u", "_old")).tables()] == ["t"]


async def test_what_is_in_the_tables_is_never_listed():
    location = _lake("orders", "sales/eu")
    place = MemoryPlace(Location.parse(location).authority, "bronze")
    place.put("orders/day=1/part-0.parquet", b"", NOW)
    place.put("loose/part-0.parquet", b"", NOW)
    asked: list[tuple[str, str]] = []
    memory.bucket(place.bucket).faults = lambda *call: asked.append(call)
    assert [ref.name for ref in await _format(location).tables()] == ["orders", "sales/eu"]
    assert {name for call, name in asked if call == "list"} == {
        f"{location}/{table}/_delta_log" for table in ("orders", "sales/eu")
    }
    looked = {name.removeprefix(location) for call, name in asked if call == "directories"}
    assert looked == {"", "/orders", "/sales", "/sales/eu", "/loose"}


async def test_half_a_discovery_is_none():
    location = _lake("a", "b/c")

    def deny(operation: str, address: str) -> None:
        if address.endswith("/b"):
            raise Denied(address, "no")

    memory.bucket(Location.parse(location).authority).faults = deny
    with pytest.raises(Denied):
        await _format(location).tables()


async def test_a_neighbour_with_a_longer_name_is_another_dataset():
    location = _lake("orders")
    DeltaWriter(MemoryPlace(Location.parse(location).authority, "bronze2/t")).create()
    assert [ref.name for ref in await _format(location).tables()] == ["orders"]


async def test_a_table_of_another_dataset_is_unknown():
    ref = TableRef(tenant=TenantId("other"), dataset="bronze", name="t", format=FormatName.DELTA)
    with pytest.raises(UnknownTable):
        await _format(_lake("t")).open(ref)


def test_a_dataset_without_a_location_is_a_settings_error():
    with pytest.raises(SettingsError, match="needs a location"):
        _format(None)
