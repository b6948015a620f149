"""pyiceberg's way to files: our stores, keys as they are, and no way to delete."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io
from tests.builders.iceberg import Lake, later
from tests.builders.stores import LocalStorage

from lakesweep.formats.iceberg.catalog import IcebergCatalog
from lakesweep.formats.iceberg.fileio import BRIDGE_PROPERTY, IMPLEMENTATION, Bridge, PointerFound
from lakesweep.formats.iceberg.metadata_source import CatalogSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.storage.local.store import LocalWriter


def bridge(*, writes: bool = True) -> Bridge:
    made = Bridge(LocalStorage(), LocalWriter() if writes else None, 10)
    made.attach()
    return made


@pytest.mark.parametrize("name", ["plain", "a#b", "a?b=c", "a%20b", "a b+c", "ü"])
async def test_keys_are_never_parsed(tmp_path: Path, name: str):
    made = bridge()
    files = load_file_io({"py-io-impl": IMPLEMENTATION, BRIDGE_PROPERTY: made})
    location = f"file://{tmp_path}/{name}"

    def work() -> bytes:
        with made.writing_below([Location.parse(str(tmp_path))]), files.new_output(location).create() as out:
            out.write(b"hello")
        assert files.new_output(location).exists()
        assert len(files.new_input(location)) == 5
        return files.new_input(location).open().read()

    assert await asyncio.to_thread(work) == b"hello"
    assert [path.name for path in tmp_path.iterdir()] == [name]


async def test_nothing_is_overwritten_unless_asked_and_nothing_is_ever_deleted(tmp_path: Path):
    made = bridge()
    files = load_file_io({"py-io-impl": IMPLEMENTATION, BRIDGE_PROPERTY: made})
    location = f"file://{tmp_path}/x"

    def write(*, overwrite: bool) -> None:
        with (
            made.writing_below([Location.parse(str(tmp_path))]),
            files.new_output(location).create(overwrite=overwrite) as out,
        ):
            out.write(b"x")

    await asyncio.to_thread(write, overwrite=False)
    with pytest.raises(FileExistsError):
        await asyncio.to_thread(write, overwrite=False)
    await asyncio.to_thread(write, overwrite=True)
    with pytest.raises(PermissionError, match="sweep"):
        files.delete(location)
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(files.new_input(f"{location}2").open)
    assert not await asyncio.to_thread(files.new_input(f"{location}2").exists)


async def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path):
    output = load_file_io({"py-io-impl": IMPLEMENTATION, BRIDGE_PROPERTY: bridge()}).new_output(f"file://{tmp_path}/x")

    def fail() -> None:
        with output.create() as out:
            out.write(b"half")
            raise ValueError("died")

    with pytest.raises(ValueError, match="died"):
        await asyncio.to_thread(fail)
    assert list(tmp_path.iterdir()) == []


async def test_the_pointer_is_the_answer_only_while_asked_for():
    made = bridge()
    files = load_file_io({"py-io-impl": IMPLEMENTATION, BRIDGE_PROPERTY: made})
    with made.pointer_only(), pytest.raises(PointerFound) as caught:
        files.new_input("file:/x/y.metadata.json")
    assert caught.value.location == "file:/x/y.metadata.json"
    assert files.new_input("file:/x").location == "file:/x"


async def test_a_process_that_only_reads_skips_the_expiry_of_a_client_side_catalog(tmp_path: Path):
    lake = Lake.make(tmp_path)
    table = lake.create()
    table.history()
    reading = IcebergCatalog("prod", lake.properties, LocalStorage(), writer=None)
    source = CatalogSource(catalog=reading, identifier=("db", "t"))
    ref = (await lake.format().tables())[0]
    handle = IcebergTable(ref, source, LocalStorage(), Location.parse(str(tmp_path)))
    plan = (await handle.load()).plan_expiry(CleanupPolicy(), later(days=60))
    assert plan.empty
    assert "only reads" in (plan.skipped or "")
    with pytest.raises(PermissionError):
        bridge(writes=False).write(f"file://{tmp_path}/x", b"", overwrite=False)


@pytest.mark.parametrize("roots", [(), ("acme",), ("acme", "umbrella/other")])
async def test_a_commit_writes_only_inside_the_roots_of_its_table(tmp_path: Path, roots: tuple[str, ...]):
    made = bridge()
    files = load_file_io({"py-io-impl": IMPLEMENTATION, BRIDGE_PROPERTY: made})

    def write() -> None:
        places = [Location.parse(f"{tmp_path}/{root}") for root in roots]
        with made.writing_below(places), files.new_output(f"file://{tmp_path}/umbrella/t/x").create() as out:
            out.write(b"x")

    with pytest.raises(Refused, match="outside the table's roots"):
        await asyncio.to_thread(write)
    assert list(tmp_path.iterdir()) == []
