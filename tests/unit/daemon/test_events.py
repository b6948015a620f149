"""What is done to the service is on record, and a restored database does not undo what tightened it."""

import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.admin.auth import mint
from lakesweep.audit import chain
from lakesweep.audit.chain import Segment
from lakesweep.daemon import holds, reload
from lakesweep.daemon.app import App
from lakesweep.daemon.events import CHAIN
from lakesweep.daemon.reload import Replicas
from lakesweep.model.access import Role
from lakesweep.model.errors import AuditFailed, Refused
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    return lake


@asynccontextmanager
async def opened(lake, tmp_path, **sections):
    data = tmp_path / "data"
    settings = lake.settings(service={"data_dir": str(data)}, state={"url": f"sqlite:///{data}/state.db"}, **sections)
    async with App.open(Settings.model_validate(settings)) as app:
        yield app


def hold(scope, *, admin=True):
    return Hold(scope=scope, since=NOW, by="root" if admin else "token 1", reason="why", by_admin=admin)


async def recorded(app):
    head = await app.state.audit_head(CHAIN)
    events = []
    async for segment in app.events._behind(0):
        assert segment.number <= head.last
        events += [(record["event"], record["by"]) for record in segment.records]
    return events


async def a_token(app):
    token, _ = mint(role=Role.READ, tenants=["acme"], now=NOW, lasts=None)
    async with app.events.loosening("token_made", "root", token=token.id):
        await app.state.add_token(token)
    return token


async def revoke(app, token):
    async with app.events.tightening("token_revoked", "root", token=token.id):
        await app.state.revoke_token(token.id, NOW)


async def test_what_people_do_is_recorded_in_a_chain_of_its_own(lake, tmp_path):
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme"))
        await holds.stop(app, hold("*"))
        await holds.resume(app, "*", by="ann", admin=True)
        await revoke(app, await a_token(app))
        assert await recorded(app) == [
            ("paused", "root"),
            ("stopped", "root"),
            ("resumed", "ann"),
            ("token_made", "root"),
            ("token_revoked", "root"),
        ]
        findings = [found async for found in app.trails.inspector().verify(CHAIN)]
    assert [found.faults for found in findings] == [[]]


def back_up(data, tmp_path):
    for file in data.glob("state.db*"):
        shutil.copy(file, tmp_path / f"backup of {file.name}")


def restore(data, tmp_path):
    for file in data.glob("state.db*"):
        file.unlink()
    shutil.copy(tmp_path / "backup of state.db", data / "state.db")


async def test_a_restored_database_revives_no_token_and_forgets_no_hold(lake, tmp_path):
    data = tmp_path / "data"
    async with opened(lake, tmp_path) as app:
        revoked, valid = await a_token(app), await a_token(app)
        await holds.pause(app, hold("acme"))
    back_up(data, tmp_path)
    async with opened(lake, tmp_path) as app:
        await revoke(app, revoked)
        await holds.resume(app, "acme", by="ann", admin=True)
        await holds.pause(app, replace(hold("acme/d"), ends_at=LATER))
    restore(data, tmp_path)
    async with opened(lake, tmp_path) as app:
        assert (await app.state.get_token(revoked.id)).valid_at(NOW)
        assert await app.events.catch_up() == 3
        assert not (await app.state.get_token(revoked.id)).valid_at(NOW)
        assert (await app.state.get_token(valid.id)).valid_at(NOW)
        assert [(one.scope, one.ends_at) for one in await app.state.holds()] == [("acme/d", LATER)]


async def test_a_restored_database_keeps_an_administrators_hold_an_administrators(lake, tmp_path):
    """A tenant's pause of the same scope, and its resume that was too late, are in the chain behind it."""
    data = tmp_path / "data"
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme/d"))
    back_up(data, tmp_path)
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme"))
        await holds.pause(app, hold("acme", admin=False))
        async with app.events.loosening("resumed", "token 1", scope="acme", by_admin=False):
            pass  # the administrator's hold came between the tenant's look and this
    restore(data, tmp_path)
    async with opened(lake, tmp_path) as app:
        assert await app.events.catch_up() == 3
        with pytest.raises(Refused, match="held_by_admin"):
            await holds.resume(app, "acme", by="token 1", admin=False)


