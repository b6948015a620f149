"""The product as a process of its own, which works when it is told to: one target per line in, one result per line out.

It lives through what the tests do to its cluster, and a test process may have a Spark of its own beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lakesweep.cli import startup
from lakesweep.model.run import CleanupRun
from lakesweep.settings.load import load

_REPOSITORY = Path(__file__).resolve().parents[2]


class Service:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, target: str, *, execute: bool = False) -> None:
        """Start a cycle."""
        self._process.stdin.write(json.dumps({"target": target, "execute": execute}) + "\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """How it ended."""
        for line in self._process.stdout:
            if line.startswith("{"):  # what it logs goes the same way
                return json.loads(line)
        raise RuntimeError("the service ended without an answer")

    def cycle(self, target: str, *, execute: bool = False) -> dict[str, Any]:
        """The same in one go."""
        self.begin(target, execute=execute)
        return self.result()

    @property
    def pid(self) -> int:
        """Of the service itself; its JVM and its workers are below it."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, once it has."""
        return self._process.poll()

    def jvms_at_work(self) -> list[psutil.Process]:
        """Its own JVMs that run Python tasks, or did."""
        children = psutil.Process(self._process.pid).children()
        return [jvm for jvm in children if any(_forks_workers(one) for one in _children(jvm))]


@contextmanager
def service(config: Path, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Started now, ended by closing its input."""
    variables = {**os.environ, **(environment or {})}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # as an installed program: compiled once
    command = [sys.executable, "-m", "tests.peers.spark_service", str(config)]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=_REPOSITORY,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield Service(process)
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _serve(config: str) -> None:
    startup.import_arrow()  # the start of `lakesweep serve`, in the same order
    from lakesweep.daemon.app import App  # noqa: PLC0415

    async with App.open(load(Path(config))) as app:
        startup.finish()
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            (work,) = await app.resolve(asked["target"])
            print(json.dumps(_told(await app.run(work, execute=asked["execute"]))), flush=True)


def _told(run: CleanupRun) -> dict[str, Any]:
    return {
        "outcome": run.outcome,
        "reason": run.reason,
        "engine": run.engine.kind if run.engine else None,
        "digest": run.plan.digest if run.plan else None,
        "orphans": run.plan.candidates.files if run.plan else None,
        "deleted": run.deletion.deleted.files,
        "timings": run.plan.timings if run.plan else None,
    }


def _children(process: psutil.Process) -> list[psutil.Process]:
    """Empty for a process that ended between being listed and being asked."""
    try:
        return process.children()
    except psutil.Error:
        return []


def _forks_workers(process: psutil.Process) -> bool:
    """Spark's daemon for Python workers, or ours in its place."""
    return any(word in ("pyspark.daemon", "lakesweep.engines.spark.worker_daemon") for word in _command(process))


def _command(process: psutil.Process) -> list[str]:
    """Empty for a process that ended between being listed and being asked."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


if __name__ == "__main__":
    startup.begin()
    asyncio.run(_serve(sys.argv[1]))
