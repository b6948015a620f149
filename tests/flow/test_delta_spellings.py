"""A path that is spelled in two ways: whatever readers of the table still hold for live stays."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import LocalPlace, sweep
from tests.builders.iceberg import later

from lakesweep.model.run import Outcome


def _rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def _commit(root: Path, version: int, action: dict) -> None:
    (root / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action, ensure_ascii=False) + "\n")


def _add(root: Path, stored: str, spelled: str) -> dict:
    """Put a file there, as another writer would name it."""
    file = root / stored
    file.parent.mkdir(exist_ok=True)
    pq.write_table(_rows(7, 8), file)
    body = {"path": spelled, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
    return {"add": {**body, "dataChange": True}}


async def _clean(root: Path) -> None:
    bench = Bench(root=root.parent, clock=SetClock(later(days=40)), scratch=root.parent.parent / "scratch")
    run = (await sweep(LocalPlace(root), execute=True, bench=bench)).run
    assert run.outcome is Outcome.DONE, run.reason


def _read(root: Path) -> list[int]:
    return sorted(DeltaTable(str(root)).to_pyarrow_table()["n"].to_pylist())


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_a_removal_under_another_spelling_keeps_the_file(tmp_path, checkpointed):
    """Spark spells letters as they are; deltalake removes the same file with those letters encoded."""
    root = tmp_path / "lake" / "t"
    write_deltalake(str(root), _rows(1, 2))
    _commit(root, 1, _add(root, "d=é/x.parquet", "d=é/x.parquet"))
    if checkpointed:
        DeltaTable(str(root)).create_checkpoint()
    DeltaTable(str(root)).delete("n = 7")
    assert "d=%C3%A9/x.parquet" in (root / "_delta_log" / f"{2:020d}.json").read_text()
    before = _read(root)
    assert 7 in before
    await _clean(root)
    assert _read(root) == before


async def test_of_two_spellings_of_one_file_a_remove_takes_one_away(tmp_path):
    root = tmp_path / "lake" / "t"
    write_deltalake(str(root), _rows(1, 2))
    _commit(root, 1, _add(root, "d/x.parquet", "d//x.parquet"))
    _commit(root, 2, _add(root, "d/x.parquet", "d/x.parquet"))
    _commit(root, 3, {"remove": {"path": "d/x.parquet", "deletionTimestamp": 1, "dataChange": True}})
    before = _read(root)
    assert 7 in before
    await _clean(root)
    assert _read(root) == before