@pytest.mark.parametrize("key", [None, b"another installation's"])
async def test_a_planted_event_lifts_no_hold(lake, tmp_path, key):
    """Who may write to `service.artifacts` may not resume: an event that is not signed by us is none."""
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme"))
        head = await app.state.audit_head(CHAIN)
        record = {"record": "event", "event": "resumed", "by": "root", "scope": "acme"}
        planted = Segment(
            table=CHAIN, number=head.last + 1, previous=head.digest, run_id="r9", at=NOW, records=(record,)
        )
        place = chain.segment_place(app.trails.settings.artifacts, CHAIN, head.last + 1)
        Path(place.path).write_bytes(planted.encode(key))
        assert await app.events.catch_up() == 0
        assert [one.scope for one in await app.state.holds()] == ["acme"]
        Path(place.path).write_bytes(planted.encode(app.trails.key))
        assert await app.events.catch_up() == 1  # it was the signature alone that kept it out


async def test_what_cannot_be_recorded_is_not_loosened_but_is_tightened(lake, tmp_path):
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme"))
        artifacts = tmp_path / "data" / "artifacts" / "audit"
        shutil.rmtree(artifacts)
        artifacts.write_text("not a directory")
        with pytest.raises(AuditFailed):
            await holds.resume(app, "acme", by="ann", admin=True)
        await holds.pause(app, hold("acme/d"))
        assert [one.scope for one in await app.state.holds()] == ["acme", "acme/d"]


async def test_a_tenants_token_can_neither_lift_nor_replace_an_administrators_hold(lake, tmp_path):
    async with opened(lake, tmp_path) as app:
        await holds.pause(app, hold("acme"))
        await holds.pause(app, hold("acme", admin=False))
        await holds.stop(app, hold("acme", admin=False))
        with pytest.raises(Refused, match="held_by_admin"):
            await holds.resume(app, "acme", by="token 1", admin=False)
        await holds.pause(app, hold("acme/d", admin=False))
        assert await holds.resume(app, "acme/d", by="token 1", admin=False)
        assert [one.scope for one in await app.state.holds()] == ["acme"]


@pytest.mark.parametrize(("scope", "told"), [("*", False), ("a*", False), ("acme", True), ("acme/d/one", True)])
async def test_the_reason_of_a_hold_on_several_tenants_is_not_in_a_runs_document(lake, tmp_path, scope, told):
    async with opened(lake, tmp_path) as app:
        await app.state.set_hold(Hold(scope=scope, since=NOW, by="root", reason="umbrella was breached"))
        (work,) = await app.resolve("acme/d/one")
        run = await app.run(work, execute=True)
    assert run.refusal.code == "held"
    assert ("umbrella was breached" in run.reason, "by root" in run.reason) == (told, told)


async def test_replicas_with_other_settings_notice_each_other(lake, tmp_path):
    async with opened(lake, tmp_path) as one, opened(lake, tmp_path, daemon={"max_tables": 9}) as two:
        first, second = (Replicas(current=lambda app=app: app) for app in (one, two))
        for replica in (first, second, first):
            await replica.compare()
        assert (first.differs, second.differs) == (two.owner, one.owner)
        assert one.metrics.registry.get_sample_value("lakesweep_settings_differ") == 1
        assert [event for event, _ in await recorded(one)] == ["settings", "settings"]


async def test_replicas_with_the_same_settings_say_nothing(lake, tmp_path):
    async with opened(lake, tmp_path) as one, opened(lake, tmp_path) as two:
        first, second = (Replicas(current=lambda app=app: app) for app in (one, two))
        for replica in (first, second, first):
            await replica.compare()
        assert (first.differs, second.differs) == (None, None)


def test_a_note_that_is_old_or_damaged_says_nothing():
    fresh = '{"replica": "b", "settings": "d", "at": "2026-05-01T12:00:00Z"}'
    assert reload._other(fresh, "a", NOW) == ("b", "d")
    assert reload._other(fresh, "b", NOW) is None
    assert reload._other(fresh, "a", NOW + timedelta(hours=1)) is None
    assert all(reload._other(note, "a", NOW) is None for note in (None, "", "{", "[]", '{"at": 1}'))
