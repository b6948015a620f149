"""What only the stores with a database behind them must do: last, migrate, and fail in clear words."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine
from tests.contract.state_child import child, outcomes

from lakesweep.model.errors import LeaseLost, StateError
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import BatchRecord, BatchState, DueTime, Hold, LedgerHeader, PlanHeader
from lakesweep.state import schema
from lakesweep.state.migrations import versions
from lakesweep.state.registry import describe

TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NEWEST = max(step.stem[1:5] for step in Path(versions.__file__).parent.glob("v[0-9]*.py"))
RUN = CleanupRun(id="r1", table=TABLE, location=None, started_at=NOON)

# Lasting


async def test_everything_survives_a_restart(durable_backend):
    plan = PlanHeader(
        run_id="r1", table=TABLE.label, head="h", digest="d", rows_path="p", candidates=1, bytes=2, created_at=NOON
    )
    due = DueTime(table=TABLE.label, next_due=NOON, last_finished=NOON, last_outcome="done", failures=1)
    ledger = LedgerHeader(table=TABLE.label, rows_path="l", updated_at=NOON, run_id="r1")
    first = await durable_backend.open()
    await first.start_run(RUN)
    await first.save_plan(plan)
    lease = await first.acquire_lease(TABLE.label, "a", MINUTE)
    intent = BatchRecord(run_id="r1", number=0, first=0, count=1, state=BatchState.INTENT, fencing_token=lease.token)
    await first.begin_batch(intent)
    await first.set_pending_expiry(TABLE.label, "h0", "r1")
    await first.set_due(due)
    await first.set_ledger(ledger)
    document = await first.get_run("r1")
    await first.aclose()

    second = await durable_backend.open()
    try:
        assert await second.get_run("r1") == document
        assert await second.get_plan("r1") == plan
        assert await second.journal("r1") == [intent]
        assert await second.pending_expiry(TABLE.label) == "h0"
        assert await second.due_times() == [due]
        assert await second.get_ledger(TABLE.label) == ledger
        await second.check_lease(lease)
        assert await second.acquire_lease(TABLE.label, "b", MINUTE) is None
        await second.release_lease(lease)
        assert (await second.acquire_lease(TABLE.label, "b", MINUTE)).token == lease.token + 1
        with pytest.raises(LeaseLost):
            await second.check_lease(lease)
    finally:
        await second.aclose()


async def test_a_store_is_described_without_being_made_or_changed(durable_backend):
    nothing = await describe(durable_backend.url)
    assert re.search("is created by the first run|has no tables yet: the first run creates them", nothing)
    assert await describe(durable_backend.url) == nothing
    store = await durable_backend.open()
    try:
        assert (await describe(durable_backend.url)).endswith(f" can be read, schema {NEWEST}")
    finally:
        await store.aclose()


async def test_a_cancelled_caller_leaves_the_store_whole(durable_backend):
    store = await durable_backend.open()
    try:
        await store.start_run(RUN)
        for delay in range(30):
            task = asyncio.create_task(store.acquire_lease(TABLE.label, "a", MINUTE))
            await asyncio.sleep(delay / 5000)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        before = await store.acquire_lease(TABLE.label, "a", MINUTE)
        after = await store.acquire_lease(TABLE.label, "a", MINUTE)
        assert after.token == before.token + 1
    finally:
        await store.aclose()


async def test_sqlite_keeps_a_write_ahead_log_and_checks_foreign_keys(sqlite_backend):
    store = await sqlite_backend.open()
    try:
        found = {name: await pragma(store, name) for name in ("journal_mode", "foreign_keys", "synchronous")}
    finally:
        await store.aclose()
    assert found == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 2}


async def pragma(store, name):
    def ask(connection):
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

    return await store.database.run(ask)


async def test_leases_on_postgres_follow_the_clock_of_the_server(postgres_backend):
    """A replica whose own clock is years off neither steals nor loses a lease."""
    mine, theirs = await postgres_backend.open(), await postgres_backend.open()
    try:
        lease = await mine.acquire_lease(TABLE.label, "a", MINUTE)
        postgres_backend.clock.moment += timedelta(days=3650)
        assert await theirs.acquire_lease(TABLE.label, "b", MINUTE) is None
        await mine.check_lease(lease)
    finally:
        await mine.aclose()
        await theirs.aclose()


async def test_a_hold_on_postgres_ends_only_when_both_clocks_say_so(postgres_backend):
    """A server, or a replica, whose clock is years ahead ends no hold."""
    store = await postgres_backend.open()
    try:
        ahead = Hold(scope="acme", since=NOON, by="ann", ends_at=postgres_backend.clock.now() + MINUTE)
        await store.set_hold(ahead)  # in the past for the server, which has the real time
        assert await store.holds() == [ahead]
        postgres_backend.clock.moment += timedelta(days=36500)
        later = Hold(scope="zeta", since=NOON, by="ann", ends_at=datetime.now(UTC) + 1000 * MINUTE)
        await store.set_hold(later)
        assert [hold.scope for hold in await store.holds()] == ["zeta"]
        assert [hold.scope for hold in await store.ended_holds()] == ["acme"]
        assert await store.forget_ended_holds(postgres_backend.clock.now()) == 1
        assert [hold.scope for hold in await store.holds()] == ["zeta"]
    finally:
        await store.aclose()


# Migrating


async def test_a_hold_of_an_older_version_stays_until_it_is_resumed(durable_backend):
    await make_older(durable_backend, "0007")
    await execute(
        durable_backend,
        "INSERT INTO lakesweep_holds (scope, since, by, by_admin) VALUES ('acme', '2026-03-01 12:00:00', 'ann', '0')",
    )
    store = await durable_backend.open()
    try:
        (hold,) = await store.holds()
        assert (hold.scope, hold.by, hold.by_admin, hold.ends_at) == ("acme", "ann", False, None)
    finally:
        await store.aclose()


@pytest.mark.parametrize("earlier_end", [-MINUTE, MINUTE])
async def test_a_hold_set_by_an_older_replica_has_no_end_of_the_one_before(durable_backend, earlier_end):
    """While replicas are replaced one by one, an old one writes the columns that it knows and leaves the end there."""
    store = await durable_backend.open()
    try:
        now = datetime.now(UTC)
        durable_backend.clock.moment = now
        await store.set_hold(Hold(scope="acme", since=NOON, by="ann", ends_at=now + earlier_end))
        await execute(
            durable_backend,
            "INSERT INTO lakesweep_holds (scope, since, by, reason, by_admin) "
            "VALUES ('acme', '2026-03-01 13:00:00', 'lakesweep', 'ref_lost', '1') ON CONFLICT (scope) DO UPDATE SET "
            "since = excluded.since, by = excluded.by, reason = excluded.reason, by_admin = excluded.by_admin",
        )
        await durable_backend.advance(3600)
        (hold,) = await store.holds()
        assert (hold.by, hold.reason, hold.ends_at) == ("lakesweep", "ref_lost", None)
        assert await store.ended_holds() == []
        assert await store.forget_ended_holds(durable_backend.clock.now()) == 0
        await store.set_hold(Hold(scope="acme", since=now, by="ann", ends_at=now + 1000 * MINUTE))
        assert [one.ends_at for one in await store.holds()] == [None]
    finally:
        await store.aclose()


async def test_the_migrations_lead_to_exactly_the_schema_of_the_code(durable_backend):
    await make_older(durable_backend)
    store = await durable_backend.open()

    def differences(connection):
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata)

    try:
        assert await store.database.run(differences) == []
    finally:
        await store.aclose()


async def test_an_old_database_becomes_what_a_new_one_is_made_as(durable_backend):
    made = await shape(durable_backend)
    await make_older(durable_backend)
    older = await shape(durable_backend, opened=False)
    assert older != made
    assert await shape(durable_backend) == made
    assert made["lakesweep_version"]["rows"] == [NEWEST] == [schema.NEWEST]
    assert len(made) == len(schema.metadata.tables)


async def make_older(backend, version="0001"):
    """Leave the database as an earlier version of the program made it, the first or another."""
    await (await backend.open()).aclose()
    await ask(backend, schema.metadata.drop_all)

    def first_step(connection):
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "lakesweep.state:migrations")
        command.upgrade(config, version)

    await ask(backend, first_step)


async def shape(backend, *, opened=True):
    """Every table with its columns in their order, its keys and its indexes; by the program, or just by looking."""

    def look(connection):
        seen = sa.inspect(connection)
        rows = connection.execute(sa.select(schema.version.c.version_num)).scalars().all()
        return {
            table: {
                "columns": [(one["name"], str(one["type"]), one["nullable"]) for one in seen.get_columns(table)],
                "key": seen.get_pk_constraint(table),
                "foreign": seen.get_foreign_keys(table),
                "indexes": sorted(seen.get_indexes(table), key=lambda index: index["name"]),
                "rows": rows if table == schema.VERSION_TABLE else None,
            }
            for table in seen.get_table_names()
        }

    if opened:
        await (await backend.open()).aclose()
    return await ask(backend, look)


async def ask(backend, question):
    """Put a question to the bare database, which may be of any version."""
    if backend.url.startswith("sqlite://"):
        engine = sa.create_engine(backend.url)
        with engine.begin() as connection:
            found = question(connection)
        engine.dispose()
        return found
    servers = create_async_engine(backend.url.replace("postgresql://", "postgresql+asyncpg://"))
    async with servers.begin() as connection:
        found = await connection.run_sync(question)
    await servers.dispose()
    return found


async def test_four_stores_open_one_empty_database_at_once(durable_backend):
    stores = await asyncio.gather(*(durable_backend.open() for _ in range(4)))
    try:
        await stores[0].start_run(RUN)
        assert [len(await store.list_runs()) for store in stores] == [1, 1, 1, 1]
    finally:
        for store in stores:
            await store.aclose()


async def test_four_processes_open_one_empty_database_at_once(durable_backend):
    body = """
    async def work(store):
        lease = await store.acquire_lease("acme/prod/events", str(os.getpid()), timedelta(minutes=1))
        await store.aclose()
        return lease and lease.token
    """
    found = outcomes([child(body, durable_backend.url) for _ in range(4)])
    assert sorted(found, key=str) == [1, None, None, None]


async def test_a_database_from_the_future_is_refused_and_left_alone(durable_backend):
    store = await durable_backend.open()
    await store.start_run(RUN)
    await store.aclose()
    await execute(durable_backend, "UPDATE lakesweep_version SET version_num = '9999'")
    with pytest.raises(StateError, match=r"newer Lakesweep \(its schema is 9999"):
        await durable_backend.open()
    await execute(durable_backend, f"UPDATE lakesweep_version SET version_num = '{NEWEST}'")
    store = await durable_backend.open()
    assert await store.get_run("r1")
    await store.aclose()


async def execute(backend, statement):
    if backend.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_file(backend))) as connection, connection:
            connection.execute(statement)
    else:
        await backend.execute(statement)


def sqlite_file(backend):
    return Path(backend.url.removeprefix("sqlite:///"))
