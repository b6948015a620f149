"""A daemon killed with -9 at every step of its journal: the next start ends where an undisturbed one would have."""

import os
import shutil
import sqlite3
import time

import pytest
from tests.builders.dying import dying_daemons
from tests.builders.iceberg import Lake
from tests.builders.small_lake import to_toml

RETENTION = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
OLD = time.time() - 30 * 86400


class World:
    """One Iceberg table with snapshots to expire and files that nobody refers to, and a way back to its beginning."""

    def __init__(self, home):
        self.home = home
        self.lake = Lake.make(home / "lake")
        self.table = self.lake.create("t", **RETENTION)
        self.table.history([1, 2, 3])
        self.table.tag("kept", self.table.append(4))
        self.table.overwrite(10, 11)
        self.table.append(12)
        for number in range(4):
            orphan = home / f"lake/wh/db/t/data/failed-{number}.parquet"
            orphan.write_bytes(b"left behind")
            os.utime(orphan, (OLD, OLD))
        self.rows = self.visible()
        self.config = home / "lakesweep.toml"
        self.config.write_text(to_toml(self.settings()))
        shutil.copytree(home / "lake", home / "backup", copy_function=shutil.copy2)

    def settings(self):
        dataset = {"id": "d", "format": "iceberg", "namespace": "db", "catalog": self.lake.properties}
        cleanup = {"enabled": True, "dry_run": False, "batch_size": 6, "max_concurrent_deletions": 1}
        cleanup |= {"max_snapshot_age_hours": 1}  # without it a snapshot that was replaced today stays for its readers
        return {
            "orphan_cleanup": cleanup,
            "service": {"data_dir": str(self.home / "state")},
            "metrics": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "tenants": [{"id": "acme", "root": str(self.home / "lake"), "datasets": [dataset]}],
        }

    def begin_anew(self):
        shutil.rmtree(self.home / "lake")
        shutil.rmtree(self.home / "state", ignore_errors=True)
        shutil.copytree(self.home / "backup", self.home / "lake", copy_function=shutil.copy2)
        self.lake.catalog = self.lake.another_client()  # the old one holds the catalog's file that is gone

    def visible(self):
        """What readers see at the head and at the tag."""
        refs = self.table.refresh().metadata.refs
        return {name: self.table.rows(ref.snapshot_id) for name, ref in refs.items()}

    def end_state(self):
        """Snapshots and files. The metadata files' names hold random parts, and a killed commit may leave one more."""
        files = {path for path in self.lake.files() if not path.endswith(".metadata.json")}
        return files, self.table.snapshot_ids()

    def let_the_lease_run_out(self):
        """The time of a lease whose owner is dead passes."""
        with sqlite3.connect(self.home / "state/state.db") as database:
            database.execute("UPDATE lakesweep_leases SET expires_at = '2020-01-01 00:00:00.000000'")

    def let_the_wait_pass(self):
        """The time passes that a table waits after a run which its process did not outlive."""
        with sqlite3.connect(self.home / "state/state.db") as database:
            waiting = "UPDATE lakesweep_due_times SET next_due = '2020-01-01 00:00:00.000000' WHERE last_outcome = ?"
            return database.execute(waiting, ("interrupted",)).rowcount

    def open_runs(self):
        with sqlite3.connect(self.home / "state/state.db") as database:
            return database.execute("SELECT count(*) FROM lakesweep_runs WHERE outcome IS NULL").fetchone()[0]

    def unjournalled(self):
        """Files that are gone although no journal entry announced them."""
        with sqlite3.connect(self.home / "state/state.db") as database:
            announced = database.execute('SELECT coalesce(sum("count"), 0) FROM lakesweep_batches').fetchone()[0]
        before = sum(1 for path in (self.home / "backup/wh").rglob("*") if path.is_file())
        there = {str(path.relative_to(self.home / "backup")) for path in (self.home / "backup/wh").rglob("*")}
        gone = sum(not (self.home / "lake" / path).exists() for path in there)
        assert before
        return max(0, gone - announced)


def worth_a_kill(steps):
    """Every step with SOAK; otherwise the first and the last of each kind, which take half of the time."""
    if os.environ.get("SOAK"):
        return list(enumerate(steps))
    first = {name: number for number, name in reversed(list(enumerate(steps)))}
    last = {name: number for number, name in enumerate(steps)}
    return sorted({(number, name) for ends in (first, last) for name, number in ends.items()})


@pytest.mark.timeout(600)
def test_killed_at_every_step_the_next_start_ends_in_the_same_state(tmp_path):
    world = World(tmp_path)
    log, arguments = tmp_path / "steps", ["serve", "--config", str(world.config)]
    with dying_daemons(tmp_path / "errors") as daemons:
        exit_code, steps = daemons.run(arguments, log)
        assert exit_code == 0, (tmp_path / "errors").read_text()[-4000:]
        expected = world.end_state()
        assert {"begin_batch", "delete", "finish_batch", "commit_expiry", "save_plan", "set_due"} <= set(steps)
        assert world.visible() == world.rows
        for step, name in worth_a_kill(steps):
            world.begin_anew()
            exit_code, reached = daemons.run(arguments, log, die_at=step)
            assert (exit_code, reached[-1]) == (-9, name)
            assert world.visible() == world.rows, f"killed at {name}"
            assert world.unjournalled() == 0, f"killed at {name}"
            world.let_the_lease_run_out()
            if "set_due" in reached[:-1]:
                continue  # it had written down that its work was done
            exit_code, _ = daemons.run(arguments, log)
            assert exit_code == 0, f"after a kill at {name}: {(tmp_path / 'errors').read_text()[-4000:]}"
            if world.let_the_wait_pass():
                assert world.open_runs() == 0, f"killed at {name}"
                assert daemons.run(arguments, log)[0] == 0
            assert world.end_state() == expected, f"killed at {name}"
            assert world.visible() == world.rows, f"killed at {name}"
            assert world.open_runs() == 0, f"killed at {name}"
