"""A state store that goes away and comes back: nothing is started meanwhile, and afterwards all goes on."""

import json
import signal

import pytest
from tests.builders.daemons import daemon
from tests.builders.gateway import gateway
from tests.builders.small_lake import LocalLake, hours, to_toml
from tests.servers.postgres import running_postgres


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server


async def test_the_service_waits_for_its_state_store_and_goes_on(tmp_path, postgres):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    config = tmp_path / "lakesweep.toml"
    database = await postgres.create_database()
    with gateway(postgres.host, postgres.port) as between:
        url = postgres.url(database).replace(f":{postgres.port}/", f":{between.port}/")
        cleanup = {"enabled": True, "dry_run": False, "cleanup_interval_hours": hours(seconds=0.5)}
        config.write_text(to_toml(lake.settings(state={"url": url}, orphan_cleanup=cleanup)))
        with daemon(config, tmp_path / "log") as running:
            running.until(lambda: not lake.orphans_left("acme/d/one"), "not cleaned")
            between.shut()
            running.until(lambda: running.get("/readyz")[0] == 503, "still ready")
            status, told = running.get("/healthz")
            assert (status, json.loads(told)["status"]) == (200, "ok")
            running.until(lambda: "lakesweep_state_store_up 0.0" in running.get("/metrics")[1], "not told")
            runs = len(running.events("run_finished"))
            between.open()
            running.until(lambda: running.get("/readyz")[0] == 200, "not ready again")
            running.until(lambda: len(running.events("run_finished")) > runs + 2, "does not go on")
            assert running.events("run_finished")[-1]["outcome"] == "done"
            assert "lakesweep_state_store_up 1.0" in running.get("/metrics")[1]
            assert running.end(signal.SIGTERM) == 0
    lake.check_live()
    assert "password" not in (tmp_path / "log").read_text()
    assert postgres.password not in (tmp_path / "log").read_text()
