"""Real Airflow and Dagster run the integrations: in their own process, by a command, and through a running service.

Each has a virtualenv of its own, made from tests/peers/*.lock by the first test that needs it; AIRFLOW_PYTHON and
DAGSTER_PYTHON name another. They take a minute, so `make soak` runs them.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake, to_toml
from tests.peers.pinned import python_with
from tests.peers.ports import free_port
from tests.servers.daemon import Api, Place

# The first run makes each virtualenv: a minute on an idle machine, a quarter of an hour on a crowded one.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tests" / "peers"
REFUSED = "umbrella/d/two"


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "three", "four", "five"])
    lake.add("umbrella", ["two"], orphans=5, ceilings={"files": 4})
    return lake


@pytest.fixture
def place(lake, tmp_path):
    """The lake's settings file: a service works by it, and so do all commands and processes."""
    place = Place(
        directory=tmp_path, config=tmp_path / "lakesweep.toml", admin_port=free_port(), metrics_port=free_port()
    )
    sections = {
        "orphan_cleanup": {"dry_run": True},
        "logging": {"level": "error"},
        "admin": {"listen": f"127.0.0.1:{place.admin_port}"},
        "metrics": {"listen": f"127.0.0.1:{place.metrics_port}"},
    }
    place.config.write_text(to_toml(lake.settings(**sections)))
    return place


@pytest.fixture
def told(lake, place, tmp_path):
    """Runs a script of tests/peers there, beside a running service, and gives what it told of each case."""

    def run(name, script, cases):
        python = os.environ.get(f"{name.upper()}_PYTHON") or str(python_with(PEERS / f"{name}.lock"))
        token = place.token("*")
        command = tmp_path / "lakesweep"
        command.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -m lakesweep "$@"\n')
        command.chmod(0o755)
        (tmp_path / "beside").mkdir()  # the package itself, and not this environment's editable install
        (tmp_path / "beside" / "lakesweep").symlink_to(ROOT / "service" / "lakesweep")
        given = {
            "config": str(place.config),
            "command": str(command),
            "api": place.admin_url,
            "token": token,
            "borrowed": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
            "cases": cases,
        }
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path / "beside"),
            "ORCHESTRATOR_CASES": json.dumps(given),
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW_CONN_LAKESWEEP": json.dumps({"conn_type": "http", "password": token}),
        }
        place_of_dags = tmp_path / "airflow" / "dags"  # where Airflow looks for the DAG that is run
        place_of_dags.mkdir(parents=True)
        shutil.copy(PEERS / script, place_of_dags)
        if name == "airflow":
            migrate = [python, "-m", "airflow", "db", "migrate"]
            subprocess.run(migrate, env=environment, check=True, capture_output=True, timeout=600)
        with place.service() as api:
            settled(api.with_token(token), lake)
            words = [python, str(place_of_dags / script)]
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=800, check=False)
        log = done.stdout + done.stderr
        (tmp_path / "told.log").write_text(log)
        lines = [line for line in done.stdout.splitlines() if line.startswith("told ")]
        assert lines, log[-6000:]
        assert token not in log
        return json.loads(lines[-1].removeprefix("told ")), log

    return run


def settled(api: Api, lake: LocalLake) -> None:
    """Until the service has looked at every table once: while it does, a table is busy."""
    deadline = time.monotonic() + 120
    while True:
        tables = {one["table"]: one["last_run"] for one in api.get("/api/v1/tables")["tables"]}
        if set(tables) == set(lake.tables) and all(run and run["outcome"] for run in tables.values()):
            return
        assert time.monotonic() < deadline, tables
        time.sleep(0.2)


def left_in_xcom(home: Path) -> dict[tuple[str, str], str]:
    """What Airflow's own pages show of a task, by DAG and key."""
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        rows = database.execute("SELECT dag_id, key, value FROM xcom").fetchall()
    return {(dag, key): value.decode() if isinstance(value, bytes) else str(value) for dag, key, value in rows}


