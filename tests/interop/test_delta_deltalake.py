"""Tables written by deltalake: it reads the same rows before and after a cycle, and what it takes for live is kept.

The product runs some days later, by its own clock: then removes have expired and files are old.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.builders.delta import LocalPlace, Swept, sweep
from tests.peers.delta_reader import rebuild

from lakesweep.model.run import Outcome

SPECIAL = ["a b", "e:f", "100%", "x/y", "ü", "#1", "k=v", "+", "%3A", "", "_hidden", ".dot"]
DAYS_LATER = 45


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _rows(*numbers: int, key: str = "k") -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "k": pa.array([key] * len(numbers), pa.string())})


def _write(place: LocalPlace, rows: pa.Table, **more) -> None:
    write_deltalake(str(place.path), rows, mode=more.pop("mode", "append"), **more)


def _content(place: LocalPlace, version: int | None = None) -> list[dict]:
    table = DeltaTable(str(place.path), version=version)
    rows = table.to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (str(row["k"]), row["n"]))


def _live(place: LocalPlace) -> set[str]:
    """What deltalake takes for live: its URIs are raw paths."""
    uris = DeltaTable(str(place.path)).file_uris()
    return {uri.removeprefix("file://").removeprefix(f"{place.path}/") for uri in uris}


async def _clean(place: LocalPlace, *, days: float = DAYS_LATER, execute: bool = True) -> Swept:
    return await sweep(place, now=datetime.now(UTC) + timedelta(days=days), execute=execute)


def plain(place: LocalPlace) -> None:
    for number in range(6):
        _write(place, _rows(number))
    DeltaTable(str(place.path)).delete("n = 3")


def partitioned(place: LocalPlace) -> None:
    for number, value in enumerate(SPECIAL):
        _write(place, _rows(number, number + 100, key=value), partition_by=["k"])
    table = DeltaTable(str(place.path))
    table.delete("n >= 100")
    table.create_checkpoint()
    _write(place, _rows(500, key="late"), partition_by=["k"])


def overwritten(place: LocalPlace) -> None:
    for number in range(4):
        _write(place, _rows(number), mode="overwrite")
    DeltaTable(str(place.path)).create_checkpoint()
    _write(place, _rows(9), mode="overwrite")


def change_data(place: LocalPlace) -> None:
    _write(place, _rows(1, 2, 3), configuration={"delta.enableChangeDataFeed": "true"})
    table = DeltaTable(str(place.path))
    table.update(predicate="n = 2", updates={"n": "20"})
    table.delete("n = 3")


def merged(place: LocalPlace) -> None:
    _write(place, _rows(1, 2, 3))
    merge = DeltaTable(str(place.path)).merge(_rows(2, 4), "s.n = t.n", source_alias="s", target_alias="t")
    merge.when_matched_update({"k": "'merged'"}).when_not_matched_insert_all().execute()


def optimized(place: LocalPlace) -> None:
    for number in range(8):
        _write(place, _rows(number))
    table = DeltaTable(str(place.path))
    table.optimize.compact()
    table.create_checkpoint()
    _write(place, _rows(99))


def restored(place: LocalPlace) -> None:
    for number in range(5):
        _write(place, _rows(number))
    DeltaTable(str(place.path)).delete()
    DeltaTable(str(place.path)).create_checkpoint()
    DeltaTable(str(place.path)).restore(2)


def checkpointed_often(place: LocalPlace) -> None:
    for number in range(25):
        _write(place, _rows(number), configuration={"delta.checkpointInterval": "5"} if number == 0 else None)


def logs_compacted(place: LocalPlace) -> None:
    for number in range(9):
        _write(place, _rows(number))
    table = DeltaTable(str(place.path))
    table.compact_logs(0, 5)
    table.create_checkpoint()
    _write(place, _rows(10))


ZOO = [plain, partitioned, overwritten, change_data, merged, optimized, restored, checkpointed_often, logs_compacted]


@pytest.mark.parametrize("build", ZOO)
async def test_the_same_rows_are_read_before_and_after(place: LocalPlace, build: Callable[[LocalPlace], None]):
    build(place)
    rows, live = _content(place), _live(place)
    assert live == rebuild(place.path)
    swept = await _clean(place)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert not swept.data & live
    assert live <= place.names()
    assert _content(place) == rows
    assert _live(place) == live
    assert not (await _clean(place)).names


@pytest.mark.parametrize("build", ZOO)
async def test_everything_that_is_not_live_is_gone_in_the_end(place: LocalPlace, build: Callable[[LocalPlace], None]):
    build(place)
    await _clean(place)
    left = {name for name in place.names() if not name.startswith("_delta_log/")}
    assert left == _live(place)


@pytest.mark.parametrize("build", ZOO)
async def test_time_travel_inside_the_retention_still_works(place: LocalPlace, build: Callable[[LocalPlace], None]):
    build(place)
    versions = {version: _content(place, version) for version in range(DeltaTable(str(place.path)).version() + 1)}
    swept = await _clean(place, days=6)
    assert not swept.names
    assert {version: _content(place, version) for version in versions} == versions


@pytest.mark.parametrize("build", ZOO)
async def test_deltalakes_own_light_vacuum_never_finds_what_we_keep(
    place: LocalPlace, build: Callable[[LocalPlace], None]
):
    """A second opinion: what its log-only dry run would delete at zero retention, ours deletes after the retention."""
    build(place)
    table = DeltaTable(str(place.path))
    theirs = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    ours = await _clean(place, execute=False)
    assert set(theirs) <= ours.data


async def test_a_table_goes_on_after_its_log_was_cleaned(place: LocalPlace):
    checkpointed_often(place)
    swept = await _clean(place)
    assert swept.log
    _write(place, _rows(1000))
    table = DeltaTable(str(place.path))
    table.create_checkpoint()
    assert table.version() == 25
    assert len(_content(place)) == 26
    assert (await _clean(place)).run.outcome is Outcome.DONE
    assert len(_content(place)) == 26


async def test_files_of_a_writer_that_has_not_committed_yet_stay(place: LocalPlace):
    plain(place)
    place.put("part-uncommitted.parquet", b"", datetime.now(UTC))
    assert not (await _clean(place, days=6, execute=False)).names
    assert "part-uncommitted.parquet" in (await _clean(place, days=8, execute=False)).names
