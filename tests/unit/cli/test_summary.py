"""Many tables and runs: one line each, filtered and sorted, on a narrow terminal too; and runs by short ids."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from tests.builders.reports import planned
from tests.builders.small_lake import LocalLake, to_toml
from tests.unit.cli import examples

from lakesweep.cleanup import report
from lakesweep.cli import lists, summary
from lakesweep.cli.main import main
from lakesweep.daemon import targets
from lakesweep.daemon.table_status import TableStatus
from lakesweep.model.errors import SettingsError
from lakesweep.model.files import Tally
from lakesweep.model.run import Restored
from lakesweep.state.memory import MemoryStateStore


def on_narrow_terminal(show, *values) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=80, force_terminal=True, no_color=True, markup=False, highlight=False), *values)
    return out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "two"], ceilings={"files": 5})
    lake.add("umbrella", ["virus"], orphans=9, ceilings={"files": 5})
    return lake


@pytest.fixture
def call(lake, tmp_path, capsys):
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings(logging={"level": "error"})))

    def run(*arguments):
        code = main([*map(str, arguments), "--config", str(file)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_several_plans_have_one_line_each_and_one_is_shown_in_full(call):
    code, out, _ = call("plan", "--sort", "deletable")
    assert code == 3
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["umbrella/d/virus", "acme/d/one", "acme/d/two"]
    assert lines[1].endswith("ceiling_files")
    assert "umbrella/d/virus: ceiling_files: the plan would delete 9 files" in out
    assert "verdict" not in out
    assert "3 tables, 1 refused, 15 files" in out
    code, out, _ = call("plan", "acme/d/one")
    assert (code, "verdict" in out) == (0, True)
    assert call("plan", "acme", "--details")[1].count("verdict") == 2


def test_several_runs_have_one_line_each_and_one_is_shown_in_full(call):
    code, out, _ = call("run", "*", "--execute", "--sort", "deleted")
    assert code == 3
    lines = [line.split() for line in out.splitlines()]
    assert [(line[1], line[-1]) for line in lines[1:4]] == [
        ("acme/d/one", "done"),
        ("acme/d/two", "done"),
        ("umbrella/d/virus", "ceiling_files"),
    ]
    assert "verdict" not in out
    assert f"`lakesweep approve {lines[3][0][:8]}` allows it" in out
    assert "3 tables, 1 refused, 15 files" in out
    assert call("run", "acme", "--details")[1].count("verdict") == 2
    assert "umbrella" not in call("run", "*", "--outcome", "dry_run")[1]
    assert "acme" not in call("run", "*", "--refused")[1]
    assert "no table has this outcome" in call("run", "acme", "--outcome", "failed")[1]
    assert "umbrella" not in call("plan", "--outcome", "dry_run")[1]


def test_only_refused_plans_are_shown_when_that_is_asked(call):
    code, out, _ = call("plan", "--refused")
    assert (code, "acme" in out, "REFUSED: ceiling_files" in out) == (3, False, True)
    assert "no table is refused" in call("plan", "acme", "--refused")[1]


def test_tables_and_runs_are_filtered_by_target_outcome_and_refusal(call):
    call("plan")
    assert "umbrella" not in call("tables", "acme")[1]
    refused = call("tables", "--refused")[1]
    assert "umbrella/d/virus" in refused
    assert "acme" not in refused
    by_waste = call("tables", "--sort", "deletable")[1].splitlines()
    assert by_waste[1].startswith("umbrella/d/virus")
    assert call("tables", "acne")[0] == 2

    def tables_of(*words):
        return [run["table"] for run in json.loads(call("runs", "--json", *words)[1])["runs"]]

    assert tables_of("--refused") == tables_of("--outcome", "refused") == ["umbrella/d/virus"]
    assert sorted(tables_of("acme")) == ["acme/d/one", "acme/d/two"]
    assert tables_of("--sort", "deletable")[0] == "umbrella/d/virus"
    assert tables_of("acme/*/one", "--limit", "1") == ["acme/d/one"]
    assert "no runs of acne" in call("runs", "acne")[1]


def test_the_beginning_of_an_id_approves_a_run(call):
    call("plan")
    (run,) = json.loads(call("runs", "--refused", "--json")[1])["runs"]
    assert call("approve", "0000")[0] == 2
    code, out, err = call("approve", run["run_id"][:8])
    assert (code, err) == (0, "")
    assert "umbrella/d/virus" in out
    assert call("run", "umbrella", "--execute")[0] == 0
    newest = json.loads(call("runs", "--json")[1])["runs"][0]["run_id"]
    assert "end: done, 9 deleted" in call("audit", "show", newest[:6])[1]


async def test_a_beginning_that_several_runs_have_names_them_and_none_is_taken():
    state = MemoryStateStore(clock=None)
    for run_id in ("abcd1" + "0" * 27, "abcd2" + "0" * 27, "abcd"):
        await state.start_run(replace(examples.planned(), id=run_id))
    assert await targets.whole_run_id(state, "abcd") == "abcd"
    assert await targets.whole_run_id(state, "abcd1") == "abcd1" + "0" * 27
    assert await targets.whole_run_id(state, "zzzz") == "zzzz"
    with pytest.raises(SettingsError, match="give 4 letters or more"):
        await targets.whole_run_id(state, "abc")
    await state.start_run(replace(examples.planned(), id="abcd1" + "f" * 27))
    with pytest.raises(SettingsError, match=f"several runs begin with 'abcd1'.*(?s:.)*abcd1{'0' * 27}"):
        await targets.whole_run_id(state, "abcd1")


def test_nothing_important_breaks_on_a_terminal_of_eighty_columns():
    ref = replace(examples.REF, tenant="production", name="customer_orders_by_day")
    runs = [planned(10**13, 10**12, table=ref, id="0123456789abcdef" * 2), examples.refused("ceiling_new_place", "no")]
    documents = [report.run_document(run) for run in runs]
    status = TableStatus(ref=ref, location="s3://" + "x" * 90, problem=None, last_run=documents[0], paused=True)
    for lines, words in (
        (on_narrow_terminal(summary.show_plans, runs, None), ("10.0 TiB", "931.3 GiB", "ceiling_new_place")),
        (on_narrow_terminal(summary.show_runs, runs, None), ("01234567", "10.0 TiB", "dry_run", "ceiling_new_place")),
        (
            on_narrow_terminal(lists.show_runs, documents),
            ("01234567", "10.0 TiB", "d ", "dry_run", "ceiling_new_place"),
        ),
        (on_narrow_terminal(lists.show_tables, [status, status]), ("10.0 TiB", "dry_run, held", "iceberg")),
    ):
        assert all(len(line) <= 80 for line in lines)
        for word in words:
            assert any(word in line for line in lines), (word, lines)
    assert any("s3://" + "x" * 90 in line for line in on_narrow_terminal(lists.show_tables, [status]))


def test_a_restore_looks_like_one_in_the_list_of_runs():
    restored = Restored(of="r0", restored=Tally(files=2, bytes=2048))
    document = report.run_document(replace(examples.done(), plan=None, restored=restored))
    assert any("restored" in line for line in on_narrow_terminal(lists.show_runs, [document]))
    assert not any("restored" in line for line in on_narrow_terminal(lists.show_runs, [document | {"restored": None}]))


def test_no_listing_is_said_and_so_is_why_there_was_one(call):
    first = json.loads(call("run", "acme/d/one", "--execute", "--no-listing", "--json")[1])["tables"][0]
    assert (first["outcome"], first["listed"]) == ("done", True)
    assert first["listed_because"] == "it has not been listed in this place before"
    code, told, _ = call("plan", "acme/d/one", "--no-listing", "--json")
    (second,) = json.loads(told)["tables"]
    assert (code, second["listed"], second["listed_because"]) == (0, False, None)
    assert second["last_listed_at"] == first["last_listed_at"]
    shown = call("plan", "acme/d/one", "--no-listing")[1]
    assert "not listed: unreferenced and missing files wait" in shown
    assert "not a name that the format writes" not in shown, "a zero would say that there are no such files"
    assert "not a name that the format writes" in call("plan", "acme/d/one")[1]
