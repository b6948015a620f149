"""A real Prometheus for tests: the installed one, or Debian's package unpacked into the cache, never installed."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.peers.ports import free_port
from tests.peers.process import running

_CACHE = Path(__file__).resolve().parents[2] / ".cache" / "prometheus"
_WAIT_SECONDS = 60


@functools.cache
def program(name: str) -> str:
    """`prometheus` or `promtool`. Skips the test if neither the system nor a package archive has it."""
    installed = shutil.which(name)
    if installed:
        return installed
    unpacked = _CACHE / "usr" / "bin" / name
    if not unpacked.exists():
        _unpack()
    return str(unpacked)


def _unpack() -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("Prometheus is not installed, and this system has no Debian packages")
    _CACHE.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        ["apt-get", "download", "prometheus"], cwd=_CACHE, capture_output=True, text=True, check=False
    )
    packages = sorted(_CACHE.glob("prometheus_*.deb"))
    if not packages:
        pytest.skip(f"Prometheus is not installed, and its package cannot be had: {fetched.stderr.strip()[-300:]}")
    subprocess.run(["dpkg-deb", "-x", packages[-1], _CACHE], check=True)


def check_metrics(exposition: bytes) -> str:
    """What promtool finds wrong with an exposition; empty if nothing."""
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=exposition, capture_output=True, check=False
    )
    return (checked.stdout + checked.stderr).decode() if checked.returncode else ""


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """A running server that scrapes one target each half second."""

    url: str

    def ask(self, query: str) -> dict[frozenset[tuple[str, str]], float]:
        """The newest value of each series, by its labels."""
        parameters = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        dropped = ("__name__", "instance", "job")
        return {
            frozenset((name, value) for name, value in series["metric"].items() if name not in dropped): float(
                series["value"][1]
            )
            for series in result
        }

    def total(self, query: str) -> float:
        """The sum over all series."""
        return sum(self.ask(query).values())

    def await_total(self, query: str, wanted: float) -> None:
        """Wait for a scrape that shows it."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while self.total(query) != wanted:
            assert time.monotonic() < deadline, f"{query} is {self.ask(query)}, not {wanted}"
            time.sleep(0.2)


@contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    """Prometheus, scraping `host:port`."""
    config = directory / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
                "scrape_configs": [{"job_name": "lakesweep", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    port = free_port()
    server = Prometheus(url=f"http://127.0.0.1:{port}")
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.console.templates=/nonexistent",
        "--web.console.libraries=/nonexistent",
    ]
    with running(command, log=directory / "prometheus.log", ready=lambda: _ready(server)):
        yield server


def _ready(server: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
