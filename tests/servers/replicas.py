"""Three real services on one PostgreSQL, each at work on a table of its own, slowly enough to be met in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.daemons import Daemon, daemon
from tests.builders.small_lake import LocalLake, hours, to_toml, write_local

LEASE_SECONDS = 5
TABLES = ("one", "two", "three")
LABELS = tuple(f"acme/d/{table}" for table in TABLES)


@dataclass(kw_only=True)
class Replicas:
    """A lake with one table for each service; all of them share the database and the place for artifacts."""

    home: Path
    url: str
    lake: LocalLake
    cleanup: dict[str, Any]
    running: dict[str, Daemon] = field(default_factory=dict)

    def config(self, name: str) -> Path:
        settings = self.lake.settings(
            orphan_cleanup=self.cleanup,
            service={"data_dir": str(self.home / name), "artifacts": str(self.home / "artifacts")},
            state={"url": self.url},
            daemon={"max_tables": 1, "lease_seconds": LEASE_SECONDS, "discovery_seconds": 1},
        )
        path = self.home / f"{name}.toml"
        path.write_text(to_toml(settings))
        return path

    def change(self, **cleanup: Any) -> None:
        """Give every service new settings, and have them read."""
        self.cleanup |= cleanup
        for name, one in self.running.items():
            self.config(name)
            one.process.send_signal(signal.SIGHUP)

    def post(self, name: str, path: str, body: dict[str, Any]) -> Any:
        """Ask the API of one service."""
        address = self.running[name].until_logged("service_started")["admin"]
        request = urllib.request.Request(f"http://{address}{path}", method="POST", data=json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def command(self, *arguments: str) -> str:
        """The command line, beside the services."""
        given = [sys.executable, "-m", "lakesweep", *arguments, "--config", str(self.home / "a.toml")]
        done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fill(self) -> None:
        """Put back the orphans that have gone, while nobody sweeps."""
        for label in LABELS:
            write_local(self.lake.directory(label), self.lake.tables[label])

    def left(self) -> dict[str, int]:
        """Orphans that are still there, by table."""
        return {label: len(self.lake.orphans_left(label)) for label in LABELS}

    def until(self, what: Any, why: str) -> Any:
        return next(iter(self.running.values())).until(what, why)

    def sweeping(self) -> dict[str, int]:
        """Wait until files of every table go; how many are left by then."""
        before = self.left()
        assert all(count > 100 for count in before.values()), before
        self.until(lambda: all(self.left()[label] < before[label] - 5 for label in LABELS), "not all sweep")
        return self.left()

    def finished(self) -> list[tuple[str, str, str | None]]:
        """Table, outcome and refusal of every run that has ended, in the order of each service's log."""
        ended = [event for one in self.running.values() for event in one.events("run_finished")]
        return [(event["table"], event["outcome"], event.get("refusal")) for event in ended]

    def reasons(self, word: str) -> list[str]:
        """Why runs ended, where this word is in it."""
        ended = [event for one in self.running.values() for event in one.events("run_finished")]
        return [event["reason"] for event in ended if word in (event["reason"] or "")]

    def at_rest(self, seconds: float = 2) -> dict[str, int]:
        """Wait some rounds of the scheduler; what is left after them."""
        time.sleep(seconds)
        return self.left()


@contextmanager
def replicas(home: Path, url: str, *, orphans: int, batch_size: int = 1) -> Iterator[Replicas]:
    """Started, and killed at the end."""
    lake = LocalLake(root=home)
    lake.add("acme", TABLES, orphans=orphans)
    cleanup = {
        "enabled": True,
        "dry_run": False,
        "batch_size": batch_size,
        "max_concurrent_deletions": 1,
        "cleanup_interval_hours": hours(seconds=0.5),
        "ceilings": {"share": 1.0},
    }
    fleet = Replicas(home=home, url=url, lake=lake, cleanup=cleanup)
    with ExitStack() as stack:
        for name in ("a", "b", "c"):
            fleet.running[name] = stack.enter_context(daemon(fleet.config(name), home / f"{name}.log"))
        yield fleet
