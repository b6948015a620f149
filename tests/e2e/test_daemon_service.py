"""`lakesweep serve` as an operator runs it: it cleans, answers, reloads, and ends when it is told to."""

import json
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from tests.builders.daemons import daemon
from tests.builders.small_lake import LocalLake, hours, to_toml


class World:
    def __init__(self, home):
        self.home, self.lake = home, LocalLake(root=home)
        self.lake.add("acme", ["one", "two"])
        self.config, self.log = home / "lakesweep.toml", home / "log"
        self.starts = 0

    def configure(self, **sections):
        self.config.write_text(to_toml(self.lake.settings(**sections)))

    def serve(self):
        self.starts += 1
        return daemon(self.config, self.home / f"log-{self.starts}")

    def clean(self, *tables):
        return not any(self.lake.orphans_left(table) for table in tables)

    def query(self, statement):
        with sqlite3.connect(self.home / "state/state.db") as database:
            return database.execute(statement).fetchall()

    def lakesweep(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "lakesweep", *arguments, "--config", str(self.config)],
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.configure()
    yield made
    made.lake.check_live()


def test_it_cleans_answers_and_ends_in_order(world):
    with world.serve() as running:
        running.until(lambda: world.clean("acme/d/one", "acme/d/two"), "not cleaned")
        running.until(lambda: len(running.events("run_finished")) == 2, "not told")
        status, ready = running.get("/readyz")
        assert (status, json.loads(ready)["status"]) == (200, "ok")
        assert running.get("/healthz")[0] == 200
        scraped = running.get("/metrics")[1]
        assert 'lakesweep_files_deleted_total{tenant="acme"} 6.0' in scraped
        assert 'lakesweep_tables_known{tenant="acme"} 2.0' in scraped
        assert running.end(signal.SIGTERM) == 0
        assert running.events("service_ended")
    assert world.query("SELECT DISTINCT expires_at FROM lakesweep_leases") == [("1970-01-01 00:00:00.000000",)]
    assert world.query("SELECT count(*) FROM lakesweep_runs WHERE outcome = 'done'") == [(2,)]


def test_a_restarted_service_remembers_when_tables_are_due(world):
    for _ in range(2):
        with world.serve() as running:
            running.until(lambda: world.clean("acme/d/one", "acme/d/two"), "not cleaned")
            running.until_logged("tables_discovered")
            running.until(lambda: running.get("/readyz")[0] == 200, "never ready")
            assert running.end(signal.SIGTERM) == 0
    assert world.query("SELECT count(*) FROM lakesweep_runs") == [(2,)]


def test_a_changed_file_brings_a_new_tenant_and_a_bad_one_changes_nothing(world):
    with world.serve() as running:
        running.until(lambda: world.clean("acme/d/one", "acme/d/two"), "not cleaned")
        world.config.write_text("[orphan_cleanup]\nenabled = 'perhaps'\n")
        running.process.send_signal(signal.SIGHUP)
        kept = running.until_logged("settings_kept")
        assert "enabled" in str(kept["faults"])
        assert "lakesweep_settings_valid 0.0" in running.get("/metrics")[1]
        assert running.get("/readyz")[0] == 200
        world.lake.add("globex", ["three"])
        world.configure()  # no signal: the file's change is noticed
        running.until(lambda: world.clean("globex/d/three"), "the new tenant is not cleaned")
        assert "lakesweep_settings_valid 1.0" in running.get("/metrics")[1]
        assert running.end(signal.SIGTERM) == 0


def test_a_plan_above_its_ceiling_waits_until_it_is_approved(world):
    world.configure(orphan_cleanup={"enabled": True, "dry_run": False, "ceilings": {"files": 2}})
    with world.serve() as running:
        running.until(lambda: len(running.events("run_finished")) == 2, "not run")
        refused = [run for run in running.events("run_finished") if run["table"] == "one"]
        assert "above ceilings.files" in refused[0]["reason"]
        approved = world.lakesweep("approve", refused[0]["run"])
        assert (approved.returncode, approved.stderr.count("Traceback")) == (0, 0), approved.stderr
        assert "3 files of acme/d/one may be deleted" in approved.stdout
        running.until(lambda: world.clean("acme/d/one"), "the approved plan is not executed")
        assert len(world.lake.orphans_left("acme/d/two")) == 3
        assert running.end(signal.SIGTERM) == 0
    assert world.lakesweep("approve", "no-such-run").returncode == 2
    (done,) = world.query("SELECT id FROM lakesweep_runs WHERE outcome = 'done'")
    assert world.lakesweep("approve", done[0]).returncode == 3


