"""A daemon that kills itself with -9 at a chosen step of its journal, or stops itself when its work is done.

Run as a program, it reads one request per line: `{"arguments": [...], "log": FILE, "die_at": N or null}`. For each it
forks (everything is imported already, so that many kills take little time), lets the child run `lakesweep` with these
arguments, and answers `{"exit": CODE}`. The child writes the names of its steps to the log. Without `die_at` it sends
itself SIGTERM once a table's next due time is written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = (
    "acquire_lease",
    "start_run",
    "save_plan",
    "set_pending_expiry",
    "update_run",
    "begin_batch",
    "finish_batch",
    "set_ledger",
    "set_due",
    "release_lease",
)
"""Of the state store. Before each of them, before and after a deletion and a commit, there is a moment to die."""


@dataclass(kw_only=True)
class Dying:
    """The other end of the program."""

    process: subprocess.Popen[str]

    def run(self, arguments: list[str], log: Path, die_at: int | None = None) -> tuple[int, list[str]]:
        """The exit code of one daemon, negative for a signal, and the steps it came to."""
        log.unlink(missing_ok=True)
        request = {"arguments": arguments, "log": str(log), "die_at": die_at}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["exit"], log.read_text().splitlines() if log.exists() else []


@contextmanager
def dying_daemons(output: Path) -> Iterator[Dying]:
    """The program, started and stopped."""
    with output.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.builders.dying"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[2],
        )
    try:
        yield Dying(process=process)
    finally:
        process.kill()
        process.wait()


class _Steps:
    """Counts steps in the child, and ends it at the chosen one."""

    def __init__(self, log: str, die_at: int | None) -> None:
        self._log = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._die_at = die_at
        self._count = 0

    def at(self, name: str) -> None:
        os.write(self._log, f"{name}\n".encode())
        if self._count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1

    def wrap(self, owner: type, name: str, *, after: bool = False) -> None:
        original = getattr(owner, name)

        async def stepped(instance: Any, *arguments: Any, **options: Any) -> Any:
            self.at(name)
            result = await original(instance, *arguments, **options)
            if after:
                self.at(f"{name} done")
            return result

        setattr(owner, name, stepped)

    def stop_after(self, owner: type, name: str) -> None:
        original = getattr(owner, name)

        async def stopping(instance: Any, *arguments: Any) -> Any:
            result = await original(instance, *arguments)
            os.kill(os.getpid(), signal.SIGTERM)
            return result

        setattr(owner, name, stopping)


def _child(request: dict[str, Any]) -> int:
    from lakesweep.cleanup.delete_gate import GatedDeleter  # noqa: PLC0415
    from lakesweep.cli.main import main  # noqa: PLC0415
    from lakesweep.formats.iceberg.table import IcebergTable  # noqa: PLC0415
    from lakesweep.state.store import SqlStateStore  # noqa: PLC0415

    steps = _Steps(request["log"], request["die_at"])
    for name in STEPS:
        steps.wrap(SqlStateStore, name)
    steps.stop_after(SqlStateStore, "set_due")
    steps.wrap(GatedDeleter, "delete", after=True)
    steps.wrap(IcebergTable, "commit_expiry", after=True)
    return main(request["arguments"])


def _serve() -> None:
    import lakesweep.cli.main  # noqa: PLC0415
    import lakesweep.daemon.service  # noqa: F401, PLC0415

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_child(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(json.dumps({"exit": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    _serve()
