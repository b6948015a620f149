"""`lakesweep settings`: what holds for a table, said from the settings alone."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakesweep.cli.main import main
from lakesweep.settings.cascade import cleanup_for
from lakesweep.settings.load import load
from lakesweep.storage.memory import Held, bucket

ROOT = Path(__file__).parents[3]
TEXT = """
[orphan_cleanup]
enabled = true
dry_run = false
grace_period_hours = 72

[service]
data_dir = "/dev/null/state"

[state]
url = "postgresql://lakesweep:hush@127.0.0.1:1/lakesweep"

[[tenants]]
id = "acme"
root = "s3://lake/acme"

[[tenants.datasets]]
id = "prod"
format = "iceberg"
catalog = { type = "rest", uri = "http://127.0.0.1:1", credential = "hush", "header.x-custom" = "hush" }
orphan_cleanup = { cron = "30 2 * * *" }

[[tenants.datasets.tables]]
name = "ledger"
orphan_cleanup = { max_snapshot_age_hours = 2160, cleanup_interval_hours = 0.5 }

[[tenants.datasets]]
id = "bronze"
format = "delta"
location = "s3://lake/acme/bronze"

[[tenants]]
id = "globex"
root = "s3://globex"
orphan_cleanup = { dry_run = true }
"""
"""Nothing in it can be reached: no catalog, no store, no state, no directory."""


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("LAKESWEEP_"):
            monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "lakesweep.toml"
    file.write_text(TEXT)
    return file


@pytest.fixture
def call(config, capsys):
    def run(*arguments):
        code = main(["settings", *arguments, "--config", str(config)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def tables(out):
    return [table["table"] for table in json.loads(out)["tables"]]


def row(text, name):
    """The value and the origin in the line of a setting."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).strip().split(maxsplit=1)


def test_everything_configured_is_reported_in_the_file_s_order(call, config):
    code, text, errors = call()
    assert (code, errors) == (0, "")
    assert text.startswith(f"{config} is valid: 2 tenants, 2 datasets\n\nthe service\n")
    shown = [line.split()[0] for line in text.splitlines() if line.partition(" ")[0].count("/") == 2]
    assert shown == ["acme/prod/*", "acme/prod/ledger", "acme/bronze/*", "globex/*/*"] == tables(call("--json")[1])


def test_a_table_shows_what_holds_for_it_and_where_it_comes_from(call):
    text = call("acme/prod/ledger")[1]
    assert row(text, "orphan_cleanup.grace_period_hours") == ["72", "global"]
    assert row(text, "orphan_cleanup.max_snapshot_age_hours") == ["2160", "table ledger"]
    assert "batch_size" not in text
    assert "data_dir" not in text
    everything = call("acme/prod/ledger", "--all")[1]
    assert row(everything, "orphan_cleanup.batch_size") == ["1000", "default"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("acme/prod/ledger", "the service cleans it every 0.5 h; `run --execute` cleans it"),
        ("acme/prod/other", "the service cleans it at 30 2 * * * (UTC); `run --execute` cleans it"),
        (
            "globex",
            (
                "the service plans it every 24 h and deletes nothing: dry_run = true; "
                "`run --execute` deletes nothing either: its own dry_run = true wins"
            ),
        ),
    ],
)
def test_what_the_settings_come_to_is_one_sentence(target, sentence, call):
    assert call(target)[1].splitlines()[1] == sentence


def test_a_careful_beginning_is_shown_as_what_it_is(call, config):
    config.write_text('[[tenants]]\nid = "a"\nroot = "s3://a"\n')
    assert "the service skips it: enabled = false; `run --execute` cleans it" in call()[1]
    config.write_text(f"[orphan_cleanup]\nrevalidate_before_delete = false\n{config.read_text()}")
    assert "`run --execute` is refused: orphan_cleanup.revalidate_before_delete = false" in call()[1]


def test_the_document_has_every_setting_of_a_table_with_its_level(call, config):
    code, out, _ = call("acme/prod/ledger", "--json")
    assert code == 0
    document = json.loads(out)
    assert set(document) == {"file", "service", "tables"}
    (table,) = document["tables"]
    assert (document["file"], table["table"], table["format"]) == (str(config), "acme/prod/ledger", "iceberg")
    held = cleanup_for(load(config), "acme", "prod", "ledger").model_dump(mode="json", exclude={"ceilings"})
    values = {name: one["value"] for name, one in table["settings"].items()}
    assert {f"orphan_cleanup.{name}": value for name, value in held.items()}.items() <= values.items()
    assert table["settings"]["orphan_cleanup.dry_run"] == {"value": False, "level": "global", "variable": None}
    assert document["service"]["daemon.max_tables"]["level"] == "default"


def test_the_environment_stands_over_the_file_and_is_named(call, monkeypatch):
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN", "true")
    text = call("acme/prod/ledger")[1]
    assert row(text, "orphan_cleanup.dry_run") == ["true", "global (LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN)"]


@pytest.mark.parametrize("words", [[], ["--all"], ["--json"], ["acme/prod/ledger"]])
def test_secrets_are_never_printed(words, call):
    code, out, errors = call(*words)
    assert code == 0
    assert "hush" not in out + errors
    assert "***" in out


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("*", ["acme/prod/*", "acme/prod/ledger", "acme/bronze/*", "globex/*/*"]),
        ("acme", ["acme/prod/*", "acme/prod/ledger", "acme/bronze/*"]),
        ("acme/prod/*", ["acme/prod/*", "acme/prod/ledger"]),
        ("acme/prod/x*", ["acme/prod/*"]),
        ("acme/*/ledger", ["acme/prod/ledger", "acme/bronze/ledger"]),
        ("acme/prod/never.heard/of", ["acme/prod/never.heard/of"]),
        ("globex", ["globex/*/*"]),
    ],
)
def test_a_target_names_what_the_settings_know(target, named, call):
    assert tables(call(target, "--json")[1]) == named
    assert tables(call(target, target, "--json")[1]) == named


