"""The first steps: find tables, write settings that work, say what is here, and complete names."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake, small_table, to_toml, write_local

from lakesweep.cli.main import main
from lakesweep.state.schema import NEWEST


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LAKESWEEP_CONFIG", raising=False)

    def run(*arguments):
        code = main(list(map(str, arguments)))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.mark.parametrize("given", ["tables", "tables/"])
def test_init_writes_settings_in_dry_run_that_plan_can_use(given, tmp_path, call):
    for name in ("orders", "events"):
        write_local(tmp_path / "tables" / name, small_table(name))
    file = tmp_path / "lakesweep.toml"
    code, out, error = call("init", tmp_path / given, "--output", file, "--tenant", "acme")
    assert code == 0, error
    assert "2 tables (2 delta), in dry run" in out
    assert f"lakesweep plan --config {file}" in out
    text = file.read_text()
    assert "dry_run = true" in text
    assert "# 2 tables found: events, orders" in text
    assert call("settings", "--config", file)[0] == 0
    code, out, _ = call("plan", "--config", file, "--json")
    assert {table["table"] for table in json.loads(out)["tables"]} == {"acme/delta/events", "acme/delta/orders"}
    assert call("init", tmp_path / given, "--output", file)[0] == 2


def test_init_finds_the_tables_of_a_catalog_and_keeps_secrets_out(tmp_path, call):
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - slow to import
    from pyiceberg.schema import Schema  # noqa: PLC0415 - likewise

    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", Schema())
    catalog.close()
    file = tmp_path / "lakesweep.toml"
    (tmp_path / "w").mkdir(exist_ok=True)
    properties = ["type=sql", f"uri=sqlite:///{tmp_path}/c.db", "name=lake", "token=hunter2"]
    words = [word for one in properties for word in ("--catalog", one)]
    code, _, error = call("init", tmp_path / "w", *words, "--output", file)
    assert code == 0, error
    text = file.read_text()
    assert "shop.orders" in text
    assert "hunter2" not in text
    assert "PYICEBERG_CATALOG__LAKE__TOKEN" in text
    assert call("plan", "main/lake/shop.orders", "--config", file)[0] == 0


@pytest.fixture
def lake_of_three(tmp_path):
    """A tenant with Delta and Paimon, one with Iceberg whose catalog nobody named, and something else."""
    lake = tmp_path / "lake"
    write_local(lake / "acme" / "raw" / "orders", small_table("orders"))
    for file in ("acme/wh/web.db/visits/schema/schema-0", "acme/wh/web.db/visits/snapshot/snapshot-1"):
        (lake / file).parent.mkdir(parents=True, exist_ok=True)
        (lake / file).write_text("{}")
    for file in ("globex/iot/sensors/metadata/v1.metadata.json", "globex/iot/sensors/data/a.parquet", "other/b.csv"):
        (lake / file).parent.mkdir(parents=True, exist_ok=True)
        (lake / file).write_text("{}")
    return lake


def test_init_finds_every_format_and_says_which_tables_need_a_catalog(lake_of_three, tmp_path, call):
    file = tmp_path / "lakesweep.toml"
    code, out, error = call("init", lake_of_three, "--output", file, "--endpoint", "http://store:9000")
    assert code == 0, error
    assert "2 tables (1 delta, 1 paimon), in dry run" in out
    assert "1 Iceberg table found, first globex/iot/sensors, which only a catalog can open" in out
    settings = tomllib.loads(file.read_text())
    assert settings["storage"]["s3"] == {"endpoint_url": "http://store:9000", "path_style": True}
    assert [(one["id"], one.get("warehouse")) for one in settings["tenants"][0]["datasets"]] == [
        ("delta", None),
        ("acme-wh", str(lake_of_three / "acme" / "wh")),
    ]
    assert "# 1 Iceberg table found: globex/iot/sensors" in file.read_text()
    code, _, error = call("init", lake_of_three / "globex", "--output", file, "--force")
    assert (code, "first iot/sensors, which only a catalog can open" in error) == (2, True)


def test_init_makes_a_tenant_of_each_directory_that_has_tables(lake_of_three, tmp_path, call):
    file = tmp_path / "lakesweep.toml"
    code, out, error = call("init", f"{lake_of_three}/", "--tenant", "*", "--output", file)
    assert code == 0, error
    assert "2 tables of 2 tenants (1 delta, 1 paimon)" in out
    roots = {one["id"]: one["root"] for one in tomllib.loads(file.read_text())["tenants"]}
    assert roots == {"acme": str(lake_of_three / "acme"), "globex": str(lake_of_three / "globex")}
    assert call("settings", "--config", file)[0] == 0
    assert (
        "for a catalog, name one tenant"
        in call("init", lake_of_three, "--tenant", "*", "--catalog", "type=sql", "--force")[2]
    )


def test_init_asks_at_a_terminal_for_place_catalog_and_tenants(lake_of_three, tmp_path, call, monkeypatch):
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - slow to import

    def answers(*lines):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        monkeypatch.setattr("sys.stdin", Terminal("".join(f"{line}\n" for line in lines)))

    file = tmp_path / "lakesweep.toml"
    answers(lake_of_three, "", "y")
    code, out, error = call("init", "--output", file)
    assert (code, "of 2 tenants" in out) == (0, True), error
    SqlCatalog("other", uri=f"sqlite:///{tmp_path}/c.db").close()
    answers(lake_of_three / "globex", "sql", f"sqlite:///{tmp_path}/c.db", "lake")
    code, _, error = call("init", "--output", tmp_path / "other.toml")
    assert (code, "has only what was written under its name (lake)" in error) == (2, True), error
    assert not (tmp_path / "other.toml").exists()


def test_init_says_when_there_is_nothing(tmp_path, call):
    code, _, told = call("init", tmp_path, "--output", tmp_path / "x.toml")
    assert (code, "no tables found" in told) == (2, True)
    assert not (tmp_path / "x.toml").exists()
    assert call("init", "acme/prod")[0] == 2
    code, _, told = call("init", tmp_path / "missing")
    assert (code, f"{tmp_path}/missing: no such directory" in told) == (2, True)
    (tmp_path / "file").write_text("")
    code, _, told = call("init", tmp_path / "file")
    assert (code, f"{tmp_path}/file: is not a directory" in told) == (2, True)
    code, _, told = call("init", tmp_path, "--catalog", "type=foo")
    assert (code, "--catalog type = 'foo': no such type of catalog; expected one of rest, " in told) == (2, True)
    assert call("init", tmp_path, "--catalog", "rest")[0] == 2


def test_doctor_reports_what_answers_and_changes_nothing(tmp_path, call):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    away = {"id": "away", "format": "iceberg", "catalog": {"type": "rest", "uri": "http://u:hunter2@127.0.0.1:1"}}
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings()))
    code, out, error = call("doctor", "--json", "--config", file)
    checks = {one["name"]: one for one in json.loads(out)["checks"]}
    assert code == 0, (error, out)
    assert checks["dataset acme/d"]["detail"] == "1 table"
    assert {one["health"] for name, one in checks.items() if name.startswith("compiled")} == {"ok"}
    assert {"python", "java", "spark", "catalog hive", "settings", "state"} <= checks.keys()
    assert {checks[f"catalog {kind}"]["health"] for kind in ("rest", "sql")} == {"ok"}
    assert "credentials acme" not in checks  # a disk asks for none
    assert not (tmp_path / "state").exists()
    lake.tenants["acme"]["datasets"].append(away)
    file.write_text(to_toml(lake.settings()))
    code, out, _ = call("doctor", "--config", file)
    assert code == 4
    assert "acme/away" in out
    assert "hunter2" not in out


def test_doctor_says_where_credentials_come_from_and_never_what_they_are(tmp_path, call, monkeypatch):
    file = tmp_path / "lakesweep.toml"
    s3 = {"endpoint_url": "http://127.0.0.1:1", "path_style": True}
    file.write_text(to_toml({"storage": {"s3": s3}, "tenants": [{"id": "acme", "root": "s3://lake"}]}))
    for name, value in {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/none", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)

    def checks():
        code, out, _ = call("doctor", "--json", "--config", file)
        assert code == 4  # nothing listens there
        assert "hunter2" not in out
        return {one["name"]: one for one in json.loads(out)["checks"]}["credentials acme"]

    without = checks()
    assert (without["health"], without["detail"][:20]) == ("failed", "no credentials found")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    assert checks() == {"name": "credentials acme", "health": "ok", "detail": "from the environment"}


@pytest.fixture
def doctor(tmp_path, call):
    """Settings as a file, and what `doctor` says with them: the exit code, and each check by its name."""
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])

    def run(**changed):
        file = tmp_path / "lakesweep.toml"
        file.write_text(to_toml(lake.settings(**changed)))
        code, out, error = call("doctor", "--json", "--config", file)
        assert error == ""
        assert "hunter2" not in out
        return code, {one["name"]: one for one in json.loads(out)["checks"]}

    run.lake = lake
    return run


def newer(path):
    database(path, "CREATE TABLE lakesweep_version (version_num)", "INSERT INTO lakesweep_version VALUES ('9999')")


def database(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_text("junk" * 1000), "file is not a database"),
        (lambda path: path.mkdir(), "cannot be used: "),
        (newer, "written by a newer Lakesweep (its schema is 9999"),
    ],
)
def test_doctor_reads_the_version_of_a_state_file(make, said, tmp_path, doctor):
    path = tmp_path / "some.db"
    make(path)
    code, checks = doctor(state={"url": f"sqlite:///{path}"})
    assert (code, checks["state"]["health"]) == (4, "failed")
    assert said in checks["state"]["detail"]
    assert str(path) in checks["state"]["detail"]


def test_doctor_says_what_the_next_run_does_to_a_state_file_and_leaves_it(tmp_path, doctor):
    path = tmp_path / "some.db"
    database(path, "PRAGMA journal_mode = WAL")
    state = {"url": f"sqlite:///{path}"}
    there = {one.name for one in tmp_path.iterdir()}
    assert doctor(state=state)[1]["state"] == {
        "name": "state",
        "health": "ok",
        "detail": f"{path} has no tables yet: the first run creates them",
    }
    database(path, "CREATE TABLE lakesweep_version (version_num)", "INSERT INTO lakesweep_version VALUES ('0001')")
    code, checks = doctor(state=state)
    assert (code, checks["state"]["health"]) == (0, "ok")
    assert f"the next run migrates its schema from 0001 to {NEWEST}" in checks["state"]["detail"]
    assert {one.name for one in tmp_path.iterdir()} == {*there, "lakesweep.toml"}


def test_doctor_reads_a_state_file_that_a_service_has_open(tmp_path, doctor):
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE lakesweep_version (version_num)")
        connection.execute("INSERT INTO lakesweep_version VALUES ('9999')")
        connection.commit()
        connection.execute("BEGIN IMMEDIATE")
        assert "its schema is 9999" in doctor(state={"url": f"sqlite:///{path}"})[1]["state"]["detail"]


def test_doctor_says_if_a_state_file_cannot_be_created(tmp_path, doctor):
    (tmp_path / "file").write_text("")
    checks = doctor(state={"url": f"sqlite:///{tmp_path}/file/state.db"})[1]
    assert checks["state"]["health"] == "failed"
    assert checks["state"]["detail"].startswith(f"the state store sqlite:///{tmp_path}/file/state.db cannot be used")


def test_doctor_connects_to_a_database_and_shows_no_password(doctor):
    code, checks = doctor(state={"url": "postgresql://sweep:hunter2@127.0.0.1:1/state"})
    assert (code, checks["state"]["health"]) == (4, "failed")
    assert "the state store postgresql://sweep@127.0.0.1:1/state cannot be used" in checks["state"]["detail"]


def test_doctor_tells_a_missing_directory_from_an_empty_one(tmp_path, doctor):
    tenant = doctor.lake.tenants["acme"]
    tenant["datasets"][0]["location"] = gone = f"{tenant['root']}/gone"
    code, checks = doctor()
    assert code == 4
    assert checks["dataset acme/d"]["health"] == "failed"
    said = f"`location` of acme/d is {gone}, but there is no such directory. Is a disk not mounted?"
    assert said in checks["dataset acme/d"]["detail"]
    Path(gone).mkdir()
    code, checks = doctor()
    assert (code, checks["dataset acme/d"]["detail"]) == (0, "0 tables")
    tenant["root"] = gone = str(tmp_path / "unmounted")
    tenant["datasets"] = []
    code, checks = doctor()
    assert checks["storage acme"]["health"] == "failed"
    said = f"`root` of tenant acme is {gone}, but there is no such directory. Is a disk not mounted?"
    assert said in checks["storage acme"]["detail"]
    (tmp_path / "unmounted").write_text("")
    assert "that is no directory" in doctor()[1]["storage acme"]["detail"]


def complete(words, config):
    environment = {
        **os.environ,
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_LAKESWEEP_COMPLETE": "complete_bash",
        "LAKESWEEP_CONFIG": str(config),
    }
    command = [sys.executable, "-m", "lakesweep"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.split()


def test_commands_tenants_and_tables_are_completed(tmp_path, call):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings(logging={"level": "error"})))
    assert call("plan", "--config", file)[0] == 0
    assert "explain" in complete(["lakesweep", "ex"], file)
    assert complete(["lakesweep", "plan", "ac"], file) == ["acme", "acme/d", "acme/d/one"]
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = call("completion", shell)
        assert code == 0
        assert "_LAKESWEEP_COMPLETE=complete_" in out
    script = call("completion", "bash")[1]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
