"""A plan on disk is whole, ordered and read back exactly, or it is not read at all."""

from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesweep.cleanup import plan_file
from lakesweep.model.errors import Indeterminate, Unreadable
from lakesweep.model.files import Reason

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def row(number, *, stage=0, **changes):
    return {
        "path": f"s3://b/t/{number:06d}",
        "size_bytes": number,
        "modified_at": AT + timedelta(milliseconds=number),
        "etag": f"e{number}" if number % 2 else None,
        "kind": "data",
        "reason": "unreferenced",
        "stage": stage,
        **changes,
    }


def batch(rows):
    return pa.RecordBatch.from_pylist(rows, schema=plan_file.PLAN_SCHEMA)


def write(path, *batches):
    with plan_file.PlanWriter(str(path)) as plan:
        for rows in batches:
            plan.write(batch(rows))
    return plan.digest


def read(path, start=0, size=1000):
    return [one for rows in plan_file.read_batches(str(path), start, size) for one in rows]


def cut(path):
    return list(plan_file.read_cut(str(path), 10, plan_file.digest(str(path))))


def test_candidates_come_back_as_they_were_written(tmp_path):
    rows = [row(1), row(2, modified_at=None), row(3, stage=1, reason="expired", kind="manifest")]
    write(tmp_path / "deep" / "plan.parquet", rows)
    found = read(tmp_path / "deep" / "plan.parquet")
    assert [vars_of(one) for one in found] == rows
    assert found[2].reason is Reason.EXPIRED


def vars_of(candidate):
    return {name: getattr(candidate, name) for name in plan_file.PLAN_SCHEMA.names}


@settings(deadline=None, max_examples=30)
@given(count=st.integers(0, 40), start=st.integers(0, 50), size=st.integers(1, 15), cut=st.integers(1, 40))
def test_reading_starts_at_any_row_and_gives_full_batches(tmp_path_factory, count, start, size, cut):
    path = tmp_path_factory.mktemp("plan") / "plan.parquet"
    rows = [row(number) for number in range(count)]
    write(path, *(rows[at : at + cut] for at in range(0, count, cut)))
    batches = list(plan_file.read_batches(str(path), start, size))
    assert [vars_of(one) for some in batches for one in some] == rows[start:]
    assert all(len(some) == size for some in batches[:-1])


