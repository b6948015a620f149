"""The laws of audit headers, tokens and pages of runs, on every state store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.model.access import ApiToken, Role
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import AuditHeader

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
OTHER = replace(TABLE, tenant=TenantId("umbrella"))
TOKEN = ApiToken(
    id="t1", digest="d1", role=Role.OPERATE, tenants=("acme", "umbrella"), created_at=NOON, expires_at=NOON
)
HEADER = AuditHeader(run_id="r1", table=TABLE.label, first=3, last=3, digest="d3")


async def add_runs(store, *runs):
    for index, (run_id, table) in enumerate(runs):
        started_at = NOON + timedelta(seconds=index // 2)  # two of them start at the same time
        await store.start_run(CleanupRun(id=run_id, table=table, location=None, started_at=started_at))


async def ids(store, **filters):
    return [run["run_id"] for run in await store.list_runs(**filters)]


async def test_runs_are_given_by_tenant(store):
    await add_runs(store, ("r0", TABLE), ("r1", OTHER), ("r2", TABLE))
    assert await ids(store, tenants=["acme"]) == ["r2", "r0"]
    assert await ids(store, tenants=["acme", "umbrella"]) == ["r2", "r1", "r0"]
    assert await ids(store, tenants=[]) == []
    assert await ids(store, tenants=["umbrella"], table=TABLE.label) == []


async def test_pages_of_runs_leave_none_out_and_repeat_none(store):
    await add_runs(store, *((f"r{number}", TABLE if number % 3 else OTHER) for number in range(9)))
    for tenants in (None, ["acme"]):
        whole = await ids(store, tenants=tenants)
        paged, before = [], None
        while page := await ids(store, tenants=tenants, before=before, limit=2):
            paged += page
            before = page[-1]
        assert paged == whole


async def test_nothing_is_older_than_a_run_that_is_not_there(store):
    await add_runs(store, ("r0", TABLE))
    assert await ids(store, before="none") == []


async def test_an_audit_header_only_moves_on(store):
    await store.set_audit(HEADER)
    await store.set_audit(replace(HEADER, first=5, last=5, digest="d5"))
    await store.set_audit(replace(HEADER, first=4, last=4, digest="d4"))
    assert await store.get_audit("r1") == replace(HEADER, last=5, digest="d5")
    assert await store.get_audit("none") is None


async def test_of_audit_headers_that_come_at_once_the_one_that_goes_furthest_stays(store):
    runs = [f"r{number}" for number in range(8)]
    headers = [replace(HEADER, run_id=run, last=last, digest=f"d{last}") for run in runs for last in (3, 4, 5, 7, 6)]
    await asyncio.gather(*map(store.set_audit, headers))
    assert [await store.get_audit(run) for run in runs] == [
        replace(HEADER, run_id=run, last=7, digest="d7") for run in runs
    ]


async def test_the_head_of_a_trail_is_the_header_that_reaches_furthest(store):
    assert await store.audit_head(TABLE.label) is None
    await store.set_audit(replace(HEADER, run_id="r2", first=10, last=12))
    await store.set_audit(HEADER)
    await store.set_audit(replace(HEADER, run_id="r3", table=OTHER.label, last=99))
    assert (await store.audit_head(TABLE.label)).run_id == "r2"
    assert await store.audited_tables() == [TABLE.label, OTHER.label]


async def test_a_token_comes_back_as_it_was(store):
    await store.add_token(TOKEN)
    await store.add_token(replace(TOKEN, id="t0", created_at=NOON + timedelta(days=1), expires_at=None))
    assert await store.get_token("t1") == TOKEN
    assert await store.get_token("none") is None
    assert [token.id for token in await store.list_tokens()] == ["t1", "t0"]


async def test_an_id_is_given_to_one_token_only(store):
    await store.add_token(TOKEN)
    with pytest.raises(StateError, match="t1"):
        await store.add_token(replace(TOKEN, digest="d2"))
    assert (await store.get_token("t1")).digest == "d1"


async def test_a_revoked_token_stays_revoked_from_the_first_time_on(store):
    await store.add_token(TOKEN)
    assert await store.revoke_token("t1", NOON)
    assert await store.revoke_token("t1", NOON + timedelta(days=1))
    assert (await store.get_token("t1")).revoked_at == NOON
    assert not await store.revoke_token("none", NOON)


def test_a_token_is_valid_until_its_end_and_never_after_its_revocation():
    late = NOON + timedelta(days=1)
    assert not TOKEN.valid_at(NOON)
    assert TOKEN.valid_at(NOON - timedelta(microseconds=1))
    assert replace(TOKEN, expires_at=None).valid_at(late)
    assert not replace(TOKEN, expires_at=None, revoked_at=late).valid_at(NOON)
