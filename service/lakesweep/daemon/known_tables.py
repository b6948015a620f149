"""The tables that the service knows: discovered dataset by dataset, each with its schedule. Starts nothing.

A dataset that cannot be discovered keeps the tables that it had, which then fail one by one with their own reason, and
is discovered again sooner. A level with `enabled = false` is not discovered at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from lakesweep.aio import working_for
from lakesweep.daemon.app import App
from lakesweep.daemon.cadence import Rules
from lakesweep.daemon.discovery import whole_dataset
from lakesweep.daemon.due_times import Schedule
from lakesweep.daemon.limits import Slots
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import CatalogUnavailable
from lakesweep.model.policy import CadenceKind
from lakesweep.retry import doubled
from lakesweep.settings.cascade import cleanup_for
from lakesweep.settings.cleanup import OrphanCleanupSettings
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

log = structlog.get_logger()

LOOK_SECONDS = 300
"""A catalog that has not listed its tables after this time counts as unreachable."""
LOOKS_AT_ONCE = 4
FIRST_RETRY = timedelta(seconds=10)
TABLES_AT_A_TIME = 1000

DatasetKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One table with what the settings say of it."""

    work: Work
    app: App
    """The settings and adapters that it was discovered with."""
    schedule: Schedule
    enabled: bool

    @property
    def label(self) -> str:
        return self.work.ref.label


@dataclass(slots=True, kw_only=True)
class _Dataset:
    next_look: datetime
    failures: int = 0
    looking: bool = False
    looked: bool = False
    """At least once, under the present settings."""
    empty: bool = False
    labels: set[str] = field(default_factory=set)


