"""Plans that stay in memory read as those in Parquet do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sim import plan_files

from lakesweep.cleanup import plan_file
from lakesweep.model.errors import Unreadable

ROWS = pa.RecordBatch.from_pylist(
    [
        {
            "path": f"s3://lake/t/{number}.parquet",
            "size_bytes": number,
            "modified_at": None if number % 3 else datetime(2026, 1, 1, tzinfo=UTC),
            "etag": f"e{number}",
            "kind": "data",
            "reason": "unreferenced",
            "stage": number // 4,
        }
        for number in range(10)
    ],
    schema=plan_file.PLAN_SCHEMA,
)


@pytest.fixture(params=["parquet", "memory"])
def written(request, monkeypatch, tmp_path):
    if request.param == "memory":
        monkeypatch.setattr(plan_file, "pq", plan_files)
    path = str(tmp_path / "plans" / "plan.parquet")
    with plan_file.PlanWriter(path) as writer:
        for first in (0, 3, 4):
            writer.write(ROWS.slice(first, 3 if first != 3 else 1) if first != 4 else ROWS.slice(4))
    yield path, writer.digest
    plan_files.forget()


def test_rows_come_back_as_they_were_written(written):
    path, digest = written
    assert pa.Table.from_batches(plan_file.read_rows(path)).to_pylist() == ROWS.to_pylist()
    assert plan_file.digest(path) == digest


@pytest.mark.parametrize(("start", "size"), [(0, 10), (2, 3), (9, 5), (10, 1)])
def test_a_page_holds_the_rows_that_were_asked_for(written, start, size):
    expected = plan_file.candidates(ROWS.slice(start, size))
    assert plan_file.read_page(written[0], start, size) == expected
    with Path(written[0]).open("rb", buffering=0) as file:
        assert plan_file.read_page(file, start, size) == expected


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_are_cut_by_size_and_stage(written, size):
    path, digest = written
    assert [one for some in plan_file.read_batches(path, 1, size) for one in some] == plan_file.candidates(
        ROWS.slice(1)
    )
    cuts = [cut for cuts in plan_file.read_cut(path, size, digest) for cut in cuts]
    assert all(cut.num_rows <= size and len(cut.column("stage").unique()) == 1 for cut in cuts)
    assert pa.Table.from_batches(cuts).to_pylist() == ROWS.to_pylist()


def test_a_file_that_was_cut_short_is_no_plan(written):
    with Path(written[0]).open("r+b") as file:
        file.truncate(5)
    with pytest.raises(Unreadable):
        plan_file.digest(written[0])