@settings(deadline=None, max_examples=30)
@given(
    stages=st.lists(st.integers(0, 2), max_size=40).map(sorted),
    size=st.integers(1, 15),
    cut=st.integers(1, 40),
    at_once=st.integers(1, 50),
)
def test_columns_are_cut_by_size_and_then_at_every_stage(tmp_path_factory, stages, size, cut, at_once):
    path = tmp_path_factory.mktemp("plan") / "plan.parquet"
    rows = [row(number, stage=stage) for number, stage in enumerate(stages)]
    digest = write(path, *(rows[at : at + cut] for at in range(0, len(rows), cut)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_file, "_ROW_GROUP", at_once)
        found = [some.to_pylist() for cuts in plan_file.read_cut(str(path), size, digest) for some in cuts]
    full = [rows[at : at + size] for at in range(0, len(rows), size)]
    assert found == [list(same) for some in full for _, same in groupby(some, key=itemgetter("stage"))]


def test_a_path_that_is_no_text_is_not_cut_but_refused(tmp_path):
    path = tmp_path / "plan.parquet"
    bad = pa.array([b"s3://b/t/\xff"], pa.binary()).view(pa.string())
    rows = batch([row(1)]).set_column(0, plan_file.PLAN_SCHEMA.field("path"), bad)
    pq.write_table(pa.Table.from_batches([rows]), path)
    with pytest.raises(Unreadable, match="damaged"):
        cut(path)


@pytest.mark.parametrize("moment", [-62_135_596_800_001, 253_402_300_800_000, 2**62])
def test_a_time_that_is_no_date_is_not_cut_but_refused(tmp_path, moment):
    path = tmp_path / "plan.parquet"
    at = plan_file.PLAN_SCHEMA.get_field_index("modified_at")
    field = plan_file.PLAN_SCHEMA.field(at)
    rows = batch([row(1)]).set_column(at, field, pa.array([moment], pa.int64()).cast(field.type))
    pq.write_table(pa.Table.from_batches([rows]), path)
    with pytest.raises(Unreadable, match="not a date"):
        cut(path)


def test_a_reason_that_nobody_knows_is_not_cut_but_refused(tmp_path):
    path = tmp_path / "plan.parquet"
    write(path, [row(1), row(2, reason="because")])
    with pytest.raises(Unreadable, match="because"):
        cut(path)


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_the_digest_does_not_depend_on_batches(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("plan")
    rows = [row(number) for number in range(30)]
    digests = set()
    for cut in cuts:
        digests.add(write(folder / "plan.parquet", *(rows[at : at + cut] for at in range(0, 30, cut))))
        digests.add(plan_file.digest(str(folder / "plan.parquet")))
    assert len(digests) == 1


def test_a_plan_file_that_was_replaced_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "plan.parquet"
    digest = write(path, [row(1)])
    check = plan_file._digest

    def exchanged_once_checked(plan):
        found = check(plan)
        write(path, [row(2)])
        return found

    monkeypatch.setattr(plan_file, "_digest", exchanged_once_checked)
    (rows,) = plan_file.read_checked(str(path), digest)
    assert rows.to_pylist() == [row(1)]
    with pytest.raises(Unreadable, match="do not match"):
        list(plan_file.read_checked(str(path), digest))


@pytest.mark.parametrize(
    "change",
    [
        {"path": "s3://b/t/000001x"},
        {"size_bytes": 9},
        {"modified_at": None},
        {"etag": None},
        {"etag": ""},
        {"kind": "x"},
        {"reason": "expired"},
        {"stage": 1},
    ],
)
def test_every_column_counts_in_the_digest(tmp_path, change):
    assert write(tmp_path / "a", [row(1)]) != write(tmp_path / "b", [row(1, **change)])


def test_texts_cannot_be_shifted_between_columns_without_changing_the_digest(tmp_path):
    one = write(tmp_path / "a", [row(1, etag="ab", kind="c")])
    assert one != write(tmp_path / "b", [row(1, etag="a", kind="bc")])
    assert write(tmp_path / "a", [row(1, etag=None)]) != write(tmp_path / "b", [row(1, etag="")])
    assert write(tmp_path / "a", [row(1, etag=None)]) != write(tmp_path / "b", [row(1, etag="-")])


def test_a_name_that_spells_the_fields_behind_it_is_another_name(tmp_path):
    """Keys may have line breaks in them."""

    def digest(path, size, modified_ms, etag):
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=modified_ms)
        return write(tmp_path / "plan", [row(1, path=path, size_bytes=size, modified_at=moment, etag=etag)])

    assert digest("s3://b/t/a", 1, 2, "3\n4\ne") != digest("s3://b/t/a\n1\n2", 3, 4, "e")


def test_rows_out_of_order_or_listed_twice_are_refused_and_leave_no_file(tmp_path):
    for batches in ([[row(2), row(1)]], [[row(1), row(1)]], [[row(1)], [row(1)]], [[row(1, stage=1)], [row(2)]]):
        with pytest.raises(Indeterminate):
            write(tmp_path / "plan.parquet", *batches)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_former_plan(tmp_path):
    path = tmp_path / "plan.parquet"
    write(path, [row(1)])
    with pytest.raises(Indeterminate):
        write(path, [row(2)], [row(2)])
    assert [one.size_bytes for one in read(path)] == [1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.parquet"]


def test_an_empty_plan_is_a_plan(tmp_path):
    write(tmp_path / "plan.parquet")
    assert read(tmp_path / "plan.parquet") == []


def test_every_cut_of_a_plan_is_noticed(tmp_path):
    path = tmp_path / "plan.parquet"
    write(path, [row(number) for number in range(50)])
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(Unreadable):
            read(path)


def test_a_flipped_byte_never_gives_other_rows(tmp_path):
    path = tmp_path / "plan.parquet"
    digest = write(path, [row(number) for number in range(200)])
    whole = path.read_bytes()
    for at in range(4, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            found = plan_file.digest(str(path))
        except Unreadable:
            continue
        assert found == digest or at > len(whole) * 0.5  # only the footer has no checksum: the digest tells


def test_a_missing_plan_and_another_file_are_unreadable(tmp_path):
    with pytest.raises(Unreadable):
        read(tmp_path / "nothing")
    pq.write_table(pa.table({"path": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(Unreadable):
        read(tmp_path / "other.parquet")
