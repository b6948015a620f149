"""Every recipe on the orchestrators page is run as it stands, on a small lake, with stand-ins for what is around it.
Only names of places are changed. Real Airflow and Dagster are in tests/interop/test_orchestrators.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.builders import stand_ins
from tests.builders.small_lake import LocalLake, to_toml

PAGE = (Path(__file__).parents[2] / "docs" / "orchestrators.md").read_text()


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["orders"])
    lake.add("umbrella", ["two"], ceilings={"files": 1})
    (tmp_path / "lakesweep.toml").write_text(to_toml(lake.settings(logging={"level": "error"})))
    for name, line in (("lakesweep", f'exec {sys.executable} -m lakesweep "$@"'), ("dbt", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    return lake


def block(title, language, place):
    """The block of a section, with this place's names in it."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", section, re.S | re.M)
    names = {"/etc/": f"{place}/", "/opt/lakesweep/bin/": f"{place}/", "/var/log/": f"{place}/", "acme/prod": "acme/d"}
    for written, here in names.items():
        text = text.replace(written, here)
    return text


def test_the_airflow_dag_cleans(lake, tmp_path):
    tasks = []

    class Task(stand_ins.Task):
        def __init__(self, **given):
            super().__init__(**given)
            tasks.append(self)

    class Dag:
        def __init__(self, name, schedule):
            self.name, self.schedule = name, schedule

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    names = {**stand_ins.AIRFLOW[3]["airflow.sdk"], "BaseOperator": Task, "DAG": Dag}
    with stand_ins.integration("airflow", {**stand_ins.AIRFLOW[3], "airflow.sdk": names}):
        exec(compile(block("Airflow", "python", tmp_path), "docs/orchestrators.md", "exec"), {})
        (task,) = tasks
        assert [one["outcome"] for one in task.execute(stand_ins.Pushed().context)] == ["done"]
    assert not lake.orphans_left("acme/d/orders")


def test_the_dagster_op_cleans_and_its_check_passes(lake, tmp_path):
    names = {
        "Failure": stand_ins.Fail,
        "Out": lambda kind: kind,
        "AssetCheckResult": SimpleNamespace,
        "op": lambda **_: lambda made: made,
        "asset_check": lambda **_: lambda made: made,
        "asset": lambda made: made,
    }
    log = SimpleNamespace(info=lambda text: None, warning=lambda *words: None)
    with stand_ins.integration("dagster", {"dagster": names}):
        made = {}
        exec(compile(block("Dagster", "python", tmp_path), "docs/orchestrators.md", "exec"), made)
        assert [one["outcome"] for one in made["clean"](SimpleNamespace(log=log))] == ["done"]
        assert made["waste"]().passed
    assert not lake.orphans_left("acme/d/orders")


def test_the_prefect_flow_cleans_and_names_a_refusal(lake, tmp_path, monkeypatch, capsys):
    prefect = ModuleType("prefect")
    prefect.flow = lambda made: made
    monkeypatch.setitem(sys.modules, "prefect", prefect)
    made = {}
    exec(compile(block("Prefect", "python", tmp_path), "docs/orchestrators.md", "exec"), made)
    made["clean"](["acme", "umbrella"], str(tmp_path / "lakesweep.toml"))
    assert capsys.readouterr().out.startswith("umbrella/d/two: ceiling_files: ")
    assert not lake.orphans_left("acme/d/orders")


@pytest.mark.parametrize(("title", "code"), [("dbt", 0), ("cron", 3)])
def test_the_lines_for_dbt_and_cron_clean_and_report_a_refusal(title, code, lake, tmp_path):
    line = re.sub(r"^[\d*/]+( [\d*/]+){4} +", "", block(title, "console", tmp_path))  # without cron's own fields
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(["sh", "-c", line], env=environment, check=False).returncode == code
    assert not lake.orphans_left("acme/d/orders")
    if title == "cron":
        tables = json.loads((tmp_path / "lakesweep.json").read_text())["tables"]
        assert {one["table"]: one["outcome"] for one in tables} == {
            "acme/d/orders": "done",
            "umbrella/d/two": "refused",
        }
