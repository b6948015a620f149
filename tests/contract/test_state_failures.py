"""How the databases fail: always StateError or SettingsError, in words that name the store and hide its password."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sqlite3
import traceback
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.contract.state_child import child, outcomes
from tests.servers.postgres import running_postgres

from lakesweep.model.errors import SettingsError, StateError
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.state import postgres, sqlite
from lakesweep.state.registry import open_state

TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
RUN = CleanupRun(id="r1", table=TABLE, location=None, started_at=NOON)


def hides(secret, error):
    return secret not in "".join(traceback.format_exception(error))


def sqlite_file(backend):
    return Path(backend.url.removeprefix("sqlite:///"))


# PostgreSQL


async def test_a_server_that_refuses_connections_is_named_without_its_password(sqlite_backend):
    with socket.socket() as bound_but_not_listening:
        bound_but_not_listening.bind(("127.0.0.1", 0))
        url = f"postgresql://joe:s3cret@127.0.0.1:{bound_but_not_listening.getsockname()[1]}/state"
        async with asyncio.timeout(30):
            with pytest.raises(StateError, match=r"postgresql://joe@127\.0\.0\.1:\d+/state cannot be used: ") as told:
                await open_state(url, sqlite_backend.clock)
    assert hides("s3cret", told.value)
    assert isinstance(told.value.__cause__, ConnectionRefusedError)


async def test_a_server_that_never_answers_is_given_up_on(sqlite_backend, monkeypatch):
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"postgresql://joe:s3cret@127.0.0.1:{deaf.getsockname()[1]}/state"
        async with asyncio.timeout(30):
            with pytest.raises(StateError, match="no answer in time") as told:
                await open_state(url, sqlite_backend.clock)
    assert hides("s3cret", told.value)


async def test_a_wrong_password_is_said_and_not_shown(postgres_backend):
    url = postgres_backend.server.url(postgres_backend.database, password="s3cret")
    with pytest.raises(StateError, match="password authentication failed") as told:
        await open_state(url, postgres_backend.clock)
    assert hides("s3cret", told.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://joe:s3@cret@127.0.0.1/state",
        "postgresql://joe:s3/cret@127.0.0.1/state",
        "postgresql://joe:s3?cret@127.0.0.1/state",
        "postgresql://joe:s3#cret@127.0.0.1/state",
        "postgresql://127.0.0.1/state?password=s3@cret",
        "postgresql://joe:cret@127.0.0.1:port/state",
        "postgresql://joe:cret@127.0.0.1:123456/state",
        "postgres+x://joe:cret@127.0.0.1/state",
        "mysql://joe:cret@127.0.0.1/state",
        "joe:cret",
        "sqlite://",
        "sqlite:///",
        "",
    ],
)
async def test_a_url_that_names_no_store_is_a_fault_of_the_settings(url, sqlite_backend):
    with pytest.raises(SettingsError, match=r"state\.url") as told:
        await open_state(url, sqlite_backend.clock)
    assert "cret" not in str(told.value)


async def test_options_of_the_address_reach_the_server(postgres_backend):
    url = f"{postgres_backend.url}?sslmode=disable&application_name=sweeper"
    store = await open_state(url, postgres_backend.clock)

    def ask(connection):
        return connection.exec_driver_sql("SHOW application_name").scalar_one()

    try:
        assert await store.database.run(ask) == "sweeper"
    finally:
        await store.aclose()


async def test_connections_cut_by_the_server_are_replaced(postgres_backend):
    store = await postgres_backend.open()
    try:
        await store.start_run(RUN)
        await postgres_backend.server.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{postgres_backend.database}'"
        )
        assert await store.get_run("r1")
    finally:
        await store.aclose()


async def test_a_server_that_stopped_is_an_error_of_the_store(sqlite_backend):
    with running_postgres() as server:
        store = await open_state(server.url(), sqlite_backend.clock)
        await store.ping()
    try:
        with pytest.raises(StateError, match=r"postgresql://postgres@127\.0\.0\.1") as told:
            await store.ping()
        assert hides(server.password, told.value)
    finally:
        await store.aclose()


# SQLite


async def test_a_place_that_cannot_be_made_is_named(sqlite_backend, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match=r"sqlite:///.*file/below/state.db cannot be used"):
        await open_state(f"sqlite:///{tmp_path}/file/below/state.db", sqlite_backend.clock)
    with pytest.raises(StateError, match="unable to open database file"):
        await open_state(f"sqlite:///{tmp_path}", sqlite_backend.clock)


async def test_a_file_that_is_no_database_is_left_as_it_is(sqlite_backend):
    sqlite_file(sqlite_backend).parent.mkdir()
    sqlite_file(sqlite_backend).write_text("somebody's letter " * 100)
    with pytest.raises(StateError, match="not a database"):
        await sqlite_backend.open()
    assert sqlite_file(sqlite_backend).read_text().startswith("somebody's letter")


async def test_a_lock_that_is_held_too_long_is_an_error_of_the_store(sqlite_backend, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    store = await sqlite_backend.open()
    try:
        with contextlib.closing(sqlite3.connect(sqlite_file(sqlite_backend))) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StateError, match="database is locked"):
                await store.start_run(RUN)
            holder.rollback()
        await store.start_run(RUN)
        assert await store.get_run("r1")
    finally:
        await store.aclose()


async def test_a_read_only_file_is_an_error_of_the_store(sqlite_backend):
    await (await sqlite_backend.open()).aclose()
    sqlite_file(sqlite_backend).chmod(0o444)
    sqlite_file(sqlite_backend).parent.chmod(0o555)
    body = """
    async def work(store):
        return "opened"
    """
    (found,) = outcomes([child(body, sqlite_backend.url, preexec_fn=obey_file_modes)])
    sqlite_file(sqlite_backend).parent.chmod(0o755)
    assert found.startswith(f"StateError: the state store {sqlite_backend.url} cannot be used: ")
    assert "readonly" in found or "unable to open" in found


def obey_file_modes():
    """Root writes where it likes, unless it gives up CAP_DAC_OVERRIDE (1) before the next exec."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0  # PR_CAPBSET_DROP


async def test_a_full_disk_is_an_error_and_loses_nothing_written_before(sqlite_backend):
    body = """
    import resource

    async def work(store):
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
        written = 0
        try:
            for number in range(10_000):
                run = CleanupRun(id=f"r{number}", table=ref, location="x" * 2000, started_at=datetime.now(UTC))
                await store.start_run(run)
                written += 1
        except StateError as exc:
            return [written, str(exc)]
        finally:
            await store.aclose()
    """
    ((written, said),) = outcomes([child(body, sqlite_backend.url)])
    assert said.startswith(f"the state store {sqlite_backend.url} cannot be used: ")
    store = await sqlite_backend.open()
    try:
        assert len(await store.list_runs(limit=10_000)) == written > 0
    finally:
        await store.aclose()
