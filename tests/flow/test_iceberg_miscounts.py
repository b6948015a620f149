"""Counts that writers get wrong stop no table whose manifests are proven whole, and hide no list that was cut."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import fastavro
import pytest
from tests.builders.iceberg import LakeTable
from tests.builders.iceberg_flow import clean, directory, plant
from tests.builders.iceberg_metadata_files import change, file

from lakesweep.formats import avro
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

RECENT = CleanupPolicy(max_snapshot_age=timedelta(days=1))


def promise(table: LakeTable, more: list[int]) -> None:
    """Summaries, oldest snapshot first, whose totals count that many files more than there are."""

    def edit(document: dict) -> None:
        for snapshot, extra in zip(document["snapshots"], more, strict=True):
            summary = snapshot["summary"]
            summary["total-data-files"] = str(int(summary["total-data-files"]) + extra)

    change(file(table.refresh().metadata_location), edit)


def lists(table: LakeTable) -> list[Path]:
    return [file(one.manifest_list) for one in table.refresh().metadata.snapshots]


def rewrite_list(path: Path, **changes: int) -> None:
    """The same list with other numbers in each row."""
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        schema, rows = reader.writer_schema, [{**row, **_added(row, changes)} for row in reader]
    with path.open("wb") as stream:
        fastavro.writer(stream, schema, rows, sync_interval=1)


def _added(row: dict, changes: dict[str, int]) -> dict:
    return {name: row[name] + more for name, more in changes.items()}


async def test_totals_that_are_too_high_ever_since_are_a_miscount(lake, bench):
    table = lake.create()
    table.history((1, 2, 3))
    promise(table, [0, 1, 1])
    orphan = plant(table, "data/orphan.parquet")
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert not orphan.exists()
    assert len(table.rows()) == 3


async def test_a_miscount_is_still_known_when_the_snapshot_before_has_expired(lake, bench):
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    table.overwrite(3)
    promise(table, [1] * len(table.snapshot_ids()))
    run = await clean(bench, table, RECENT)
    assert run.outcome is Outcome.DONE
    assert len(table.snapshot_ids()) == 1
    assert table.rows() == [{"id": 3, "name": "n3"}]


@pytest.mark.parametrize("more", [[0, 0, 1], [0, 1, 2], [1, 0, 0]])
async def test_a_shortfall_that_no_neighbour_shares_may_be_a_cut_list(lake, bench, more):
    table = lake.create()
    table.history((1, 2, 3))
    promise(table, more)
    orphan = plant(table, "data/orphan.parquet")
    run = await clean(bench, table)
    assert run.refusal.code == "indeterminate"
    assert "summary counts" in run.reason
    assert orphan.exists()


async def test_a_list_cut_at_a_block_end_is_found_beside_a_miscount(lake, bench):
    table = lake.create()
    table.history((1, 2, 3))
    promise(table, [1, 1, 1])
    newest = lists(table)[-1]
    rewrite_list(newest)
    data = newest.read_bytes()
    newest.write_bytes(data[: avro.walk(data).blocks[0].end + 16])
    files = lake.files()
    run = await clean(bench, table)
    assert run.refusal.code == "indeterminate"
    assert files <= lake.files()


@pytest.mark.parametrize("field", ["manifest_length", "added_files_count"])
async def test_manifests_recorded_with_a_wrong_length_or_count_stop_no_table(lake, bench, field):
    """As rewrite_table_path and some writers do. Too low a count is also below the summary's totals."""
    table = lake.create()
    table.history((1, 2, 3))
    for path in lists(table):
        rewrite_list(path, **{field: -1})
    orphan = plant(table, "data/orphan.parquet")
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE, run.reason
    assert not orphan.exists()
    assert [row["id"] for row in table.rows()] == [1, 2, 3]


async def test_a_manifest_with_wrong_length_and_count_stops_the_table(lake, bench):
    table = lake.create()
    table.history((1, 2))
    for path in lists(table):
        rewrite_list(path, manifest_length=-1, added_files_count=1)
    orphan = plant(table, "data/orphan.parquet")
    assert (await clean(bench, table)).refusal.code == "indeterminate"
    assert orphan.exists()


async def test_a_data_directory_that_is_a_symbolic_link_is_named_as_such(lake, bench):
    table = lake.create()
    table.append(1)
    data = directory(table) / "data"
    data.rename(directory(table).parent / "moved")
    data.symlink_to(directory(table).parent / "moved")
    run = await clean(bench, table)
    assert run.outcome is not Outcome.DONE
    assert "symbolic link" in run.reason
    assert str(data) in run.reason
