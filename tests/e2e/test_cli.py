"""The command line as a person or a script uses it: a process of its own, on a small real lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from datetime import datetime
from pathlib import Path

import pytest
from tests.builders.small_lake import to_toml
from tests.peers.ports import free_port

from lakesweep.cli.demo import iceberg
from lakesweep.cli.demo import lake as demo_lake


def lakesweep(*arguments, env=None, cwd=None):
    command = [sys.executable, "-m", "lakesweep", *map(str, arguments)]
    environment = {**os.environ, "NO_COLOR": "1", **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=cwd, check=False)


def documents(done):
    return {table["table"]: table for table in json.loads(done.stdout)["tables"]}


@pytest.fixture
def lake(tmp_path):
    return demo_lake.build(tmp_path / "lake")


@pytest.fixture
def config(lake, tmp_path):
    """The lake's settings as an operator would write them."""
    return write_config(lake.settings, tmp_path)


def write_config(settings, tmp_path):
    path = tmp_path / "lakesweep.toml"
    path.write_text(to_toml({"service": {"data_dir": str(tmp_path / "state")}, **settings}))
    return path


def test_plan_prints_the_whole_contract_and_changes_nothing(lake, config):
    before = lake.size()
    done = lakesweep("plan", "acme/shop/orders", "--json", "--config", config)
    assert done.returncode == 0, done.stderr
    orders = documents(done)["acme/shop/orders"]
    assert orders["format"] == "iceberg"
    assert orders["location"].startswith("file:///")
    assert set(orders["verdicts"]) == {"live", "young", "reserved", "foreign", "orphan"}
    assert set(orders["expire"]) >= {"snapshots", "partitions", "kept"}
    assert all(isinstance(snapshot, str) for snapshot in orders["expire"]["snapshots"])
    assert orders["orphans"]["count"] == len(orders["orphans"]["files"]) == orders["verdicts"]["orphan"]
    assert orders["orphans"]["bytes"] == sum(one["size_bytes"] for one in orders["orphans"]["files"])
    for one in orders["orphans"]["files"]:
        assert set(one) == {"path", "size_bytes", "modified_at", "kind", "reason"}
        assert one["reason"] in ("unreferenced", "expired")
        assert datetime.fromisoformat(one["modified_at"]).tzinfo is not None
    assert orders["missing"] == {"count": 0, "files": [], "unverified": 0}
    assert orders["engine"]["kind"] == "inprocess"
    assert orders["refused"] is None
    planted = {f"file://{path}" for path in lake.planted["acme/shop/orders"]}
    unreferenced = {one["path"] for one in orders["orphans"]["files"] if one["reason"] == "unreferenced"}
    assert unreferenced == planted
    assert lake.size() == before


def test_run_deletes_only_with_execute_and_a_second_run_finds_nothing(lake, config):
    before = lake.size()
    dry = lakesweep("run", "acme/*", "--json", "--config", config)
    assert dry.returncode == 0, dry.stderr
    assert {table["outcome"] for table in documents(dry).values()} == {"dry_run"}
    assert all(table["deleted"]["count"] == 0 for table in documents(dry).values())
    assert lake.size() == before

    rows = lake.rows()
    done = lakesweep("run", "acme/*", "--execute", "--json", "--config", config)
    assert done.returncode == 0, done.stderr
    orders = documents(done)["acme/shop/orders"]
    assert orders["outcome"] == "done"
    assert orders["expired_snapshots"]
    assert orders["deleted"]["count"] == sum(orders["deleted"]["by_kind"].values()) > 0
    assert set(orders) >= {"run_id", "started_at", "finished_at", "already_gone", "failed", "kept", "missing", "reason"}
    assert lake.rows() == rows

    again = documents(lakesweep("run", "acme/*", "--execute", "--json", "--config", config))
    assert all(table["deleted"]["count"] == 0 and not table["expired_snapshots"] for table in again.values())

    runs = json.loads(lakesweep("runs", "--json", "--config", config).stdout)["runs"]
    assert len(runs) == 6
    assert {run["run_id"] for run in runs} >= {orders["run_id"]}


