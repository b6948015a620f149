"""What a format may remove by itself stays inside its own table, whatever it asks for."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.stores import GatedUnpublishedRemover, StorageSpec

from lakesweep.model.location import Location
from lakesweep.storage.registry import open_deleter

NOW = datetime.now(UTC)
LONG_AGO = (NOW - timedelta(days=9)).timestamp()


def at(path: Path) -> Location:
    return Location.parse(str(path))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A tenant with two tables; each has a file and an old empty directory."""
    for table in ("mine", "other"):
        (tmp_path / table / "k=1").mkdir(parents=True)
        (tmp_path / table / "unpublished").write_bytes(b"x")
        os.utime(tmp_path / table / "k=1", (LONG_AGO, LONG_AGO))
    return tmp_path


@pytest.fixture
def remover(lake: Path) -> GatedUnpublishedRemover:
    return GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), at(lake))


async def remove_all(remover: GatedUnpublishedRemover, lake: Path) -> set[str]:
    """Ask for everything in both tables, one by one; what is gone then."""
    before = set(lake.rglob("*"))
    for table in ("mine", "other"):
        await remover.remove_unpublished([at(lake / table / "unpublished").raw])
        for root in (lake, lake / table):
            await remover.remove_empty_directories(at(root), [at(lake / table / "k=1").raw])
    return {str(path.relative_to(lake)) for path in before - set(lake.rglob("*"))}


async def test_nothing_goes_before_it_is_known_which_table_it_is_for(remover, lake):
    assert await remover.empty_directories(at(lake / "mine"), NOW) == ()
    assert await remove_all(remover, lake) == set()


async def test_only_what_is_inside_the_tables_own_roots_goes(remover, lake):
    mine = remover.within((at(lake / "mine"),))
    assert await mine.empty_directories(at(lake / "other"), NOW) == ()
    assert await mine.empty_directories(at(lake), NOW) == ()
    assert await remove_all(mine, lake) == {"mine/unpublished", "mine/k=1"}


async def test_a_table_outside_the_tenants_root_is_left_alone(lake):
    remover = GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), at(lake / "other")).within(
        (at(lake / "mine"),)
    )
    assert await remover.empty_directories(at(lake / "mine"), NOW) == ()
    assert await remove_all(remover, lake) == set()


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_table_may_be_its_tenants_root(lake, slash):
    root = Location.parse(f"{lake / 'mine'}{slash}")
    remover = GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), at(lake / "mine")).within((root,))
    (found,) = await remover.empty_directories(root, NOW)
    assert found == at(lake / "mine" / "k=1").raw
    assert await remover.remove_empty_directories(root, [found]) == 1
