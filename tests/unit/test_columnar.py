"""Parquet and ORC are decoded in a process of their own, which may end without taking anything with it."""

import io
import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.builders.bombs import parquet_of_one_text

from lakesweep.aio import working_for
from lakesweep.formats import bounds, columnar
from lakesweep.formats.bounds import TooMuch

ROWS = pa.table({"a": ["x", None, "z"], "b": pa.array([{"c": 1}, {"c": 2}, None])})


@pytest.fixture(autouse=True)
def fresh():
    columnar._end_all()
    columnar._idle.clear()
    yield
    columnar._end_all()
    columnar._idle.clear()


def written(table=ROWS, kind="parquet"):
    out = io.BytesIO()
    (orc if kind == "orc" else pq).write_table(table, out)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_what_comes_out_is_what_is_stored(kind):
    with columnar.opened(written(kind=kind), kind) as file:
        assert (file.rows, file.schema.names) == (3, ["a", "b"])
        assert file.read().equals(ROWS)
    with columnar.opened(written(ROWS[:0], kind), kind) as file:
        assert file.read().equals(ROWS[:0])


def test_a_process_leaves_ctrl_c_and_sigterm_to_the_one_that_started_it():
    with columnar.opened(written()) as file:
        assert file.rows == 3  # it has begun
        (worker,) = columnar._all
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker._process.pid, number)
        assert file.read().equals(ROWS)


def test_nested_columns_are_named_by_their_paths_and_chosen():
    with columnar.opened(written()) as file:
        assert file.paths == ["a", "b.c"]
        assert file.read(["b.c"]).column_names == ["b"]


def test_one_process_serves_file_after_file_damaged_ones_included():
    ids = set()
    for data in (written(), b"PAR1 and no more", written(), written()[:-9] + b"xPAR1"):
        try:
            with columnar.opened(data) as file:
                file.read()
        except ValueError:
            pass
        ids |= {worker._process.pid for worker in columnar._all}
    assert len(ids) == 1


def test_files_that_are_not_read_to_their_end_leave_nothing_for_the_next():
    many = pa.table({"a": [str(number) for number in range(200_000)]})
    with columnar.opened(written(many)) as file:
        next(file.batches())
    with columnar.opened(written(many)) as file:
        assert file.rows == 200_000
    with columnar.opened(written()) as file:
        assert file.read().equals(ROWS)


def test_a_dead_decoder_makes_its_file_unreadable_and_is_replaced():
    with columnar.opened(written()) as file:
        (worker,) = columnar._all
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(ValueError, match="has ended"):
            file.read()
    with columnar.opened(written()) as file:
        assert file.read().equals(ROWS)


def test_what_comes_out_has_an_allowance_in_all(monkeypatch):
    long = pa.table({"a": pa.array(["x" * 1000] * 1000).dictionary_encode()})
    monkeypatch.setattr(bounds, "_FREE", 100_000)
    with pytest.raises(TooMuch), columnar.opened(written(long)) as file:
        file.read()


def test_rows_beyond_what_the_footer_counts_are_damage(monkeypatch):
    whole = columnar.ColumnarFile.__init__

    def with_another_count(self, *args):
        whole(self, *args)
        self.rows += 1

    monkeypatch.setattr(columnar.ColumnarFile, "__init__", with_another_count)
    with pytest.raises(ValueError, match="its footer counts"), columnar.opened(written()) as file:
        file.read()


def test_the_process_has_limits_on_memory_and_processor_time():
    with columnar.opened(written()):
        (worker,) = columnar._all
        limits = Path(f"/proc/{worker._process.pid}/limits").read_text()
    for name in ("Max cpu time", "Max address space"):
        (line,) = (line for line in limits.splitlines() if line.startswith(name))
        assert line.removeprefix(name).split()[0].isdecimal(), line


def test_dictionaries_come_out_as_values_nested_ones_too():
    texts = pa.array(["x", "y", "x"])
    inner = pa.StructArray.from_arrays([texts.dictionary_encode()], ["c"])
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], texts.dictionary_encode())
    with columnar.opened(written(pa.table({"a": texts.dictionary_encode(), "b": inner, "d": lists}))) as file:
        found = file.read()
    assert found.schema.types == [pa.string(), pa.struct([("c", pa.string())]), pa.list_(pa.string())]
    assert found.schema.equals(file.schema)
    assert found.column("a").to_pylist() == ["x", "y", "x"]


def test_the_process_has_no_keys_in_its_environment(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    with columnar.opened(written()):
        (worker,) = columnar._all
        assert b"secret" not in Path(f"/proc/{worker._process.pid}/environ").read_bytes()


def test_one_that_takes_all_it_may_spoils_nothing_for_those_beside_it():
    failed, read = [], []

    def bomb():
        with pytest.raises(ValueError, match="MiB allowed"), columnar.opened(parquet_of_one_text("a")) as file:
            file.read()
        failed.append(True)

    def honest():
        with columnar.opened(written()) as file:
            read.append(file.read().equals(ROWS))

    threads = [threading.Thread(target=target) for target in (bomb, *[honest] * 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed
    assert read == [True] * 8


def test_a_tenant_that_holds_all_its_decoders_blocks_no_other_tenant():
    held, free, waiting = threading.Barrier(columnar._PER_TENANT + 1), threading.Event(), threading.Event()

    def hold():
        with working_for("hostile"), columnar.opened(written()):
            held.wait(60)
            free.wait(60)

    def queue():
        with working_for("hostile"), columnar.opened(written()):
            waiting.set()

    threads = [threading.Thread(target=hold) for _ in range(columnar._PER_TENANT)]
    for thread in threads:
        thread.start()
    held.wait(60)
    late = threading.Thread(target=queue)
    late.start()
    try:
        with working_for("acme"), columnar.opened(written()) as file:
            assert file.read().equals(ROWS)
        assert not waiting.is_set()
    finally:
        free.set()
        for thread in (*threads, late):
            thread.join(60)
    assert waiting.is_set()
