"""`lakesweep serve` as a process of its own, with its log as values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 120
"""How long anything may take on a busy machine before a test gives up."""


@dataclass(kw_only=True)
class Daemon:
    """A running service."""

    process: subprocess.Popen[bytes]
    log: Path
    patience: float

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it has logged so far."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if name is None or event.get("event") == name:
                found.append(event)
        return found

    def until(self, what: Callable[[], Any], why: str) -> Any:
        """Wait until something is so, and say what was logged if it never is."""
        deadline = time.monotonic() + self.patience
        while not (found := what()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                told = self.log.read_text(errors="replace")[-6000:]
                raise AssertionError(f"{why}; exit {self.process.poll()}\n{told}")
            time.sleep(0.05)
        return found

    def until_logged(self, name: str) -> dict[str, Any]:
        return self.until(lambda: self.events(name), f"never logged {name}")[-1]

    def get(self, path: str) -> tuple[int, str]:
        """Ask the metrics port."""
        address = self.until_logged("service_started")["metrics"]
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    def end(self, signal: int) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(signal)
        return self.process.wait(self.patience)


@contextmanager
def daemon(
    config: Path, log: Path, environment: Mapping[str, str] | None = None, *, patience: float = PATIENCE_SECONDS
) -> Iterator[Daemon]:
    """Started, and killed at the end if it still runs."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lakesweep", "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield Daemon(process=process, log=log, patience=patience)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
