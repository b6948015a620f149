"""A place that is no table is told for what it is, and a table's place has one name however it is spelled."""

from __future__ import annotations

import json

import pytest
from tests.builders.small_lake import small_table, write_local

from lakesweep.cli.main import main


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments):
        code = main(list(map(str, arguments)))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (None, "there is no such directory"),
        ([], "is not a table: nothing is stored there"),
        ("a file", "is not a table but a file: give the directory of the table"),
        ([".hoodie/hoodie.properties", "a.parquet"], "is a Hudi table: Lakesweep cleans Iceberg, Paimon and Delta"),
        (["dt=1/a.parquet", "_SUCCESS"], "contains plain data files and no table's metadata"),
        (["notes.txt", "a.parquet"], "nothing is stored there in _delta_log/"),
    ],
)
def test_each_place_that_is_no_table_has_its_own_sentence(files, sentence, tmp_path, call):
    place = tmp_path / "place"
    if files == "a file":
        place.write_bytes(b"x")
    elif files is not None:
        place.mkdir()
    for name in files if isinstance(files, list) else ():
        (place / name).parent.mkdir(exist_ok=True, parents=True)
        (place / name).write_bytes(b"x")
    code, _, told = call("plan", place)
    assert code == 2
    assert sentence in told


def test_a_slash_at_the_end_makes_no_other_table(tmp_path, call):
    write_local(tmp_path / "t", small_table("t"))
    names = set()
    for spelling in (f"{tmp_path}/t", f"{tmp_path}/t/", f"file://{tmp_path}/t", f"file://{tmp_path}/t//"):
        (table,) = json.loads(call("plan", spelling, "--json")[1])["tables"]
        names.add(table["table"])
    assert len(names) == 1


def test_explain_takes_what_plan_takes(tmp_path, call, monkeypatch):
    write_local(tmp_path / "t", small_table("t"))
    monkeypatch.chdir(tmp_path)
    given = ("--target", tmp_path / "t", "--format", "delta", "--root", tmp_path, "--json")
    code, out, error = call("explain", "t/part-00000-live.parquet", *given)
    assert code == 0, error
    assert json.loads(out)["verdict"] == "live"
    assert call("explain", tmp_path / "t" / "x", "--target", tmp_path / "t", "--format", "paimon")[0] == 3
