"""Paimon's own Java code, and pypaimon, as peers: one process each, one line of JSON per command.

See PaimonPeer.java and pypaimon_peer.py.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.peers import jars
from tests.peers.pinned import python_with

_SOURCE = Path(__file__).with_name("PaimonPeer.java")
_SCRIPT = Path(__file__).with_name("pypaimon_peer.py")
_PINS = Path(__file__).with_name("pypaimon.lock")


class PeerError(RuntimeError):
    """What Java said."""


class PaimonPeer:
    """Commands to a running peer. Calls are answered one after the other."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self.pid = process.pid
        self._log = log
        self._lock = threading.Lock()

    def __call__(self, verb: str, **arguments: Any) -> Any:
        """Run one command and return its answer, or raise PeerError."""
        with self._lock:
            line = json.dumps({"do": verb, **arguments})
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
            except BrokenPipeError:
                answer = ""
        if not answer:
            raise PeerError(f"the peer is gone:\n{self._log.read_text()[-4000:]}")
        document = json.loads(answer)
        if "error" in document:
            raise PeerError(document["error"])
        return document.get("ok")


@cache
def shared_peer() -> PaimonPeer:
    """One peer for all tests of this process, started when the first one asks and stopped with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_peer())


@contextmanager
def running_peer(*, memory: str = "1g") -> Iterator[PaimonPeer]:
    """A peer for as long as the block runs. Hadoop's classes come with the installed Spark."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    hadoop = sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
    classpath = jars.classpath(*jars.jars("paimon"), *hadoop)
    with _running([jars.java(), f"-Xmx{memory}", "-cp", classpath, str(_SOURCE)]) as peer:
        yield peer


@cache
def shared_python_peer() -> PaimonPeer:
    """pypaimon, likewise."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_running([str(python_with(_PINS)), str(_SCRIPT)]))


@contextmanager
def _running(command: list[str]) -> Iterator[PaimonPeer]:
    with tempfile.TemporaryDirectory(prefix="paimon-peer-") as scratch:
        log = Path(scratch) / "peer.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                env=os.environ | {"TMPDIR": scratch, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
            try:
                peer = PaimonPeer(process, log)
                peer("ping")
                yield peer
            finally:
                if process.stdin:
                    process.stdin.close()
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.stdout:
                    process.stdout.close()
