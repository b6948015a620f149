"""Empty directories: only old ones, one by one, and none that vacuum does not look into."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders.delta import DeltaWriter, LocalPlace, days_ago, sweep

from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.run import Outcome

HIDDEN = ("_delta_log/_sidecars", "_tmp", "_tmp/k=1", ".stage/k=1", "k=9/_spill", "sub/.x")


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    made = LocalPlace(tmp_path / "lake" / "t")
    DeltaWriter(made, partition_columns=("_day",)).create(days_ago(40))
    return made


def make(place: LocalPlace, *names: str, days: float = 9) -> None:
    """Empty directories of that age, the levels above them included."""
    for name in names:
        (place.path / name).mkdir(parents=True, exist_ok=True)
    for name in names:
        for path in (place.path / name, *(place.path / name).parents):
            if place.path in path.parents:
                os.utime(path, (days_ago(days).timestamp(),) * 2)


def directories(place: LocalPlace) -> set[str]:
    return {str(path.relative_to(place.path)) for path in place.path.rglob("*") if path.is_dir()}


async def test_directories_that_have_long_been_empty_go_at_every_depth(place):
    make(place, "k=1/j=1", "k=1/j=2", "_change_data/k=1", "_day=1")
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert directories(place) == {"_delta_log"}


async def test_one_that_was_touched_within_the_retention_stays(place):
    make(place, "old", days=7.1)
    make(place, "young", days=6.9)
    await sweep(place, execute=True)
    assert directories(place) == {"_delta_log", "young"}


async def test_one_that_this_very_run_emptied_stays_for_a_while(place):
    place.put("k=1/orphan.parquet", b"", days_ago(30))
    swept = await sweep(place, execute=True)
    assert swept.data == {"k=1/orphan.parquet"}
    assert "k=1" in directories(place)


async def test_one_with_anything_in_it_stays_whatever_its_age(place):
    place.put("k=1/notes.txt", b"", days_ago(30))
    (place.path / "k=2").mkdir()
    (place.path / "k=2" / "link").symlink_to(place.path / "k=1")
    make(place, "k=1", "k=2")
    await sweep(place, execute=True)
    assert directories(place) >= {"k=1", "k=2"}


async def test_hidden_ones_and_the_log_stay(place):
    make(place, *HIDDEN)
    await sweep(place, execute=True)
    assert directories(place) >= set(HIDDEN)


@pytest.mark.parametrize("options", [DeltaOptions(vacuum_mode=VacuumMode.LITE), DeltaOptions(has_shallow_clones=True)])
async def test_only_a_full_vacuum_of_a_table_without_clones_looks_for_them(place, options):
    make(place, "k=1")
    await sweep(place, execute=True, options=options)
    assert "k=1" in directories(place)


async def test_a_dry_run_removes_none(place):
    make(place, "k=1")
    await sweep(place)
    assert "k=1" in directories(place)


def test_which_directories_are_data():
    layout = DeltaLayout(prefix="file:///t/", partition_columns=("_day",), iceberg_metadata=True)
    yes = ("k=1", "k=1/j=2/", "_day=1", "_change_data")
    no = ("", "_delta_log", "_delta_log/_sidecars", "metadata", "k=1/metadata", "_x", "a/.b", "a/_b/c", "_delta_index")
    assert [name for name in yes if not layout.is_data_directory(f"file:///t/{name}")] == []
    assert [name for name in no if layout.is_data_directory(f"file:///t/{name}")] == []
    assert not layout.is_data_directory("file:///t2/k=1")
