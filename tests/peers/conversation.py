"""Talk to a peer that runs in a process of its own: one request per line on its input, one answer per line back.

A process can hold only one JVM, and its memory can be measured apart only if it has nothing else in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]
_WAIT_SECONDS = 30


class Conversation:
    """This end of the pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self._answer()

    def ask(self, request: dict[str, Any]) -> Any:
        """The answer; an error over there is one here."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["answer"]
        raise RuntimeError("the peer ended")


@contextmanager
def talking_to(module: str, work: Path, *arguments: str) -> Iterator[Conversation]:
    """`python -m module work arguments`, started now and ended by closing its input; what it logs is in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "peer.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(work), *arguments],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        )
    try:
        yield Conversation(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answer_all(serve: Callable[[dict[str, Any]], Any]) -> None:
    """The other end: say that we are ready, then answer until the input is closed."""
    _say({"answer": "ready"})
    for line in sys.stdin:
        try:
            _say({"answer": serve(json.loads(line))})
        except Exception as exc:  # noqa: BLE001  # whatever the peer says goes to the other side
            _say({"error": str(exc)})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
