"""A bare location: which metadata file looks current, and that it stays a guess."""

from __future__ import annotations

import gzip

import pytest
from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats import registry
from lakesweep.formats.iceberg.metadata_source import BareSource
from lakesweep.formats.spec import Tools
from lakesweep.model.errors import Refused, SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.storage import memory

HOME = "memory://lake/wh/db/t"


@pytest.fixture(autouse=True)
def _fresh_bucket():
    memory.forget("lake")
    yield
    memory.forget("lake")


class Clock:
    """The registry hands it on; Iceberg asks nobody for the time."""


def put(*names: str, text: str = "{}") -> None:
    for name in names:
        key = Location.parse(f"{HOME}/{name}").path
        memory.bucket("lake").objects[key] = memory.Held(data=text.encode(), modified_at=None)


async def newest() -> str:
    source = BareSource(location=Location.parse(HOME), storage=memory.MemoryStorage())
    return (await source.pointer()).metadata_location.removeprefix(f"{HOME}/metadata/")


async def test_the_highest_version_wins_by_number_and_not_by_text():
    put("metadata/9-a.metadata.json", "metadata/00010-b.metadata.json", "metadata/v2.metadata.json")
    assert await newest() == "00010-b.metadata.json"


async def test_the_hint_wins_and_may_lag_behind():
    put("metadata/v1.metadata.json", "metadata/v2.metadata.json", "metadata/v3.gz.metadata.json")
    put("metadata/version-hint.text", text="2\n")
    assert await newest() == "v3.gz.metadata.json"


@pytest.mark.parametrize("text", ["00001-a.metadata.json", "00001-a"])
async def test_a_hint_may_name_the_file(text: str):
    put("metadata/00001-a.metadata.json", "metadata/00002-b.metadata.json")
    put("metadata/version-hint.text", text=text)
    assert await newest() == "00001-a.metadata.json"


async def test_a_hint_to_nothing_is_ignored():
    put("metadata/00001-a.metadata.json")
    put("metadata/version-hint.text", text="77")
    assert await newest() == "00001-a.metadata.json"


async def test_deeper_files_are_not_ours():
    put("metadata/00001-a.metadata.json", "metadata/old/00009-b.metadata.json")
    assert await newest() == "00001-a.metadata.json"


async def test_a_place_without_metadata_is_no_table():
    put("data/x.parquet")
    with pytest.raises(Refused, match=r"not_a_table: .* not an Iceberg table"):
        await newest()


async def test_the_registry_detects_formats_and_opens_iceberg_for_planning_only():
    table = MetadataTable(location=HOME)
    table.commit(table.path("data/a.parquet"), at_ms=1)
    address = table.write()
    table.files[address] = gzip.compress(table.files[address])
    table.store()
    for place in (HOME, address):
        opened = await registry.open_location(
            Location.parse(place), None, Tools(storage=memory.MemoryStorage(), clock=Clock()), Location.parse(HOME)
        )
        assert not opened.executable
        assert opened.ref.format is FormatName.ICEBERG
        assert len((await opened.load()).snapshots) == 1


async def test_a_place_of_no_known_format_says_what_was_looked_for():
    put("notes/x.txt")
    with pytest.raises(SettingsError, match="_delta_log"):
        await registry.open_location(Location.parse(HOME), None, Tools(storage=memory.MemoryStorage(), clock=Clock()))
