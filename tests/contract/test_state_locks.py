"""What a batch and a new owner of its lease do to each other in PostgreSQL, with each transaction held at its worst
moment by another connection."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
import sqlalchemy as sa
from tests.builders.state_records import MINUTE, TABLE, a_batch, lease_with_run

from lakesweep.model.errors import LeaseLost, StateError
from lakesweep.state import postgres

CHANGES = {
    "new owner": "UPDATE lakesweep_leases SET owner = 'other', token = token + 1",
    "ended": "UPDATE lakesweep_leases SET expires_at = clock_timestamp()",
}
USES = {
    "begin_batch": lambda store, lease: store.begin_batch(a_batch(0, lease.token)),
    "renew_lease": lambda store, lease: store.renew_lease(lease, MINUTE),
    "check_lease": lambda store, lease: store.check_lease(lease),
}


@pytest.fixture
async def store(postgres_backend):
    opened = await postgres_backend.open()
    yield opened
    await opened.aclose()


@pytest.fixture
async def holder(postgres_backend):
    """A connection in the middle of a transaction of its own."""
    connection = await asyncpg.connect(postgres_backend.url)
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


async def held_or_done(*tasks, connection):
    """Wait until each task is over or waits for a lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(30):
        while await connection.fetchval(waiting) < sum(not task.done() for task in tasks):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_a_lease_under_change_counts_once_the_change_is_known(store, holder, use, change):
    """It was valid when the lock was asked for, and is not when it is given."""
    lease = await lease_with_run(store)
    await holder.execute("SELECT * FROM lakesweep_leases FOR UPDATE")
    using = asyncio.create_task(use(store, lease))
    await held_or_done(using, connection=holder)
    await holder.execute(change)
    await holder.execute("COMMIT")
    with pytest.raises(LeaseLost):
        await using
    assert await store.journal("r1") == []


async def test_no_new_owner_is_let_in_while_a_batch_is_being_journaled(store, holder):
    """The lease stays locked until the intent is written, so whoever is granted the next one reads it."""
    lease = await lease_with_run(store)

    async def take_over():
        await store.acquire_lease(TABLE.label, "worker", MINUTE)
        return [batch.number for batch in await store.journal("r1")]

    await holder.execute("SELECT * FROM lakesweep_runs FOR UPDATE")  # which an intent refers to
    beginning = asyncio.create_task(store.begin_batch(a_batch(0, lease.token)))
    await held_or_done(beginning, connection=holder)
    taking_over = asyncio.create_task(take_over())
    await held_or_done(beginning, taking_over, connection=holder)
    await holder.execute("ROLLBACK")
    await beginning
    assert await taking_over == [0]


async def test_a_replica_that_stands_still_in_a_transaction_keeps_no_table(postgres_backend, store, monkeypatch):
    """Frozen, or cut off from the network: its lease ends, so what it has locked must come free too."""
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", 5.0)
    frozen = await postgres_backend.open()
    waiting = await postgres_backend.open()
    locked, wakes_up = asyncio.Event(), asyncio.Event()
    await frozen.acquire_lease(TABLE.label, "frozen", MINUTE / 600)

    def stand_still(connection):
        connection.execute(sa.text("SELECT * FROM lakesweep_leases FOR UPDATE"))
        locked.set()
        sa.util.await_only(wakes_up.wait())
        connection.execute(sa.text("SELECT 1"))

    standing = asyncio.create_task(frozen.database.run(stand_still))
    await locked.wait()
    assert await waiting.acquire_lease(TABLE.label, "another", MINUTE)
    wakes_up.set()
    with pytest.raises(StateError):
        await standing
    await frozen.check_lease(await frozen.acquire_lease("acme/prod/other", "frozen", MINUTE))  # it goes on by itself
    await frozen.aclose()
    await waiting.aclose()
