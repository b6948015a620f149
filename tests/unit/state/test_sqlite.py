"""A state store in a file: whole transactions in one thread, and nobody waits for ever behind a locked file."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.sql import sqltypes
from tests.builders.audits import a_run

from lakesweep.cleanup.report import run_document
from lakesweep.model.errors import StateError
from lakesweep.ports.state import DueTime
from lakesweep.state import sqlite
from lakesweep.state.schema import due_times, plans
from lakesweep.state.store import SqlStateStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FixedClock:
    def now(self):
        return NOON


@pytest.fixture
async def store(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    opened = SqlStateStore(await sqlite.open_sqlite(str(tmp_path / "state.db"), FixedClock()))
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError])
async def test_a_transaction_that_fails_half_way_is_undone_and_the_next_one_is_not(store, error):
    def fails(connection):
        connection.execute(sa.insert(due_times), {"table": "t", "next_due": NOON, "failures": 0})
        raise error

    with pytest.raises(error):
        await store.database.run(fails)
    await store.set_due(DueTime(table="u", next_due=NOON))
    assert [due.table for due in await store.due_times()] == ["u"]


async def test_a_run_that_an_older_version_wrote_has_every_field(store, tmp_path):
    run = a_run()
    await store.start_run(run)
    with closing(sqlite3.connect(tmp_path / "state.db")) as raw, raw:
        (text,) = raw.execute("SELECT document FROM lakesweep_runs").fetchone()
        old = {name: value for name, value in json.loads(text).items() if name not in ("unconfirmed", "interrupted")}
        raw.execute("UPDATE lakesweep_runs SET document = ?", [json.dumps(old)])
    whole = run_document(run)
    assert await store.get_run(run.id) == whole
    assert await store.list_runs() == await store.open_runs(run.table.label) == [whole]
    assert await store.last_runs([run.table.label]) == {run.table.label: whole}


async def test_a_commit_that_fails_is_undone_and_the_next_one_is_not(store):
    def fails_at_its_end(connection):
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        texts = dict.fromkeys(("run_id", "table", "head", "digest", "rows_path"), "nobody's")
        connection.execute(sa.insert(plans), {**texts, "candidates": 0, "bytes": 0, "created_at": NOON})

    with pytest.raises(StateError, match="FOREIGN KEY"):
        await store.database.run(fails_at_its_end)
    assert await store.get_plan("nobody's") is None
    await store.set_due(DueTime(table="u", next_due=NOON))
    assert [due.table for due in await store.due_times()] == ["u"]


async def test_a_caller_cancelled_twice_half_way_leaves_a_whole_transaction(store):
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection):
        begun.set()
        go_on.wait(10)
        for table in ("t", "u"):
            connection.execute(sa.insert(due_times), {"table": table, "next_due": NOON, "failures": 0})

    caller = asyncio.create_task(store.database.run(slow))
    await asyncio.to_thread(begun.wait)
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert [due.table for due in await store.due_times()] == ["t", "u"]


async def test_waiters_for_a_locked_file_time_out_together(store, tmp_path):
    dues = [DueTime(table=f"t{number}", next_due=NOON) for number in range(5)]
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = await asyncio.gather(*(store.set_due(due) for due in dues), return_exceptions=True)
    assert [type(one) for one in said] == [StateError] * 5
    assert ["no write lock" in str(one) for one in said] == [False, True, True, True, True]
    await store.set_due(dues[0])
    assert await store.due_times() == [dues[0]]


async def test_many_due_times_come_in_order(store):
    dues = [DueTime(table=f"t{number:04}", next_due=NOON + timedelta(seconds=number)) for number in range(600)]

    def fill(connection):
        for due in reversed(dues):
            row = {"table": due.table, "next_due": due.next_due, "failures": 0}
            connection.execute(sa.insert(due_times), row)

    await store.database.run(fill)
    assert await store.due_times() == dues


async def test_a_closed_store_can_be_closed_again(store):
    await store.aclose()
    await store.aclose()
    assert await store.due_times() == []


async def test_nothing_is_asked_of_an_orm_that_another_thread_may_be_importing(store, monkeypatch):
    def asked(*_):
        raise AssertionError("the type of a value was looked for")

    monkeypatch.setattr(sqltypes.inspection, "inspect", asked)
    assert await store.forget_runs(NOON, 10) == (0, [])
    assert await store.list_runs(tenants=[]) == []
