"""A held table is not executed, and a refusal that must not be forgotten leaves a hold behind."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.builders.cycles import SetClock
from tests.builders.small_lake import LocalLake, small_table, write_local

from lakesweep.daemon import holds
from lakesweep.daemon.app import App
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.run import CleanupRun, Outcome, Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings
from lakesweep.state.memory import MemoryStateStore

NOW = datetime(2026, 5, 1, tzinfo=UTC)
REF = TableRef(tenant=TenantId("acme"), dataset="shop", name="orders[1]", format=FormatName.ICEBERG)
RUN = CleanupRun(id="r", table=REF, location=None, started_at=NOW, outcome=Outcome.REFUSED)


@pytest.fixture
async def app(tmp_path):
    root = str(tmp_path / "lake")
    dataset = {"id": "shop", "format": "delta", "location": root}
    tenants = [{"id": "acme", "root": root, "datasets": [dataset]}]
    own = {"state": {"url": "memory://"}, "service": {"data_dir": str(tmp_path / "data")}}
    async with App.open(Settings.model_validate({"tenants": tenants, **own})) as app:
        yield app


@pytest.fixture
def state():
    return MemoryStateStore(SetClock(NOW))


@pytest.mark.parametrize("code", ["ref_lost", "ref_unverified"])
async def test_a_lost_ref_holds_its_table_and_no_other_until_a_person_lifts_it(state, code):
    await holds.hold_if_lasting(state, replace(RUN, refusal=Refusal(code=code, reason="tag audit is gone")), NOW)
    with pytest.raises(Refused, match="tag audit is gone") as refused:
        await holds.refuse_held(state, REF.label)
    assert refused.value.code == "held"
    await holds.refuse_held(state, "acme/shop/orders1")
    (hold,) = await state.holds()
    assert f"lakesweep resume '{hold.scope}'" in refused.value.reason
    assert await state.clear_hold(hold.scope)
    await holds.refuse_held(state, REF.label)


@pytest.mark.parametrize("refusal", [None, Refusal(code="missing_live_files", reason="one")])
async def test_other_outcomes_hold_nothing(state, refusal):
    await holds.hold_if_lasting(state, replace(RUN, refusal=refusal), NOW)
    assert await state.holds() == []


@pytest.mark.parametrize(
    "scope", ["*", "acme", "ac*", "acme/shop", "acme/shop/any table", "location", "location/delta/*"]
)
async def test_what_names_something_is_held(app, scope):
    await holds.pause(app, Hold(scope=scope, since=NOW, by="ann"))
    assert [hold.scope for hold in await app.state.holds()] == [scope]


async def test_a_table_whose_name_looks_like_a_pattern_is_held_by_that_name(state):
    await state.set_hold(Hold(scope="acme/shop/orders[1]", since=NOW, by="ann"))
    with pytest.raises(Refused, match="held"):
        await holds.refuse_held(state, "acme/shop/orders[1]")


@pytest.mark.parametrize(
    ("scope", "held"),
    [("*", True), ("acme", True), ("acme/*", True), ("location", True), ("acme/shop", False), ("zeta", False)],
)
async def test_a_pause_of_a_tenant_holds_locations_in_its_root_that_no_dataset_has(tmp_path, scope, held):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    bare, table = tmp_path / "lake" / "acme" / "elsewhere", small_table("elsewhere")
    write_local(bare, table)
    async with App.open(Settings.model_validate(lake.settings(state={"url": "memory://"}))) as app:
        await app.state.set_hold(Hold(scope=scope, since=NOW, by="ann"))
        (work,) = await app.resolve(str(bare))
        run = await app.run(work, execute=True)
    assert work.bare
    assert (run.refusal is not None and run.refusal.code == "held") is held
    assert all((bare / orphan).exists() is held for orphan in table.orphans)


@pytest.mark.parametrize("scope", ["acne", "acme/shap", "acne/*", "shop"])
async def test_a_slip_in_a_name_does_not_look_like_a_pause(app, scope):
    with pytest.raises(UnknownTable, match=re.escape(scope)):
        await holds.pause(app, Hold(scope=scope, since=NOW, by="ann"))
    assert await app.state.holds() == []


async def test_a_tenant_has_only_so_many_holds_and_others_have_theirs(app, monkeypatch):
    monkeypatch.setattr(holds, "MAX_HOLDS", 2)
    for scope in ("acme/shop/a", "acme/shop/b", "acme/shop/b"):
        await holds.pause(app, Hold(scope=scope, since=NOW, by="ann"))
    with pytest.raises(Refused, match="too_many_holds"):
        await holds.pause(app, Hold(scope="acme/shop/c", since=NOW, by="ann"))
    await holds.pause(app, Hold(scope="*", since=NOW, by="root"))
    assert [hold.scope for hold in await app.state.holds()] == ["*", "acme/shop/a", "acme/shop/b"]
