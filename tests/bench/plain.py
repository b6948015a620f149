"""The compiled parts against our own plain Python. Each runs in processes of its own, in turns; CPU of all threads, the
least of all rounds. Trust the ratio: on a busy machine both are slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from lakesweep.telemetry import compiled

ROUNDS = 3
FIGURES = "--figures"
"""The option with which a benchmark measures only our own code and prints the figures for this module."""


def print_figures(part: str, cpu_seconds: Mapping[str, float]) -> None:
    print(json.dumps({"compiled": compiled.is_there(part), "cpu_seconds": cpu_seconds}))


def compare(module: str, arguments: Sequence[str]) -> None:
    """Print the table."""
    best: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for _ in range(ROUNDS):
        for is_compiled, least in best.items():
            for name, seconds in _figures(module, arguments, is_compiled=is_compiled).items():
                least[name] = min(seconds, least.get(name, seconds))
    width = max(map(len, best[True]))
    print(f"{'':{width}} {'compiled CPU ms':>16} {'plain CPU ms':>16} {'times':>6}")
    for name, seconds in best[True].items():
        plain = best[False][name]
        print(f"{name:{width}} {seconds * 1e3:>16,.2f} {plain * 1e3:>16,.2f} {plain / seconds:>6.1f}")


def _figures(module: str, arguments: Sequence[str], *, is_compiled: bool) -> dict[str, float]:
    env = {**os.environ, compiled.VARIABLE: "0" if is_compiled else "1"}
    command = [sys.executable, "-m", module, FIGURES, *arguments]
    found = json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)
    assert found["compiled"] is is_compiled, "the compiled parts are not installed"
    figures: dict[str, float] = found["cpu_seconds"]
    return figures