def test_a_refused_table_has_exit_code_3_and_the_others_are_still_cleaned(lake, config):
    done = lakesweep("run", "globex", "--execute", "--json", "--config", config)
    tables = documents(done)
    assert done.returncode == 3
    assert tables["globex/iot/damaged"]["outcome"] == "refused"
    assert tables["globex/iot/damaged"]["missing"]["count"] == 1
    assert tables["globex/iot/sensors"]["outcome"] == "done"
    planted = documents(lakesweep("plan", "globex/iot/damaged", "--json", "--config", config))["globex/iot/damaged"]
    assert planted["refused"]["code"] == "missing_live_files"
    assert planted["orphans"]["count"] == 1


def test_a_bare_iceberg_location_can_be_planned_but_not_executed(lake, tmp_path):
    location = lake.root / "acme/shop/customers"
    env = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
    plan = lakesweep("plan", location, "--json", env=env)
    assert plan.returncode == 0, plan.stderr
    (table,) = json.loads(plan.stdout)["tables"]
    assert table["location"] == f"file://{location}"
    assert table["orphans"]["count"] == 2
    before = lake.size()
    run = lakesweep("run", location, "--execute", "--json", env=env)
    assert run.returncode == 3
    (table,) = json.loads(run.stdout)["tables"]
    assert table["outcome"] == "refused"
    assert "catalog" in table["reason"]
    assert lake.size() == before


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "file://{}/"])
def test_a_location_may_be_spelled_in_any_way(lake, tmp_path, spelling):
    target = spelling.format(lake.root / "acme/shop/customers")
    done = lakesweep("plan", target, "--json", env={"XDG_STATE_HOME": str(tmp_path / "xdg")})
    (table,) = json.loads(done.stdout)["tables"]
    assert table["orphans"]["count"] == 2
    assert table["missing"]["count"] == 0


def test_a_tenants_own_dry_run_stands_over_execute(lake, config):
    config.write_text(config.read_text().replace('id = "acme"', 'id = "acme"\norphan_cleanup = { dry_run = true }'))
    before = lake.size()
    done = lakesweep("run", "acme/shop/orders", "--execute", "--json", "--config", config)
    assert documents(done)["acme/shop/orders"]["outcome"] == "dry_run"
    assert lake.size() == before


def test_unknown_tables_and_bad_settings_have_exit_code_2(config, tmp_path):
    done = lakesweep("plan", "acme/shop/nosuch", "--config", config)
    assert done.returncode == 2
    assert "acme/shop/nosuch" in done.stderr
    bad = tmp_path / "bad.toml"
    bad.write_text('[orphan_cleanup]\ngrace_period_hours = 1\nbatchsize = 5\n[engine]\nkind = "flink"\n')
    done = lakesweep("plan", "--config", bad)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for fault in ("grace_period_hours", "batchsize", "engine.kind", "flink"):
        assert fault in done.stderr
    assert lakesweep("plan", "--config", tmp_path / "missing.toml").returncode == 2


def test_an_unreachable_catalog_has_exit_code_4_and_the_others_go_on(lake, tmp_path):
    away = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}"}
    settings = lake.settings
    settings["tenants"][1]["datasets"].append({"id": "away", "format": "iceberg", "catalog": away})
    config = write_config(settings, tmp_path)
    done = lakesweep("run", "globex", "--execute", "--json", "--config", config)
    tables = documents(done)
    assert done.returncode == 4
    assert tables["globex/away/*"]["outcome"] == "failed"
    assert "127.0.0.1" in tables["globex/away/*"]["reason"]
    assert tables["globex/iot/sensors"]["outcome"] == "done"


