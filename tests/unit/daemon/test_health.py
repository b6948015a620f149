"""Health tells the truth: state store, scheduler, shutdown, and how long ago a cycle ended."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.admin.app import metrics_app
from lakesweep.daemon import health
from lakesweep.daemon.admin_service import AdminService
from lakesweep.daemon.app import App
from lakesweep.daemon.service import Service
from lakesweep.model.errors import StateError
from lakesweep.settings.schema import Settings


@pytest.fixture
async def service(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    settings = Settings.model_validate(lake.settings(state={"url": "memory://"}))
    async with App.open(settings) as app:
        yield Service(app, file=None, load=lambda: settings)


async def step(service):
    async with asyncio.TaskGroup() as tasks:
        await service.scheduler.step(tasks)


async def test_a_scheduler_that_has_not_begun_is_not_well(service):
    found = await service.checkup.alive()
    assert not found.well
    assert found.checks["scheduler"] == "the scheduler has not started"


async def test_a_working_service_is_alive_and_ready_and_reports_its_last_cycle(service):
    await step(service)
    assert (await service.checkup.ready()).checks["last_cycle"] == "none yet"
    await step(service)
    found = await service.checkup.ready()
    assert found.well
    assert (found.checks["state"], found.checks["scheduler"], found.checks["settings"]) == ("ok", "ok", "ok")
    assert found.checks["last_cycle"].startswith("ended ")
    assert (await service.checkup.alive()).well


async def test_a_scheduler_that_hangs_is_neither_alive_nor_ready(service):
    await step(service)
    service.scheduler.last_beat -= health.STUCK_SECONDS + 1
    assert not (await service.checkup.alive()).well
    assert not (await service.checkup.ready()).well


async def test_a_service_whose_every_place_hangs_is_not_alive(service, monkeypatch):
    await step(service)
    monkeypatch.setattr(health.activity, "seconds_since", lambda: health.STALLED_SECONDS + 1)
    assert (await service.checkup.alive()).well
    service.scheduler.running.update({f"acme/d/{number}": None for number in range(4)})
    found = await service.checkup.alive()
    assert not found.well
    assert found.checks["progress"].startswith("no table has made progress for 3601 s")
    monkeypatch.setattr(health.activity, "seconds_since", lambda: 10.0)
    assert (await service.checkup.alive()).well


async def test_without_the_state_store_it_is_alive_but_not_ready(service):
    async def away():
        raise StateError("the state store postgresql://secret@db is away")

    await step(service)
    service.app.state.ping = away
    assert (await service.checkup.alive()).well
    found = await service.checkup.ready()
    assert not found.well
    assert found.checks["state"] == "the state store cannot be used"


async def test_a_state_store_that_never_answers_is_not_waited_for(service, monkeypatch):
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.05)
    await step(service)
    service.app.state.ping = asyncio.Event().wait
    assert "did not answer" in (await service.checkup.ready()).checks["state"]


async def test_a_service_that_is_being_stopped_is_alive_but_not_ready(service):
    await step(service)
    service.shutdown.requested.set()
    assert (await service.checkup.alive()).well
    assert not (await service.checkup.ready()).well


async def test_a_settings_file_at_fault_is_reported_without_its_names(service):
    await step(service)
    service.reloader.problem = "tenants[acme].root: wrong"
    found = await service.checkup.ready()
    assert found.well
    assert "still using the previous ones" in found.checks["settings"]
    assert "acme" not in str(found.checks)
    assert service.reloader.problem == "tenants[acme].root: wrong"


async def test_the_age_of_the_last_cycle_is_never_negative(service):
    await step(service)
    service.scheduler.last_finished = datetime.now(UTC) + timedelta(days=1)
    assert (await service.checkup.alive()).checks["last_cycle"] == "ended 0 s ago"


async def test_the_metrics_port_answers_scrapes_and_probes(service):
    app = metrics_app(AdminService(service.scheduler, service.checkup))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://daemon") as client:
        assert (await client.get("/readyz")).status_code == 503
        await step(service)
        for path in ("/readyz", "/healthz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        scraped = await client.get("/metrics")
        assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "lakesweep_tables_known" in scraped.text
        assert "lakesweep_event_loop_lag_seconds_bucket" in scraped.text
        assert "process_resident_memory_bytes" in scraped.text
        assert (await client.get("/")).status_code == 404