def test_a_port_in_use_is_reported_in_a_sentence(world):
    with world.serve() as running:
        address = running.until_logged("service_started")["metrics"]
        world.configure(metrics={"listen": address}, service={"data_dir": str(world.home / "other")})
        second = world.lakesweep("serve")
        assert second.returncode == 2
        assert "metrics.listen" in second.stderr
        assert "Traceback" not in second.stderr


def test_bad_settings_end_it_before_it_begins(world):
    world.config.write_text("[daemon]\nmax_tables = 0\n")
    found = world.lakesweep("serve")
    assert found.returncode == 2
    assert "daemon.max_tables" in found.stderr


def test_nothing_enabled_is_reported(world):
    world.configure(orphan_cleanup={"enabled": False})
    with world.serve() as running:
        running.until_logged("nothing_enabled")
        assert running.get("/readyz")[0] in (200, 503)
        assert running.end(signal.SIGINT) == 0
    assert len(world.lake.orphans_left("acme/d/one")) == 3


def test_a_table_is_cleaned_again_and_again(world):
    world.configure(orphan_cleanup={"enabled": True, "dry_run": False, "cleanup_interval_hours": hours(seconds=1)})
    with world.serve() as running:
        running.until(lambda: len(running.events("run_finished")) >= 6, "not run again")
        assert running.end(signal.SIGTERM) == 0
    assert world.query("SELECT count(*) FROM lakesweep_runs WHERE outcome != 'done'") == [(0,)]


SLOW_DELETER = """
import asyncio, sys
from lakesweep.storage.local.deleter import LocalDeleter
delete = LocalDeleter.delete
async def slow(self, paths, conditions=None):
    answers = await delete(self, paths, conditions)
    print("deleting", file=sys.stderr, flush=True)
    await asyncio.sleep({seconds})
    return answers
LocalDeleter.delete = slow
from lakesweep.cli.main import main
sys.exit(main(["serve", "--config", {config!r}]))
"""


def slow_service(world, seconds):
    """A service whose every deletion takes its time."""
    program = SLOW_DELETER.format(seconds=seconds, config=str(world.config))
    with world.log.open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log)


def wait_for(process, world, text):
    for _ in range(2400):
        if text in world.log.read_text():
            return
        assert process.poll() is None, world.log.read_text()
        time.sleep(0.05)
    raise AssertionError(world.log.read_text())


def test_sigterm_lets_the_running_batch_end_and_begins_no_other(world):
    cleanup = {"enabled": True, "dry_run": False, "batch_size": 1, "max_concurrent_deletions": 1}
    world.configure(orphan_cleanup=cleanup, daemon={"max_tables": 1})
    process = slow_service(world, seconds=1)
    wait_for(process, world, "deleting")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, world.log.read_text()
    assert world.query("SELECT state, deleted FROM lakesweep_batches") == [("done", 1)]
    left = [len(world.lake.orphans_left(table)) for table in ("acme/d/one", "acme/d/two")]
    assert sorted(left) == [2, 3]
    stopped = world.query("SELECT document FROM lakesweep_runs")
    assert json.loads(stopped[0][0])["reason"] == "stopped; the next cycle continues"
    assert world.query("SELECT DISTINCT expires_at FROM lakesweep_leases") == [("1970-01-01 00:00:00.000000",)]


def test_a_batch_that_hangs_is_cut_off_within_the_grace_time(world):
    world.configure(daemon={"max_tables": 1, "shutdown_grace_seconds": 4})
    process = slow_service(world, seconds=3600)
    wait_for(process, world, "deleting")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, world.log.read_text()
    assert world.query("SELECT state FROM lakesweep_batches") == [("intent",)]
    assert world.query("SELECT DISTINCT expires_at FROM lakesweep_leases") == [("1970-01-01 00:00:00.000000",)]


def test_a_second_signal_ends_it_at_once(world):
    world.configure(daemon={"max_tables": 1, "shutdown_grace_seconds": 3600})
    process = slow_service(world, seconds=3600)
    wait_for(process, world, "deleting")
    process.send_signal(signal.SIGTERM)
    wait_for(process, world, "shutdown_begun")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