class KnownTables:
    """What is known now. `app` is the newest set of settings."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.entries: dict[str, Entry] = {}
        self.problems: dict[str, str] = {}
        """By dataset: why its tables are not known."""
        self._datasets: dict[DatasetKey, _Dataset] = {}
        self._places = Slots(LOOKS_AT_ONCE)

    def adopt(self, app: App) -> None:
        """Go on under new settings: forget everything and look again at once."""
        self.app = app
        self.entries, self.problems, self._datasets = {}, {}, {}

    def wanted(self, now: datetime) -> Iterator[tuple[TenantSettings, DatasetSettings]]:
        """The datasets whose time to be looked at has come. Each is given out once until it was looked at."""
        for tenant, dataset in self.app.discovery.datasets():
            known = self._datasets.setdefault((tenant.id, dataset.id), _Dataset(next_look=now))
            # A clock that was set back must not put a dataset to sleep.
            too_far = now + 2 * self._interval
            if not known.looking and (known.next_look <= now or known.next_look > too_far):
                known.looking = True
                yield tenant, dataset

    def may_appear(self, label: str) -> bool:
        """May this name still turn out to be a table: has its dataset not been looked at, or did that fail?"""
        tenant, dataset, name = (*label.split("/", 2), "", "")[:3]
        return bool(name) and (self.not_looked_yet(tenant, dataset) or f"{tenant}/{dataset}" in self.problems)

    def not_looked_yet(self, tenant: str, dataset: str) -> bool:
        """May the dataset still turn out to have a table, under the present settings?"""
        settings = self.app.settings.tenant(tenant)
        known = self._datasets.get((tenant, dataset))
        return settings is not None and settings.dataset(dataset) is not None and not (known and known.looked)

    async def look(self, tenant: TenantSettings, dataset: DatasetSettings) -> None:
        app, key = self.app, (tenant.id, dataset.id)
        try:
            with working_for(tenant.id):
                works = await self._works(app, tenant, dataset)
            problem = next((work.problem for work in works if work.problem), None)
            entries = {} if problem else await _entries(app, dataset, key, works)
        finally:
            # Cancelled or not: the next caller may look.
            if key in self._datasets:
                self._datasets[key].looking = False
        if app is not self.app:
            return  # the settings have changed meanwhile, and these entries are from the old ones
        now = app.clock.now()
        self._datasets[key].looked = True
        if problem is None:
            self._enter(app, key, entries)
            self._log_if_empty(app, tenant, dataset)
            self._datasets[key].failures = 0
            self._datasets[key].next_look = now + self._interval
        else:
            failures = self._datasets[key].failures = self._datasets[key].failures + 1
            self._datasets[key].next_look = now + doubled(failures, FIRST_RETRY, self._interval)
            self.problems["/".join(key)] = str(problem)
            app.metrics.count_skip(works[0].ref, "discovery_failed")
            log.warning("discovery_failed", tenant=tenant.id, dataset=dataset.id, reason=str(problem))

    async def _works(self, app: App, tenant: TenantSettings, dataset: DatasetSettings) -> list[Work]:
        if not any_enabled(app.settings, tenant, dataset):
            app.metrics.count_skip(whole_dataset(tenant, dataset), "disabled")
            return []
        async with self._places.of(tenant.id):
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    return await app.discovery.discover(tenant, dataset)
            except TimeoutError:
                why = CatalogUnavailable(f"listing the tables timed out after {LOOK_SECONDS} s")
            except Exception as exc:
                # A bug met by one dataset must not keep the others back.
                log.exception("discovery_panicked", tenant=tenant.id, dataset=dataset.id)
                why = CatalogUnavailable(f"unexpected {type(exc).__name__}: {exc}")
            return [app.discovery.unreadable(tenant, dataset, why)]

    def _enter(self, app: App, key: DatasetKey, found: dict[str, Entry]) -> None:
        self.problems.pop("/".join(key), None)
        before = self._datasets[key].labels
        if before != set(found):
            app.neighbours.forget(key[0])
            log.info("tables_discovered", tenant=key[0], dataset=key[1], tables=len(found), before=len(before))
        for gone in before - set(found):
            self.entries.pop(gone, None)
        self.entries |= found
        self._datasets[key].labels = set(found)
        counts = Counter(str(entry.work.ref.tenant) for entry in self.entries.values())
        for tenant in app.settings.tenants:
            app.metrics.tables_known.labels(tenant.id).set(counts[tenant.id])

    def _log_if_empty(self, app: App, tenant: TenantSettings, dataset: DatasetSettings) -> None:
        """Once: it may be new. It may also be a typo in an address, which nothing else would show."""
        known = self._datasets[tenant.id, dataset.id]
        empty = not known.labels and any_enabled(app.settings, tenant, dataset)
        if empty and not known.empty:
            log.warning("no_tables_found", tenant=tenant.id, dataset=dataset.id)
        known.empty = empty

    @property
    def _interval(self) -> timedelta:
        return timedelta(seconds=self.app.settings.daemon.discovery_seconds)


async def _entries(app: App, dataset: DatasetSettings, key: DatasetKey, works: list[Work]) -> dict[str, Entry]:
    usual = cleanup_for(app.settings, *key)
    found: dict[str, Entry] = {}
    for number, work in enumerate(works, start=1):
        special = dataset.table(work.ref.name)
        cleanup = cleanup_for(app.settings, *key, work.ref.name) if special else usual
        entry = Entry(work=work, app=app, schedule=_schedule(cleanup), enabled=cleanup.enabled)
        found[entry.label] = entry
        if entry.enabled:
            app.metrics.expect(work.ref)
        else:
            app.metrics.count_skip(work.ref, "disabled")
        if number % TABLES_AT_A_TIME == 0:
            await asyncio.sleep(0)  # a large dataset must not hold up the event loop
    return found


def any_enabled(settings: Settings, tenant: TenantSettings, dataset: DatasetSettings) -> bool:
    levels = [None, *(table.name for table in dataset.tables)]
    return any(cleanup_for(settings, tenant.id, dataset.id, table).enabled for table in levels)


def _schedule(cleanup: OrphanCleanupSettings) -> Schedule:
    if cleanup.cadence is not CadenceKind.ADAPTIVE:
        return Schedule(interval=timedelta(hours=cleanup.cleanup_interval_hours), cron=cleanup.cron)
    shortest = timedelta(hours=cleanup.min_interval_hours)
    longest = timedelta(hours=cleanup.max_interval_hours)
    rules = Rules(shortest=shortest, longest=longest, waste_budget=cleanup.waste_budget)
    return Schedule(interval=longest, adaptive=rules)
