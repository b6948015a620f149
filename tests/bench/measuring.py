"""Time, peak memory and requests of one piece of work, wherever its processes are."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a piece of work took. Costs of work that is done one after the other add up."""

    seconds: float
    cpu_seconds: float
    """Of all processes: what is left of a result when others use the machine too."""
    memory_mb: float
    requests: int | None = None

    def __add__(self, other: Cost) -> Cost:
        requests = None if self.requests is None or other.requests is None else self.requests + other.requests
        return Cost(
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            memory_mb=max(self.memory_mb, other.memory_mb),
            requests=requests,
        )


class Meter:
    """`cost` is there once the measured block has ended."""

    cost: Cost


@contextmanager
def measured(pid: Callable[[], int], requests: Callable[[], int] | None = None) -> Iterator[Meter]:
    """Watch a process and all its children while the block runs. `pid` may be known only inside of it."""
    meter, done, peak = Meter(), threading.Event(), [0]

    def watch() -> None:
        while not done.wait(_EVERY_SECONDS):
            peak[0] = max(peak[0], _resident(pid()))

    watcher = threading.Thread(target=watch, name="memory")
    asked = requests() if requests else 0
    worked = _worked(pid())
    started = time.perf_counter()
    watcher.start()
    try:
        yield meter
    finally:
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        meter.cost = Cost(
            seconds=seconds,
            cpu_seconds=_worked(pid()) - worked,
            memory_mb=peak[0] / 2**20,
            requests=requests() - asked if requests else None,
        )


def run(
    command: Sequence[str],
    *,
    output: Path,
    environment: Mapping[str, str] | None = None,
    requests: Callable[[], int] | None = None,
) -> Cost:
    """A program from its start to its end, in a process of its own; what it prints goes into files."""
    process: list[subprocess.Popen[bytes]] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (
        output.open("wb") as out,
        output.with_suffix(".log").open("wb") as errors,
        measured(lambda: process[0].pid if process else 0, requests) as meter,
    ):
        variables = {**os.environ, **(environment or {})}
        # As an installed program: its modules are compiled once, not at every start.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        process.append(subprocess.Popen(command, stdout=out, stderr=errors, env=variables))
        code = process[0].wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{output.with_suffix('.log').read_text()[-4000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return replace(meter.cost, cpu_seconds=cpu)


def lakesweep(
    *arguments: str,
    output: Path,
    environment: Mapping[str, str] | None = None,
    requests: Callable[[], int] | None = None,
) -> Cost:
    """Our own command line."""
    return run(
        [sys.executable, "-m", "lakesweep", *arguments], output=output, environment=environment, requests=requests
    )


def _resident(pid: int) -> int:
    if not pid:  # not started yet
        return 0
    try:
        root = psutil.Process(pid)
        return sum(_memory(one) for one in (root, *root.children(recursive=True)))
    except psutil.Error:  # not there yet, or no longer
        return 0


def _worked(pid: int) -> float:
    if not pid:
        return 0.0
    try:
        root = psutil.Process(pid)
        times = [one.cpu_times() for one in (root, *root.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return float(sum(one.user + one.system for one in times))


def _memory(process: psutil.Process) -> int:
    """Pages that processes share are shared out among them, so that sums are true."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
