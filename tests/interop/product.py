"""Run the product on tables that other programs wrote, through the same door as the command line uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.peers.independent import Expected, plain

from lakesweep.daemon.app import App
from lakesweep.model.files import Reason
from lakesweep.model.run import CleanupRun
from lakesweep.settings.schema import Settings


@dataclass(frozen=True, slots=True)
class Frozen:
    """A clock that stands still, so that the judge and the product see the same moment."""

    moment: datetime

    def now(self) -> datetime:
        """Always the same."""
        return self.moment

    @property
    def milliseconds(self) -> int:
        """As Iceberg counts time."""
        return int(self.moment.timestamp() * 1000)


def frozen_now() -> Frozen:
    """This millisecond, after everything that was committed before the call."""
    now = datetime.now(UTC) + timedelta(milliseconds=2)
    return Frozen(now.replace(microsecond=now.microsecond // 1000 * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which snapshots may go: those before `older_than_ms`, but never the newest `retain_last` of a branch."""

    clock: Frozen
    older_than_ms: int
    retain_last: int = 1


def everything_old(*, retain_last: int = 1) -> Retention:
    """Every snapshot committed so far may go, as far as age is concerned."""
    clock = frozen_now()
    return Retention(clock=clock, older_than_ms=clock.milliseconds, retain_last=retain_last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run and the rows of its plan, in the terms of the independent count."""

    run: CleanupRun
    files: Expected

    @property
    def going(self) -> frozenset[int]:
        """The snapshots that the plan expires."""
        return frozenset(int(snapshot.id) for snapshot in self.run.expiry.expire) if self.run.expiry else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One tenant with one Iceberg dataset, which is one namespace of a catalog."""

    data_dir: Path
    root: str
    catalog_name: str
    catalog: dict[str, str]
    namespace: str
    storage: dict[str, Any] | None = None

    def settings(self, retention: Retention, **cleanup: Any) -> Settings:
        """What an operator would write down."""
        age = retention.clock.milliseconds - retention.older_than_ms
        return Settings.model_validate(
            {
                "orphan_cleanup": {
                    "max_snapshot_age_hours": age / 3_600_000,
                    "min_snapshots_to_keep": retention.retain_last,
                    **cleanup,
                },
                "service": {"data_dir": str(self.data_dir)},
                "storage": {"local": {"age_by": "modification"}, **(self.storage or {})},
                "tenants": [
                    {
                        "id": "acme",
                        "root": self.root,
                        "datasets": [
                            {
                                "id": "zoo",
                                "format": "iceberg",
                                "catalog": {**self.catalog, "name": self.catalog_name},
                                "namespace": self.namespace,
                            }
                        ],
                    }
                ],
            }
        )

    async def plan(self, table: str, retention: Retention, **cleanup: Any) -> Seen:
        """What a run would do."""
        return await self._run(table, retention, cleanup, execute=False)

    async def execute(self, table: str, retention: Retention, **cleanup: Any) -> Seen:
        """Do it."""
        return await self._run(table, retention, cleanup, execute=True)

    async def _run(self, table: str, retention: Retention, cleanup: dict[str, Any], *, execute: bool) -> Seen:
        async with self._open(self.settings(retention, **cleanup), retention.clock) as app:
            (work,) = await app.resolve(f"acme/zoo/{table}")
            run = await app.run(work, execute=execute)
            found: dict[Reason, set[str]] = {reason: set() for reason in Reason}
            async for batch in app.candidates(run):
                for candidate in batch:
                    found[candidate.reason].add(plain(candidate.path))
        files = Expected(expired=frozenset(found[Reason.EXPIRED]), unreferenced=frozenset(found[Reason.UNREFERENCED]))
        return Seen(run=run, files=files)

    @asynccontextmanager
    async def _open(self, settings: Settings, clock: Frozen) -> AsyncIterator[App]:
        async with App.open(settings, clock=clock) as app:
            yield app