def test_unreachable_storage_has_exit_code_4_and_a_sentence(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(f'[storage.s3]\nendpoint_url = "http://127.0.0.1:{free_port()}"\npath_style = true\n')
    env = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_STATE_HOME": str(tmp_path / "xdg"),
    }
    done = lakesweep("plan", "s3://lake/t", "--config", config, env=env)
    assert done.returncode == 4
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_names_what_keeps_a_file_and_from_when_another_may_go(lake, config):
    orders = iceberg.load(lake.root, "acme/shop/orders")
    live = next(Path(task.file.file_path.removeprefix("file://")) for task in orders.scan().plan_files())
    kept = lakesweep("explain", live, "--config", config)
    assert kept.returncode == 0, kept.stderr
    assert "live" in kept.stdout
    assert "branch main" in kept.stdout
    young = lake.root / "acme/shop/orders/data/00000-4-running-job-0.parquet"
    waits = lakesweep("explain", young, "--config", config)
    assert "deletable from" in waits.stdout
    orphan = lake.planted["acme/shop/orders"][0]
    goes = lakesweep("explain", orphan, "--config", config)
    assert "orphan" in goes.stdout
    outside = lakesweep("explain", "/nowhere/x.parquet", "--config", config)
    assert outside.returncode == 2


def test_tables_lists_what_catalogs_and_warehouses_know(lake, config):
    done = lakesweep("tables", "--json", "--config", config)
    assert done.returncode == 0, done.stderr
    names = {table["table"] for table in json.loads(done.stdout)["tables"]}
    assert names == {table.label for table in lake.tables}


def test_compact_manifests_merges_once_and_refuses_other_formats(lake, tmp_path):
    fixtures = Path(__file__).parents[3] / "shared" / "fixtures" / "paimon-java-tables.tar.gz"
    if not fixtures.exists():
        pytest.skip("the tables written by Java Paimon are not here")
    name = "append_table_with_multiple_file_format"
    with tarfile.open(fixtures) as tables:
        tables.extractall(tmp_path, filter="data")
    table = tmp_path / "paimon" / f"{name}.db" / name
    env = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
    first, second = (lakesweep("compact-manifests", table, env=env) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.rstrip().endswith(": merged")
    assert second.stdout.rstrip().endswith(": nothing to merge")
    assert len(list((table / "snapshot").glob("snapshot-*"))) == 3
    refused = lakesweep("compact-manifests", lake.root / "acme/shop/customers", env=env)
    assert refused.returncode == 3
    assert "Paimon" in refused.stderr


def test_a_paused_table_is_planned_but_not_executed_until_it_is_resumed(lake, config):
    assert lakesweep("pause", "acme/shop", "--reason", "an audit", "--config", config).returncode == 0
    before = lake.size()
    held = lakesweep("run", "acme/shop/orders", "--execute", "--json", "--config", config)
    assert held.returncode == 3
    orders = documents(held)["acme/shop/orders"]
    assert orders["outcome"] == "refused"
    assert "an audit" in orders["reason"]
    assert lake.size() == before
    assert lakesweep("plan", "acme/shop/orders", "--config", config).returncode == 0
    assert lakesweep("resume", "acme/shop", "--config", config).returncode == 0
    assert lakesweep("resume", "acme/shop", "--config", config).returncode == 2
    done = lakesweep("run", "acme/shop/orders", "--execute", "--json", "--config", config)
    assert documents(done)["acme/shop/orders"]["outcome"] == "done"


@pytest.mark.spark
def test_the_demo_succeeds_and_shows_both_engines_without_spark_s_own_output():
    done = lakesweep("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every table reads the same rows; every planted orphan is gone." in done.stdout
    assert "engine spark: " in done.stdout
    assert "Both plans name the same " in done.stdout
    assert "WARN" not in done.stdout
    assert done.stderr == ""


def test_the_demo_does_without_java_and_says_so(tmp_path):
    kept = tmp_path / "kept"
    done = lakesweep("demo", "--keep", kept, env={"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark needs Java 17 or newer" in done.stdout
    assert "engine spark" not in done.stdout
    assert f"The lake stays in {kept}/lake" in done.stdout
    assert lakesweep("demo", "--keep", kept).returncode == 2
