"""`lakesweep serve` as a process of its own, over a small lake of two tenants, and the API as a client sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.iceberg import Lake
from tests.peers.ports import free_port
from tests.peers.process import running

ORPHANS = {"acme": {"orders": 12, "returns": 3}, "umbrella": {"virus": 7}}
"""Old files that nothing references, by tenant and table."""
_WAIT_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Place:
    """A lake, its settings file and the ports of a service over it."""

    directory: Path
    config: Path
    admin_port: int
    metrics_port: int
    lakes: dict[str, Lake] = field(default_factory=dict)

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}"

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `lakesweep` with the same settings."""
        return subprocess.run(
            [sys.executable, "-m", "lakesweep", *arguments, "--config", str(self.config)],
            capture_output=True,
            text=True,
            check=False,
        )

    def token(self, *tenants: str, role: str = "operate") -> str:
        """A new token, made by the command line."""
        given = [part for tenant in tenants for part in ("--tenant", tenant)]
        made = self.command("token", "new", "--role", role, *given)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    @contextmanager
    def service(self) -> Iterator[Api]:
        """The running service. Stopped by SIGTERM."""
        command = [sys.executable, "-m", "lakesweep", "serve", "--config", str(self.config)]
        log = self.directory / "service.log"
        api = Api(url=self.admin_url)
        with running(command, log=log, ready=lambda: api.answers("/readyz")):
            yield api


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Status and document."""

    status: int
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, kw_only=True)
class Api:
    """A client of the API with nothing of ours in it."""

    url: str
    token: str | None = None

    def with_token(self, token: str) -> Api:
        return Api(url=self.url, token=token)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(status=answer.status, text=answer.read().decode())
        except urllib.error.HTTPError as exc:
            return Answer(status=exc.code, text=exc.read().decode())

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.document

    def answers(self, path: str) -> bool:
        try:
            return self.ask("GET", path).status == 200
        except OSError:
            return False

    def run(self, target: str, *, execute: bool) -> dict[str, Any]:
        """Start a run and wait for its end."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (started := self.ask("POST", "/api/v1/runs", {"target": target, "execute": execute})).status == 409:
            assert time.monotonic() < deadline, started  # a scheduled run has the table
            time.sleep(0.1)
        assert started.status == 202, started
        run_id = started.document["run_id"]
        while (found := self.get(f"/api/v1/runs/{run_id}"))["outcome"] is None:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def knows(self, *tables: str) -> None:
        """Wait until the service has discovered these tables."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while set(tables) - {table["table"] for table in self.get("/api/v1/tables")["tables"]}:
            assert time.monotonic() < deadline, tables
            time.sleep(0.1)


def make_place(directory: Path, extra: str = "", umbrella: str = "") -> Place:
    """Two tenants with a lake each, orphans ten days old, and settings that execute only when told to."""
    place = Place(
        directory=directory, config=directory / "lakesweep.toml", admin_port=free_port(), metrics_port=free_port()
    )
    sections = [
        "[orphan_cleanup]\nenabled = true",
        f'[service]\ndata_dir = "{directory}/state"',
        '[storage.local]\nage_by = "modification"',
        f'[admin]\nlisten = "127.0.0.1:{place.admin_port}"\nrequests_per_second = 100000',
        f'[metrics]\nlisten = "127.0.0.1:{place.metrics_port}"',
        extra,
    ]
    for tenant, tables in ORPHANS.items():
        lake = place.lakes[tenant] = Lake.make(directory / "lake" / tenant)
        for name, orphans in tables.items():
            table = lake.create(name)
            table.history()
            plant(Path(table.table.location().removeprefix("file://")) / "data", orphans)
        sections.append(
            f'[[tenants]]\nid = "{tenant}"\nroot = "{lake.root}"\n{umbrella if tenant == "umbrella" else ""}\n'
            f'[[tenants.datasets]]\nid = "prod"\nformat = "iceberg"\nnamespace = "db"\n'
            f'catalog = {{ type = "sql", uri = "{lake.properties["uri"]}", name = "lake" }}'
        )
    place.config.write_text("\n\n".join(sections))
    return place


def plant(directory: Path, orphans: int) -> None:
    """Files ten days old that nothing references."""
    ten_days_ago = time.time() - 10 * 24 * 3600
    for number in range(orphans):
        path = directory / f"orphan-{number}.parquet"
        path.write_bytes(b"x" * (100 + number))
        os.utime(path, (ten_days_ago, ten_days_ago))
