"""Names and features that other writers of Delta tables use: what the log proves dead goes, the rest stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, sweep

from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.run import Outcome

TRINO = "20260101_101010_00001_abcde-11111111-2222-3333-4444-{:012d}"


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


@pytest.mark.parametrize("mode", list(VacuumMode))
@pytest.mark.parametrize("checkpointed", [False, True])
async def test_what_an_expired_remove_names_goes_whatever_its_ending(place, checkpointed, mode):
    """Trino gives its files no ending. A stranger's file of such a name stays, and so does a young one."""
    dead, young, live, rewritten = map(TRINO.format, range(4))
    writer = DeltaWriter(place)
    writer.create(days_ago(29))
    writer.add(dead, young, live, rewritten, at=days_ago(28))
    writer.remove(dead, rewritten, at=days_ago(20))
    writer.remove(young, at=days_ago(2))
    place.put(rewritten, b"written again, not yet committed", NOW)
    place.put(TRINO.format(9), b"a stranger's", days_ago(28))
    if checkpointed:
        writer.tombstones.clear()
        writer.checkpoint(at=days_ago(1))
    swept = await sweep(place, execute=True, options=DeltaOptions(vacuum_mode=mode))
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {dead}
    assert not (await sweep(place, options=DeltaOptions(vacuum_mode=mode))).data


@pytest.mark.parametrize("name", ["_hidden", ".hidden", "_delta_log/note"])
async def test_a_hidden_name_stays_even_if_an_expired_remove_names_it(place, name):
    writer = DeltaWriter(place)
    writer.create(days_ago(29))
    writer.add(name, "b.parquet", at=days_ago(28))
    writer.remove(name, at=days_ago(20))
    assert not (await sweep(place, execute=True)).data
    assert name in place.names()


@pytest.mark.parametrize("spelled", ["./a.parquet", "x/../a.parquet", "%2E/a.parquet"])
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
async def test_a_path_with_dots_keeps_the_file_that_it_means(place, spelled, removed, checkpointed):
    writer = DeltaWriter(place)
    writer.create(days_ago(29))
    writer.add("b.parquet", at=days_ago(28))
    place.put("a.parquet", b"data", days_ago(28))
    place.put("orphan.parquet", b"", days_ago(28))
    writer.commit([{"add": writer.added("", spelled=spelled)}], days_ago(28))
    if removed:
        gone = {"path": spelled, "dataChange": True, "deletionTimestamp": int(days_ago(2).timestamp() * 1000)}
        writer.commit([{"remove": gone}], days_ago(2))
    if checkpointed:
        writer.checkpoint(at=days_ago(1))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {"orphan.parquet"}
    assert "a.parquet" in place.names()


async def test_an_empty_newest_commit_says_what_to_do(place):
    writer = DeltaWriter(place)
    writer.create(days_ago(29))
    writer.log(f"{1:020d}.json", b"", days_ago(1))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.FAILED
    assert f"{1:020d}.json: it is empty" in swept.run.reason
    assert "backup" in swept.run.reason


@pytest.mark.parametrize(
    "feature",
    [
        *("inCommitTimestamp-preview", "icebergWriterCompatV1", "icebergWriterCompatV3"),
        *("collations", "geospatial"),
    ],
)
async def test_features_that_change_nothing_about_files_are_not_refused(place, feature):
    writer = DeltaWriter(place, features=("appendOnly", feature))
    writer.create(days_ago(29))
    writer.add("a.parquet", at=days_ago(28))
    place.put("orphan.parquet", b"", days_ago(28))
    swept = await sweep(place)
    assert swept.run.outcome is Outcome.DRY_RUN, swept.run.reason
    assert swept.data == {"orphan.parquet"}