def test_airflow_cleans_a_lake_in_its_process_by_a_command_and_by_the_api(told, lake, place, tmp_path):
    operator, sensor = {"kind": "operator", "execute": True}, {"kind": "sensor", "place": "api"}
    never = {"after": "2999-01-01 00:00:00", "timeout": 1, "poke_interval": 0.2}
    cases = {
        "here": {**operator, "place": "here", "targets": ["acme/d/one"]},
        "command": {**operator, "place": "command", "targets": ["acme/d/three"]},
        "api": {**operator, "place": "api", "targets": ["acme/d/f*"]},
        "here_skip": {**operator, "place": "here", "targets": [REFUSED]},
        "here_fail": {**operator, "place": "here", "targets": [REFUSED], "on_refused": "fail"},
        "api_skip": {**operator, "place": "api", "targets": [REFUSED], "on_refused": "skip"},
        "api_fail": {**operator, "place": "api", "targets": [REFUSED], "on_refused": "fail"},
        "unknown": {**operator, "place": "api", "targets": ["acme/d/sixx"]},
        "waited": {**sensor, "table": "acme/d/four"},
        "waited_skip": {**sensor, "table": REFUSED, "on_refused": "skip"},
        "waited_fail": {**sensor, "table": REFUSED},
        "still_waiting": {**sensor, "table": "acme/d/four", **never},
    }
    ended, log = told("airflow", "airflow_dags.py", cases)
    assert {name: one["state"] for name, one in ended.items()} == {
        **dict.fromkeys(["here", "command", "api", "waited"], "success"),
        **dict.fromkeys(["here_skip", "api_skip", "waited_skip"], "skipped"),
        **dict.fromkeys(["here_fail", "api_fail", "waited_fail", "unknown", "still_waiting"], "failed"),
    }
    assert {label for label in lake.tables if lake.orphans_left(label)} == {REFUSED}
    lake.check_live()
    xcom = left_in_xcom(tmp_path / "airflow")
    refused = {dag for dag, key in xcom if key == "lakesweep_refused"}
    assert refused == {name for name in cases if name.endswith(("_skip", "_fail"))}
    assert all("ceilings.files" in xcom[name, "lakesweep_refused"] for name in refused)
    linked = {name for name, one in ended.items() if one["link"]}
    assert linked == {"api", "api_skip", "api_fail", "waited", "waited_skip", "waited_fail"}
    for name in linked:
        assert ended[name]["link"].startswith(f"{place.admin_url}/#")
    assert "Failed to push an xcom" not in log


def test_a_dagster_job_cleans_a_lake_and_a_check_measures_it(told, lake):
    clean, check = {"kind": "op", "execute": True}, {"kind": "check", "place": "here"}
    cases = {
        "too_much": {**check, "target": "acme/d/one"},
        "little": {**check, "target": "acme/d/one", "max_bytes": 10**9},
        "here": {**clean, "place": "here", "targets": ["acme/d/one"]},
        "clean_now": {**check, "target": "acme/d/one"},
        "command": {**clean, "place": "command", "targets": ["acme/d/three"]},
        "api": {**clean, "place": "api", "targets": ["acme/d/f*"]},
        "refused": {**clean, "place": "here", "targets": [REFUSED]},
        "refused_fails": {**clean, "place": "api", "targets": [REFUSED], "on_refused": "fail"},
        "check_refused": {**check, "target": REFUSED, "max_bytes": 10**9},
        "check_by_api": {**check, "place": "api", "target": "acme/d/four"},
    }
    ended, log = told("dagster", "dagster_jobs.py", cases)
    failed = {name for name, one in ended.items() if not one["state"]}
    # A table that is refused passes no check, whatever its limit.
    assert failed == {"too_much", "refused_fails", "check_refused"}, log[-4000:]
    assert "ceilings.files" in ended["refused_fails"]["why"]
    assert "ceilings.files" in ended["check_refused"]["why"]
    assert "refused: umbrella/d/two" in log
    assert {label for label in lake.tables if lake.orphans_left(label)} == {REFUSED}
    lake.check_live()
