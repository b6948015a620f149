"""Rows that a worker writes to a store of ours, and reads back as its receipt says or not at all."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lakesweep.engines.spark.errors import WorkerFault
from lakesweep.engines.spark.scratch_objects import Receipt, fetching, open_scratch, storing
from lakesweep.engines.spark.worker_rows import packed
from lakesweep.model.location import Location
from lakesweep.storage.spec import Confine, StorageSpec

ROWS = [pa.record_batch({"x": pa.array([1, 2, 3])}), pa.record_batch({"x": pa.array([4])})]


@pytest.fixture
def store(tmp_path):
    place = Location.parse(str(tmp_path))
    return partial(open_scratch, StorageSpec(confine=Confine(places=(place,)))), place.join("read")


def written(store):
    (receipt,) = (row for batch in storing(*store)(iter(ROWS)) for row in batch.to_pylist())
    return Receipt(**receipt)


def fetched(store, receipt):
    work = fetching(*store, [receipt])
    numbers = iter([pa.record_batch({"id": pa.array([0], pa.int64())})])
    return [value for batch in work(numbers) for value in batch.column("x").to_pylist()]


def test_what_was_written_is_read(store):
    receipt = written(store)
    assert receipt.rows == 4
    assert fetched(store, receipt) == [1, 2, 3, 4]


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "other rows", "fewer rows"])
def test_what_is_not_what_was_written_fails_the_task(store, harm):
    receipt = written(store)
    file = Path(store[1].join(receipt.name).path)
    data = file.read_bytes()
    if harm == "gone":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(data[:-8])
    elif harm == "flipped":
        file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif harm == "other rows":
        file.write_bytes(packed(ROWS[1:]))
    else:
        receipt = receipt._replace(rows=5)
    with pytest.raises(WorkerFault, match=r"was deleted while|was modified after|rows, but 5 were written"):
        fetched(store, receipt)


def test_two_tries_of_one_task_never_write_one_object(store):
    assert written(store).name != written(store).name


def test_a_worker_writes_nowhere_but_to_scratch(store, tmp_path):
    open_store, _ = store
    with pytest.raises(WorkerFault, match="outside"):
        list(storing(open_store, Location.parse(str(tmp_path.parent / "elsewhere")))(iter(ROWS)))
    assert not (tmp_path.parent / "elsewhere").exists()
