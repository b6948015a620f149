"""Real Spark from pyspark's own jars: a standalone cluster of separate processes, and a Spark Connect server.

Everything listens on loopback, on free ports, with one core and little memory each. The pieces can be killed one
by one, as machines fail.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pyspark
from tests.peers.ports import free_port
from tests.peers.process import running

HOME = Path(pyspark.__file__).parent
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that do little and not for long: they would spend their time in the compiler."""
_START_SECONDS = 180
OTHER_USER = 65534
"""Of workers that have nothing in common with the service: nobody, in a group of its own."""
_AS_OTHER = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups", "--no-new-privs"]
_AS_OTHER += ["--pdeathsig=KILL", "--"]


class Cluster:
    """One master and some workers. `start` and `kill` may follow each other."""

    def __init__(
        self, work: Path, *, workers: int = 2, environment: dict[str, str] | None = None, hidden: Path | None = None
    ) -> None:
        """`hidden` is a directory that the workers do not see: they have an empty one in its place. They are then also
        another user, with directories of their own elsewhere."""
        self.port, self._web = free_port(), free_port()
        self._work = work
        self._hidden = hidden
        self._count = workers
        self._environment = _environment(work) | (environment or {})
        self._stack = ExitStack()
        self._homes = work if hidden is None else Path(tempfile.mkdtemp(prefix="spark-workers-"))
        if hidden is not None:
            self._homes.chmod(0o711)
        self._workers: list[psutil.Process] = []
        self._master: psutil.Process | None = None
        self._started = 0

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when every worker has joined."""
        self._master = self._spawn(
            "master", "org.apache.spark.deploy.master.Master", ["--port", self.port, "--webui-port", self._web],
            ready=lambda: _listens(self.port) and self._alive() == 0,
        )  # fmt: skip
        for _ in range(self._count):
            self.add_worker()

    def add_worker(self) -> None:
        """One more. Return when it has joined."""
        self._started += 1
        arguments = ["--cores", 1, "--memory", "1g", "--webui-port", free_port()]
        home = self._home(self._started)
        arguments += ["--work-dir", home / "executors", self.url]
        name, before = f"worker-{self._started}", self._joined()
        main = "org.apache.spark.deploy.worker.Worker"
        self._workers.append(self._spawn(name, main, arguments, ready=lambda: self._joined() > before, home=home))

    def kill_worker(self) -> None:
        """The first of them, with its executors, as a machine fails."""
        worker = self._workers.pop(0)
        for process in (*_children(worker), worker):
            _kill(process)

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run Python tasks now: children of a worker that have a Python of their own."""
        jvms = [child for worker in self._workers for child in _children(worker, recursive=False)]
        return [jvm for jvm in jvms if any("pyspark.daemon" in _words(one) for one in _children(jvm))]

    def kill(self) -> None:
        """All of it at once, without a word to anybody."""
        for process in (self._master, *self._workers):
            if process is not None:
                for child in _children(process):
                    _kill(child)
                _kill(process)
        self._workers, self._master = [], None
        self._stack.close()

    def remove(self) -> None:
        """What the workers left on disk, if that is not where the tests keep theirs."""
        if self._hidden is not None:
            shutil.rmtree(self._homes, ignore_errors=True)

    def _home(self, number: int) -> Path:
        """The directory of one worker."""
        home = self._homes / f"worker-{number}"
        home.mkdir()
        if self._hidden is not None:
            home.chmod(0o700)
            os.chown(home, OTHER_USER, OTHER_USER)
        return home

    def _spawn(
        self, name: str, main: str, arguments: list[object], *, ready, home: Path | None = None
    ) -> psutil.Process:
        command = [str(HOME / "bin" / "spark-class"), main, "--host", "127.0.0.1", *map(str, arguments)]
        environment = self._environment
        if home is not None and self._hidden is not None:
            command = _apart(self._hidden, home, command)
            environment = environment | {"HOME": str(home), "SPARK_LOCAL_DIRS": str(home / "local")}
        log = self._work / f"{name}.log"
        process = self._stack.enter_context(
            running(command, log=log, ready=ready, seconds=_START_SECONDS, environment=environment)
        )
        return psutil.Process(process.pid)

    def _alive(self) -> int:
        """How many workers the master counts as alive."""
        return int(self._told().get("aliveworkers", -1))

    def _joined(self) -> int:
        """How many workers ever came: a dead one is counted among the living for a minute."""
        return len(self._told().get("workers", ()))

    def _told(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return {}


@cache
def why_not_apart() -> str | None:
    """Why workers cannot have mounts of their own and be another user here. None if they can."""
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            return f"there is no {program}, so workers would see the disk of the service"
    with tempfile.TemporaryDirectory() as hidden, tempfile.TemporaryDirectory() as home:
        imports = ["sh", "-c", f"{shlex.quote(sys.executable)} -c 'import lakesweep, pyspark'"]
        tried = subprocess.run(_apart(Path(hidden), Path(home), imports), check=False, capture_output=True, text=True)
    if tried.returncode:
        return f"processes cannot have mounts of their own and be another user here: {tried.stderr.strip()[-300:]}"
    return None


def _apart(hidden: Path, home: Path, command: list[str]) -> list[str]:
    """The command as another user, with an empty directory in place of `hidden`. Of this user's own directory it sees
    only the Python environment, if that is there."""
    steps = [f"mount -t tmpfs -o mode=0700 tmpfs {shlex.quote(str(hidden))}"]
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)  # whatever HOME says
    needed = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(__file__).resolve().parents[2]})
    inside = [one for one in needed if own in one.parents and not set(needed) & set(one.parents)]
    if inside:
        stash = shlex.quote(str(home / "mounts"))
        steps += [f"mkdir -p {stash}", f"mount -t tmpfs tmpfs {stash}"]
        for number, one in enumerate(inside):
            steps += [f"mkdir {stash}/{number}", f"mount --bind {shlex.quote(str(one))} {stash}/{number}"]
        steps.append(f"mount -t tmpfs -o mode=0755 tmpfs {shlex.quote(str(own))}")
        for number, one in enumerate(inside):
            steps += [f"mkdir -p {shlex.quote(str(one))}", f"mount --bind {stash}/{number} {shlex.quote(str(one))}"]
    steps.append('cd / && exec "$@"')
    return ["unshare", "--mount", "sh", "-ec", "\n".join(steps), "sh", *_AS_OTHER, *command]


@contextmanager
def cluster(work: Path, **options) -> Iterator[Cluster]:
    """A running cluster, killed in the end."""
    work.mkdir(parents=True, exist_ok=True)
    found = Cluster(work, **options)
    try:
        found.start()
        yield found
    finally:
        found.kill()
        found.remove()


@contextmanager
def connect_server(
    work: Path, *, port: int | None = None, environment: dict[str, str] | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """A Spark Connect server with two local cores: its address and its process."""
    work.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": work / "warehouse",
        "spark.ui.enabled": "false",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    # Spark counts this server among its daemons, although it is a driver.
    environment = _environment(work) | {"SPARK_DAEMON_MEMORY": "1g"} | (environment or {})
    started = running(
        command,
        log=work / "connect.log",
        ready=lambda: _listens(port),
        seconds=_START_SECONDS,
        environment=environment,
    )
    with started as process:
        yield f"sc://127.0.0.1:{port}", psutil.Process(process.pid)


def _environment(work: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(work / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }


def _children(process: psutil.Process, *, recursive: bool = True) -> list[psutil.Process]:
    try:
        return process.children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
