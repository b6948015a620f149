"""The example: every file it names is there, its parts fit each other, and its lake is made and cleaned for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.deploy import dockerfile
from tests.deploy.manifests import variables
from tests.deploy.tools import DEPLOY, REPOSITORY, run
from tests.servers import seaweedfs as s3
from tests.servers.postgres import running_postgres
from tests.servers.prometheus import program

import lakesweep
from lakesweep.settings.load import load

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SETTINGS = DEPLOY / "compose" / "lakesweep.toml"


def mounts(service):
    return [volume.split(":") for volume in service.get("volumes", [])]


def test_every_file_that_is_mounted_is_there():
    files = [source for service in SERVICES.values() for source, *_ in mounts(service) if source.startswith(".")]
    assert len(files) > 5
    for source in files:
        assert (DEPLOY / source).is_file(), source
    for service in SERVICES.values():
        named = {source for source, *_ in mounts(service) if not source.startswith(".")}
        assert named <= COMPOSE["volumes"].keys()
        assert set(service.get("depends_on", {})) <= SERVICES.keys()


def test_images_are_pinned_and_ours_has_the_version_of_the_code():
    for service in SERVICES.values():
        assert service["image"].rpartition(":")[2] not in ("", "latest", service["image"])
    assert SERVICES["lakesweep"]["image"] == f"lakesweep:{lakesweep.__version__}"


def test_every_port_is_on_loopback():
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))


def test_lakesweep_runs_as_the_image_promises():
    ours = SERVICES["lakesweep"]
    writable = {target for source, target, *mode in mounts(ours) if mode != ["ro"]} | set(ours["tmpfs"])
    assert ours["read_only"]
    assert writable == set(dockerfile.read(REPOSITORY / "Dockerfile")[-1].words("VOLUME"))


def test_our_own_settings_code_takes_the_file():
    with variables(lakesweep_variables()):
        settings = load(SETTINGS)
    assert [tenant.id for tenant in settings.tenants] == ["acme", "globex", "initech"]
    assert settings.state_url == SERVICES["lakesweep"]["environment"]["LAKESWEEP_STATE__URL"]
    grace = int(SERVICES["lakesweep"]["stop_grace_period"].removesuffix("s"))
    assert grace >= settings.daemon.shutdown_grace_seconds + 10


def lakesweep_variables():
    given = SERVICES["lakesweep"]["environment"]
    return {name: value for name, value in given.items() if name.startswith("LAKESWEEP_")}


def test_keys_and_passwords_agree():
    (identity,) = json.loads((DEPLOY / "compose" / "identities.json").read_text())["identities"]
    environment, database = SERVICES["lakesweep"]["environment"], SERVICES["postgres"]["environment"]
    assert identity["credentials"] == [
        {"accessKey": environment["AWS_ACCESS_KEY_ID"], "secretKey": environment["AWS_SECRET_ACCESS_KEY"]}
    ]
    login = f"{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}@postgres/"
    assert login in environment["LAKESWEEP_STATE__URL"]
    assert SETTINGS.read_text().count(login) == 2


def test_prometheus_takes_its_settings(tmp_path):
    targets = {source: target for source, target, *_ in mounts(SERVICES["prometheus"])}
    rules = next(target for source, target in targets.items() if source.endswith("rules.yaml"))
    settings = (DEPLOY / "compose" / "prometheus.yml").read_text()
    assert rules in settings
    here = tmp_path / "prometheus.yml"
    here.write_text(settings.replace(rules, str(DEPLOY / "prometheus" / "lakesweep.rules.yaml")))
    checked = run(program("promtool"), "check", "config", here)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    port = tomllib.loads(SETTINGS.read_text())["metrics"]["listen"].rpartition(":")[2]
    assert f"lakesweep:{port}" in settings


def test_grafana_finds_its_dashboard():
    targets = {target: source for source, target, *_ in mounts(SERVICES["grafana"])}
    provider = yaml.safe_load((DEPLOY / "compose" / "grafana-dashboards.yaml").read_text())["providers"][0]
    assert targets[f"{provider['options']['path']}/lakesweep.json"] == "./grafana/lakesweep.json"


@pytest.mark.xdist_group("service")
async def test_the_lake_is_made_and_cleaned(seaweedfs, tmp_path):
    """With the servers of the tests in place of the example's, and its files made old in place of waiting."""
    with running_postgres() as postgres:
        await postgres.execute("CREATE DATABASE catalog")
        settings = here(tmp_path, seaweedfs, postgres)
        environment = {**os.environ, **s3.ENVIRONMENT, "LAKESWEEP_STATE__URL": postgres.url()}

        def python(*arguments):
            done = subprocess.run(
                [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def cleaned():
            report = json.loads(python("-m", "lakesweep", "run", "*/*/*", "--execute", "--json", "--config", settings))
            return {table["table"]: (table["outcome"], table["deleted"]["count"]) for table in report["tables"]}

        seeded = python(str(DEPLOY / "compose" / "seed.py"), settings)
        assert seeded.split() == ["acme:", "made", "globex:", "made", "initech:", "made"]
        assert "already there" in python(str(DEPLOY / "compose" / "seed.py"), settings)
        grow_old(seaweedfs)
        first = cleaned()
        assert {table: outcome for table, (outcome, _) in first.items()} == {
            "acme/shop/shop.customers": "done",
            "acme/shop/shop.orders": "done",
            "globex/bronze/clicks": "done",
            "initech/web/web.customers": "dry_run",
            "initech/web/web.orders": "dry_run",
        }
        assert first["globex/bronze/clicks"][1] == 8
        assert min(first["acme/shop/shop.orders"][1], first["acme/shop/shop.customers"][1]) >= 8
        assert all(count == 0 for table, (_, count) in first.items() if table.startswith("initech"))


def here(directory, store, postgres):
    """The example's settings file, with the addresses of the servers that run now."""
    text = SETTINGS.read_text()
    for old, new in {
        "http://s3:8333": store.endpoint_url,
        "postgresql+psycopg2://lakesweep:example@postgres/catalog": postgres.url("catalog").replace(
            "://", "+psycopg2://"
        ),
        "/var/lib/lakesweep": str(directory / "data"),
        "s3://ops/": "s3://example-ops/",
        "s3://lake/": "s3://example-lake/",
        "s3://initech": "s3://example-initech",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    settings = Path(directory) / "lakesweep.toml"
    settings.write_text(text)
    return str(settings)


def grow_old(store):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    client = store.client()
    for bucket in ("example-lake", "example-initech"):
        for entry in client.list_objects_v2(Bucket=bucket)["Contents"]:
            store.set_mtime(bucket, entry["Key"], yesterday)