def test_a_table_without_settings_of_its_own_is_shown_to_have_none(call):
    assert "nothing is configured for this table alone" in call("acme/prod/legder")[1]
    assert "nothing is configured for this table alone" not in call("acme/prod")[1]


def test_a_target_that_names_nothing_exits_2_and_the_others_are_shown(call):
    code, out, errors = call("nobody/x/y", "", "s3://lake/acme/x", "acme/bronze/t", "--json")
    assert (code, tables(out)) == (2, ["acme/bronze/t"])
    assert errors.splitlines() == [
        "lakesweep: nothing configured matches 'nobody/x/y'; there is acme/prod/*, acme/bronze/*, globex/*/*",
        "lakesweep: an empty target matches no table; use '*' for everything configured",
        "lakesweep: s3://lake/acme/x is a location: name its table as tenant/dataset/table",
    ]


def test_a_misspelled_tenant_or_dataset_gets_the_one_that_was_meant(call):
    code, _, errors = call("acne", "acme/bronce")
    assert (code, errors.count("did you mean 'acme'?"), errors.count("did you mean 'acme/bronze'?")) == (2, 1, 1)


def test_what_tables_say_themselves_is_shown_as_not_visible(call):
    text = call("acme/bronze/t")[1]
    assert "delta: a table's own metadata is not read here" in text
    assert "delta.deletedFileRetentionDuration" in text
    assert "history.expire" not in text


def test_without_a_file_the_defaults_are_shown(capsys):
    assert main(["settings"]) == 0
    assert "no settings file" in capsys.readouterr().out
    assert main(["settings", "acme/prod/t"]) == 2
    assert "name a settings file with --config" in capsys.readouterr().err


def test_the_example_on_the_command_line_page_is_what_is_printed(capsys):
    shown = re.search(r"^```text\n(acme/prod/ledger .*?)^```", (ROOT / "docs" / "cli.md").read_text(), re.S | re.M)[1]
    assert main(["settings", "acme/prod/ledger", "--config", str(ROOT / "config" / "production.toml")]) == 0
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    assert printed.startswith(f"{shown}\n")


@pytest.mark.parametrize(
    ("catalog", "code", "told"),
    [
        ('{ type = "rset", uri = "x" }', 2, "no such type of catalog; did you mean 'rest'?"),
        ('{ type = "nosuch", uri = "x" }', 2, "expected one of rest, sql, hive, glue"),
        (
            '{ type = "rest", uri = "x", credentail = "a:b" }',
            0,
            "unknown property 'credentail': did you mean 'credential'?",
        ),
        (
            '{ type = "bigquery" }',
            0,
            "its client is not installed here (google.cloud.bigquery): pip install 'lakesweep[",
        ),
        ('{ type = "sql", uri = "postgresql://u:a:b@h/x" }', 0, ""),
        ('{ type = "sql", uri = "sqlite:////x.db" }', 0, ""),
        ('{ type = "sql", uri = "postgres://u:a:b@h/x" }', 0, "SQLAlchemy needs postgresql:// instead of postgres://"),
        ('{ type = "sql", uri = "postgresql+asyncpg://h/x" }', 0, "asyncpg is a driver for asyncio"),
        ('{ type = "sql", uri = "mysql://u:a:b@h/x" }', 0, "its driver is not installed here (MySQLdb): pip install"),
        ('{ type = "rest", uri = "x", "header.X-Team" = "data", "s3.region" = "eu" }', 0, ""),
        ('{ "py-catalog-impl" = "ours.Catalog", anything = "x" }', 0, ""),
    ],
)
def test_a_catalog_is_checked_without_asking_it(catalog, code, told, tmp_path, capsys):
    file = tmp_path / "lakesweep.toml"
    file.write_text(
        '[[tenants]]\nid = "acme"\nroot = "s3://lake/acme"\n[[tenants.datasets]]\nid = "prod"\nformat = "iceberg"\n'
        f"catalog = {catalog}\n"
    )
    assert main(["settings", "--config", str(file)]) == code
    out, error = capsys.readouterr()
    assert f"{file} is {'invalid' if code else 'valid'}: 1 tenant" in out
    assert told in error
    assert bool(error) == bool(told)
    assert "a:b" not in error


def test_a_settings_file_may_lie_in_an_object_store(monkeypatch, capsys):
    bucket("ops").objects["lakesweep.toml"] = Held(data=TEXT.encode(), modified_at=datetime.now(UTC))
    assert main(["settings", "--json", "--config", "memory://ops/lakesweep.toml"]) == 0
    by_option = capsys.readouterr().out
    monkeypatch.setenv("LAKESWEEP_CONFIG", "memory://ops/lakesweep.toml")
    assert main(["settings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["service"] == json.loads(by_option)["service"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("gone.toml", None, "cannot read the settings"),
        ("bad.toml", b"x =", "not valid TOML"),
        ("b.toml", b"\xff", "UTF-8"),
    ],
)
def test_a_settings_object_that_cannot_be_used_is_named(capsys, name, data, said):
    if data is not None:
        bucket("ops").objects[name] = Held(data=data, modified_at=datetime.now(UTC))
    assert main(["settings", "--config", f"memory://ops/{name}"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"memory://ops/{name}" in told
    assert said in told
