"""Both sides of a plan, compared by fingerprint in workers: what is on one side only, and that nothing gets lost."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.engines.spark import scratch_files, sides
from lakesweep.engines.spark.errors import WorkerFault
from lakesweep.engines.spark.sides import (
    HELD_ROWS,
    INSIDE,
    LISTED,
    LISTED_ROWS,
    REFERENCED,
    REFERENCES,
    STOOD_IN,
    STOOD_IN_ROWS,
)

SMALLEST, LARGEST = -(2**63), 2**63 - 1
SOME = st.lists(st.sampled_from([SMALLEST, SMALLEST + 1, -1, 0, 1, 2**32, -(2**32), 2**62, LARGEST]), max_size=12)


def blocks_of(prints, marks, inside=None, buckets=16):
    columns = {"print": pa.array(prints, pa.int64())}
    if inside is not None:
        columns["inside"] = pa.array(inside, pa.bool_())
    return list(sides.dividing(marks, buckets)(iter([pa.record_batch(columns)])))


def by_task(batches, tasks=3):
    """Rows as Spark deals them out: all of a bucket to one task."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    for task in range(tasks):
        mine = [row for row in rows if row["bucket"] % tasks == task]
        yield pa.RecordBatch.from_pylist(mine, schema=sides._BLOCK_SCHEMA)


def compared(batches):
    found = {mark: [] for mark in (LISTED, INSIDE, *sides.NUMBERS)}
    for task in by_task(batches):
        for batch in sides.comparing()(iter([task])):
            for row in batch.to_pylist():
                found[row["marks"]].append(row["print"])
    return found


@given(listed=SOME, held=SOME, stood_in=SOME, outside=SOME)
def test_what_is_on_one_side_only_is_found_and_everything_is_counted(listed, held, stood_in, outside):
    inside = [True] * len(stood_in) + [False] * len(outside)
    found = compared(
        blocks_of(listed, LISTED)
        + blocks_of(held, REFERENCED, [True] * len(held))
        + blocks_of(stood_in + outside, REFERENCED | STOOD_IN, inside)
    )
    assert sorted(found[LISTED]) == sorted(set(listed) - set(held + stood_in + outside))
    assert sorted(found[INSIDE]) == sorted(set(held + stood_in) - set(listed))
    assert sum(found[LISTED_ROWS]) == len(listed)
    assert sum(found[HELD_ROWS]) == len(held)
    assert sum(found[STOOD_IN_ROWS]) == len(stood_in + outside)
    assert sum(found[REFERENCES]) == len(set(held + stood_in + outside))


def test_many_fingerprints_in_several_parts_are_divided_evenly(monkeypatch):
    monkeypatch.setattr(sides, "_DIVIDED_AT_ONCE", 1000)
    prints = np.random.default_rng(1).integers(SMALLEST, LARGEST, 10_000)
    batches = [pa.record_batch({"print": pa.array(part)}) for part in np.split(prints, 20)]
    blocks = list(sides.dividing(LISTED, 8)(iter(batches)))
    assert len(blocks) == 10
    sizes = [len(block) // 8 for batch in blocks for block in batch.column("prints").to_pylist()]
    assert (sum(sizes), max(sizes) < 200) == (10_000, True)
    assert sorted(compared(blocks)[LISTED]) == sorted(prints.tolist())


@pytest.mark.parametrize("harm", ["flipped", "cut", "empty", "another"])
def test_a_block_that_is_not_what_was_written_fails_the_task(harm):
    (batch,) = blocks_of([1, 2, 3], REFERENCED, [True] * 3, buckets=1)
    (row,) = batch.to_pylist()
    data = row["prints"]
    changed = {"flipped": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-8], "empty": b"", "another": bytes(len(data))}
    row["prints"] = changed[harm]
    with pytest.raises(WorkerFault, match="was modified after it was written"):
        list(sides.comparing()(iter([pa.RecordBatch.from_pylist([row], schema=batch.schema)])))


def test_a_fingerprint_without_a_value_fails_the_task():
    with pytest.raises(pa.ArrowInvalid):
        blocks_of([1, None], LISTED)


@given(unkept=st.sets(st.integers(SMALLEST, LARGEST), max_size=30), others=st.lists(st.integers(SMALLEST, LARGEST)))
def test_only_unkept_rows_are_chosen(unkept, others):
    rows = [sides.compared({LISTED: np.array(sorted(unkept), np.int64), REFERENCED: np.array(others, np.int64)})]
    left = unkept - set(others)
    choose = sides.Unkept(lambda: iter(rows), len(left))
    asked = [*others, *unkept]
    assert choose(pa.array(asked, pa.int64())).to_pylist() == [one in left for one in asked]


def test_unkept_fingerprints_that_got_lost_fail_the_task():
    rows = [sides.compared({LISTED: np.array([1, 2], np.int64)})]
    with pytest.raises(WorkerFault, match="2 unreferenced fingerprints, not 3"):
        sides.Unkept(lambda: iter(rows), 3)


def filed(directory, batches):
    work = scratch_files.filing(str(directory), lambda _: iter(batches))
    (receipt,) = (row for batch in work(iter([])) for row in batch.to_pylist())
    return directory / receipt["name"]


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Three row groups."""
    monkeypatch.setattr(scratch_files, "CHUNK_ROWS", 2)
    rows = [pa.record_batch({"print": pa.array([n, n + 1]), "path": [f"a{n}", f"b{n}"]}) for n in (1, 3, 5)]
    return filed(tmp_path, rows)


def test_rows_are_chosen_by_their_fingerprints_where_they_are_read(part):
    asked = []

    def choosing():
        return lambda prints: asked.append(prints.to_pylist()) or pa.array([one == 4 for one in prints.to_pylist()])

    work = scratch_files.fetching([part], ["path"], choosing)
    found = list(work(iter([pa.record_batch({"id": [0]})])))
    assert [batch.to_pylist() for batch in found] == [[{"path": "b3"}]]
    assert asked == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped"])
def test_a_part_that_is_gone_or_damaged_fails_the_task(part, harm):
    data = part.read_bytes()
    at = data.index((3).to_bytes(8, "little"))
    changed = {"cut": data[: len(data) // 2], "flipped": data[:at] + b"\x07" + data[at + 1 :]}
    part.unlink() if harm == "gone" else part.write_bytes(changed[harm])
    load = partial(scratch_files.loaded, [part], ["print"])
    with pytest.raises(WorkerFault, match=r"was deleted while|cannot be read"):
        list(load())
