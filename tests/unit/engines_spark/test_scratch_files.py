"""Files that workers write to a shared directory: only what a receipt says is taken."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesweep.engines.spark.errors import WorkerFault
from lakesweep.engines.spark.scratch_files import Filed, accept, filing
from lakesweep.engines.spark.worker_rows import READ_SCHEMA, SKIPPED, STAND_IN, remark


def stand_in(number):
    row = dict.fromkeys(READ_SCHEMA.names) | {"role": STAND_IN, "inside": True, "outside": False, "print": number}
    return pa.RecordBatch.from_pylist([row], schema=READ_SCHEMA)


def filed(directory, batches):
    work = filing(str(directory), lambda _: iter(batches))
    return [Filed(**row) for batch in work(iter([])) for row in batch.to_pylist()]


def test_only_files_with_a_receipt_are_taken(tmp_path):
    filed(tmp_path / "new", [stand_in(1)])  # a try whose task was lost
    receipts = filed(tmp_path / "new", [stand_in(1), remark(SKIPPED), stand_in(2)])
    assert sorted(receipt.rows for receipt in receipts) == [1, 2]
    assert accept(receipts, tmp_path / "new", tmp_path / "read") == 3
    parts = sorted((tmp_path / "read").iterdir())
    assert sorted(pq.read_table(part).column("role").to_pylist() for part in parts) == [["skipped"], [STAND_IN] * 2]


def test_a_file_that_is_gone_or_another_is_not_counted(tmp_path):
    gone, other, kept = (filed(tmp_path / "new", [stand_in(number)])[0] for number in range(3))
    (tmp_path / "new" / gone.name).unlink()
    receipts = [gone, other._replace(rows=5), kept]
    assert accept(receipts, tmp_path / "new", tmp_path / "read") == 1


def test_no_rows_are_no_file(tmp_path):
    assert filed(tmp_path / "new", [stand_in(1).slice(0, 0)]) == []


def test_scratch_that_cannot_be_written_fails_the_task_with_one_sentence(tmp_path):
    (tmp_path / "new").write_text("no directory")
    with pytest.raises(WorkerFault, match="scratch cannot be written"):
        filed(tmp_path / "new", [stand_in(1)])
