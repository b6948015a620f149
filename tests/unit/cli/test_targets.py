"""What the words on the command line name: never more than was meant, and never nothing without a word."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import load_catalog
from tests.builders.small_lake import LocalLake

from lakesweep.formats.delta.table import DeltaTable


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "two"])
    return lake


@pytest.mark.parametrize("command", [["plan"], ["run", "--execute"], ["compact-manifests"]])
def test_an_empty_target_names_no_table_instead_of_every_table(command, lake, call):
    code, _, told = call(*command, "")
    assert code == 2
    assert "an empty target matches no table" in told
    assert len(lake.orphans_left("acme/d/one")) == 3


@pytest.mark.parametrize("given", [["--root", "/somewhere"], ["--format", "paimon"], ["--root", ""]])
@pytest.mark.parametrize("target", [["acme/d/one"], []])
def test_what_is_for_locations_only_is_never_ignored(target, given, lake, call):
    code, _, told = call("plan", *target, *given)
    assert code == 2
    assert "--format and --root apply only to bare locations" in told


def test_an_empty_root_is_not_the_working_directory(lake, call):
    code, _, told = call("run", lake.directory("acme/d/one"), "--root", "", "--execute")
    assert code == 2
    assert "--root '' is not an address" in told
    assert len(lake.orphans_left("acme/d/one")) == 3


def test_an_unknown_table_is_reported_with_where_it_was_looked_for(call):
    assert call("plan", "acme/d/onne")[2] == (
        "lakesweep: no configured table matches 'acme/d/onne', and there is no such directory: did you mean "
        "'acme/d/one'? looked in acme/d; `lakesweep tables` lists what is there\n"
    )
    assert "configured datasets: acme/d" in call("plan", "acme/e/one")[2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tables"], "no dataset is configured; name a settings file"),
        (
            ["plan", "orders"],
            "no configured table matches 'orders', and there is no such directory: no dataset is configured",
        ),
        (["plan"], "nothing to do"),
        (["explain", "/lake/x.parquet"], "give the table as --target"),
    ],
)
def test_without_any_dataset_each_command_says_what_would_help(arguments, told, lake, call):
    lake.tenants.clear()
    code, _, error = call(*arguments)
    assert code == 2
    assert told in error


@pytest.mark.parametrize("command", [["plan"], ["run", "*", "--execute"]])
def test_a_dataset_whose_settings_are_at_fault_does_not_keep_the_others_back(command, lake, call):
    wrong = {"id": "wrong", "format": "iceberg", "catalog": {"type": "nosuch", "uri": "x"}}
    lake.tenants["acme"]["datasets"].insert(0, wrong)
    code, out, error = call(*command, "--json")
    assert code == 2
    assert {table["table"] for table in json.loads(out)["tables"]} == {"acme/d/one", "acme/d/two"}
    assert error.startswith("lakesweep: acme/wrong/*: the properties of catalog wrong")
    assert "nosuch" in error


@pytest.mark.parametrize(
    "command", [["tables"], ["plan"], ["run", "*", "--execute"], ["report"], ["report", "--fresh"]]
)
def test_a_dataset_without_tables_is_reported(command, lake, call, tmp_path):
    slip = {"id": "slip", "format": "delta", "location": f"{tmp_path}/lake/acme/tabels"}
    lake.tenants["acme"]["datasets"].append(slip)
    (tmp_path / "lake" / "acme" / "tabels").mkdir()
    code, out, error = call(*command, "--json")
    assert code == 0
    assert len(json.loads(out)["tables"]) == 2
    assert error == f"lakesweep: acme/slip: no tables found in {slip['location']}\n"


@pytest.mark.parametrize("command", [["plan"], ["explain"], ["plan", "acme/d/one", "--root"]])
@pytest.mark.parametrize("before", ["", "/"])
def test_what_cannot_be_looked_at_on_disk_is_no_bug(command, before, call):
    code, _, told = call(*command, f"{before}{'x' * 300}")
    assert code in (2, 4)
    assert "bug" not in told
    assert "Traceback" not in told


def test_a_dataset_is_not_called_empty_by_a_target_that_names_a_part_of_it(lake, call, tmp_path):
    slip = {"id": "slip", "format": "delta", "location": f"{tmp_path}/lake/acme/tabels"}
    lake.tenants["acme"]["datasets"].append(slip)
    (tmp_path / "lake" / "acme" / "tabels").mkdir()
    for target in ("acme/d", "acme/d/one", "acme/*/one", lake.directory("acme/d/one")):
        code, _, error = call("plan", target, "--json")
        assert (code, error) == (0, "")
    assert "acme/slip: no tables found" in call("plan", "acme/*", "--json")[2]


def test_a_tenant_without_tables_is_not_unknown(lake, call, tmp_path):
    lake.add("beta", [])
    for command in ("report", "plan", "tables"):
        code, _, error = call(command, "beta")
        assert (code, error) == (
            2,
            f"lakesweep: there are no tables in 'beta': looked in beta/d ({tmp_path}/lake/beta/tables)\n",
        )


READS_ALL = [["plan"], ["run", "*", "--execute"], ["tables"], ["report"], ["report", "--fresh"]]


@pytest.mark.parametrize("gone", ["lake/beta", "lake/beta/tables"])
@pytest.mark.parametrize("command", READS_ALL)
def test_a_dataset_whose_directory_is_gone_is_not_left_out(command, gone, lake, call, tmp_path):
    lake.add("beta", ["three"])
    (tmp_path / gone).rename(tmp_path / "not mounted")
    code, out, error = call(*command, "--json")
    assert code == 4
    tables = {table["table"]: table for table in json.loads(out)["tables"]}
    assert set(tables) == {"acme/d/one", "acme/d/two", "beta/d/*"}
    assert call(*command)[0] == 4
    assert "no tables found" not in error
    if command[0] == "report":
        assert tables["beta/d/*"]["why"]["code"] == "unreadable"
    (shown,) = [table for table in json.loads(call("tables", "--json")[1])["tables"] if table["table"] == "beta/d/*"]
    assert shown["problem"] == (
        f"`location` of beta/d is {tmp_path}/lake/beta/tables, but there is no such directory. Is a disk not mounted? "
        "Mount it, or correct the settings; if beta/d is new and has no tables yet, create the directory"
    )


@pytest.mark.parametrize("format", ["iceberg", "paimon"])
def test_a_tenant_whose_root_is_gone_is_not_left_out(format, lake, call, tmp_path):
    root = tmp_path / "lake" / "gamma"
    dataset = {"id": "d", "format": format}
    if format == "iceberg":
        dataset["catalog"] = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(root)}
        load_catalog("c", **dataset["catalog"])  # makes the catalog's own tables
    else:
        dataset["warehouse"] = str(root)
    lake.tenants["gamma"] = {"id": "gamma", "root": str(root), "datasets": [dataset]}
    for command in READS_ALL:
        assert call(*command)[0] == 4
    code, shown, _ = call("plan", "gamma")
    assert code == 4
    assert "there is no such directory. Is a disk not mounted?" in " ".join(shown.split())
    root.mkdir(parents=True)
    code, _, error = call("plan", "--json")
    assert code == 0
    assert "gamma/d: no tables found in " in error


def test_a_stop_needs_a_target_or_all_and_holds_until_it_is_resumed(call):
    assert call("stop")[0] == 2
    assert call("stop", "acme", "--all")[0] == 2
    assert call("stop", "nobody")[0] == 2
    assert "nothing is under way" in call("stop", "acme/d/one", "--reason", "wrong files")[1]
    assert call("stop", "--all")[0] == 0
    assert call("resume", "*")[0] == 0
    assert call("resume", "acme/d/one")[0] == 0


def test_what_is_paused_is_seen_and_a_wrong_scope_suggests_the_right_one(call):
    assert call("pause", "acme/d/one")[0] == 0
    paused = {table["table"]: table["paused"] for table in json.loads(call("tables", "--json")[1])["tables"]}
    assert paused == {"acme/d/one": True, "acme/d/two": False}
    assert "held" in call("tables")[1]
    code, _, told = call("resume", "acme")
    assert (code, told) == (2, "lakesweep: there is no hold 'acme'; held are: 'acme/d/one'\n")
    assert call("resume", "acme/d/one")[0] == 0
    assert "nothing is held" in call("resume", "acme/d/one")[2]


def test_lists_without_anything_say_of_what(call):
    assert call("audit", "verify")[1] == "there are no audit records yet\n"
    assert call("runs", "--table", "acme/d/onne")[1] == "no runs of acme/d/onne\n"


def test_a_plan_above_a_ceiling_names_the_run_to_approve(lake, call):
    lake.tenants["acme"]["orphan_cleanup"] = {"ceilings": {"files": 1}}
    code, shown, _ = call("run", "acme/d/one", "--execute")
    assert code == 3
    (run,) = json.loads(call("runs", "--json")[1])["runs"]
    assert f"`lakesweep approve {run['run_id']}` allows it" in shown
    assert call("approve", run["run_id"])[0] == 0


def test_a_run_that_never_was_is_reported_with_where_to_look(call):
    code, _, told = call("approve", "nosuch")
    assert (code, told) == (2, "lakesweep: there is no run 'nosuch': `lakesweep runs` shows them\n")


@pytest.mark.parametrize("command", [["plan"], ["run", "*", "--execute"], ["tables"]])
def test_a_bug_that_one_table_meets_does_not_keep_the_others_back(command, lake, call, monkeypatch):
    load = DeltaTable.load

    async def overflowing(table):
        if table.ref.name == "one":
            raise OverflowError("date value out of range")
        return await load(table)

    monkeypatch.setattr(DeltaTable, "load", overflowing)
    code, out, _ = call(*command, "--json")
    assert code == 4
    found = {table["table"]: table for table in json.loads(out)["tables"]}
    assert "unexpected OverflowError: date value out of range" in json.dumps(found["acme/d/one"])
    if command[0] == "run":
        assert (found["acme/d/one"]["outcome"], found["acme/d/two"]["outcome"]) == ("failed", "done")
