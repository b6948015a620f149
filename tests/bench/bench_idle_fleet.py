"""What a fleet of idle tables costs one replica: `python -m tests.bench.bench_idle_fleet`.

Three costs in CPU seconds of this process, all threads: to know the tables (one discovery), to wait for them (the
scheduler's steps while none is due), and a table's turn in which nothing has changed, from the claim of its lease to
its next due time. Together they give the share of a core for a fleet whose tables are looked at once an hour, and as an
adaptive cadence does, once a week. Each is the median of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
from tests.bench.idle_lake import build, settings

from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.known_tables import Entry
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.daemon.table_run import ScheduledRun, run_scheduled
from lakesweep.daemon.tenant_threads import TenantThreads
from lakesweep.ports.state import DueTime
from lakesweep.settings.observability import LoggingSettings
from lakesweep.telemetry import logs

ROUNDS = 5
LOOKS = 20


def cpu() -> float:
    """Of all threads, so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(home: Path, tables: int, seconds: float) -> None:
    """Print it."""
    asyncio.get_running_loop().set_default_executor(TenantThreads())  # as the service does
    async with App.open(settings(home / "lake", home / "state")) as app:
        scheduler = Scheduler(app)
        discovery = statistics.median([await _discovery(scheduler) for _ in range(ROUNDS)])
        assert len(scheduler.known_tables.entries) == tables, len(scheduler.known_tables.entries)
        now = app.clock.now()
        later = DueTime(table="", next_due=now + timedelta(hours=20), last_finished=now, last_outcome="done")
        for label in scheduler.known_tables.entries:
            await app.state.set_due(replace(later, table=label))
        waiting = asyncio.create_task(scheduler.run())
        await asyncio.sleep(3)
        before = cpu()
        await asyncio.sleep(seconds)
        idle = (cpu() - before) / seconds
        scheduler.stop()
        await waiting
        turns = await _turns(home / "few")
        turn = statistics.mean(turns.values())
        memory = psutil.Process().memory_info().rss / 2**20
        every = app.settings.daemon.discovery_seconds
    print(f"{tables} tables: discovery {discovery:.2f} s of CPU, every {every} s: {discovery / every:.2%} of a core")
    print(f"waiting {idle:.2%} of a core")
    print("an unchanged turn: " + ", ".join(f"{kind} {cost * 1000:.1f} ms" for kind, cost in turns.items()))
    for name, hours in (("hourly", 1), ("weekly", 168)):
        print(f"looked at {name}: {idle + discovery / every + turn * tables / hours / 3600:.2%} of a core")
    print(f"memory {memory:.0f} MiB")


async def _discovery(scheduler: Scheduler) -> float:
    list(scheduler.known_tables.wanted(scheduler.app.clock.now()))  # as if it were time
    before = cpu()
    for tenant, dataset in scheduler.app.discovery.datasets():
        await scheduler.known_tables.look(tenant, dataset)
    return cpu() - before


async def _turns(home: Path) -> dict[str, float]:
    """CPU seconds of a turn that finds its table unchanged, by format. On a lake of its own: the cycles before it look
    at all tables of the tenant."""
    build(home / "lake", 3)
    async with App.open(settings(home / "lake", home / "state")) as app:
        scheduler = Scheduler(app)
        await _discovery(scheduler)
        return {str(one.work.ref.format): await _turn(app, one) for one in scheduler.known_tables.entries.values()}


async def _turn(app: App, entry: Entry) -> float:
    for _ in range(4):  # the first ones clean, and note that they did
        await run_scheduled(ScheduledRun(entry=entry, run_id=new_run_id(), since=app.clock.now()), lambda: 0.5)
        await _make_due(app, entry.label)
    costs: list[float] = []
    for _ in range(ROUNDS):
        spent = 0.0
        for _ in range(LOOKS):
            before = cpu()
            await run_scheduled(ScheduledRun(entry=entry, run_id=new_run_id(), since=app.clock.now()), lambda: 0.5)
            spent += cpu() - before
            await _make_due(app, entry.label)
        costs.append(spent / LOOKS)
    (run,) = await app.state.list_runs(table=entry.label, limit=1)
    assert run["reason"] == "unchanged", run
    return statistics.median(costs)


async def _make_due(app: App, label: str) -> None:
    now = app.clock.now()
    due = DueTime(table=label, next_due=now - timedelta(seconds=1), last_finished=now - timedelta(hours=1))
    await app.state.set_due(replace(due, last_outcome="done"))


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    logs.configure(LoggingSettings(format="json"))
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "lake", given.tables)
        asyncio.run(measure(Path(folder), given.tables, given.seconds))


if __name__ == "__main__":
    main()
