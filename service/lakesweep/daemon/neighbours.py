"""Where a tenant's tables keep their files, for the guard against two tables in one place.

Asking costs a look at every table, so the answer is kept for a while; it is thrown away when the tenant's tables
change. Tenant roots never overlap, so other tenants need not be asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog

from lakesweep.cleanup.ports import Clock
from lakesweep.daemon.adapters import Adapters
from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.settings.tenants import TenantSettings

log = structlog.get_logger()

KEPT_FOR = timedelta(hours=1)
"""A table that is moved to another place without a new name is noticed after this at the latest."""

Places = Mapping[TableRef, tuple[Location, ...]]


class Neighbours:
    """One answer per tenant. Several askers wait for one answer."""

    def __init__(self, adapters: Adapters, clock: Clock) -> None:
        self._adapters = adapters
        self._clock = clock
        self._known: dict[str, tuple[datetime, Places]] = {}
        self._last: dict[tuple[str, str], dict[TableRef, tuple[Location, ...]]] = {}
        self._problems: dict[tuple[str, str], str] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, tenant: TenantSettings) -> Places:
        """The places of all tables of a tenant. A dataset that does not answer keeps the places last known of it."""
        async with self._asking[tenant.id]:
            found = self._known.get(tenant.id)
            now = self._clock.now()
            if found is None or not found[0] <= now < found[0] + KEPT_FOR:
                places, complete = await self._ask(tenant)
                found = (now, places)
                if complete:
                    self._known[tenant.id] = found
            return found[1]

    def problem(self, tenant: str, dataset: str) -> str | None:
        """Why the places of a dataset's tables are not known now, as of the last time they were asked for."""
        return self._problems.get((tenant, dataset))

    def forget(self, tenant: str) -> None:
        """Ask again next time: the tenant has other tables now."""
        self._known.pop(tenant, None)

    async def _ask(self, tenant: TenantSettings) -> tuple[Places, bool]:
        """The places, and whether every dataset answered."""
        places: dict[TableRef, tuple[Location, ...]] = {}
        complete = True
        for dataset in tenant.datasets:
            try:
                found = await self._adapters.format(tenant, dataset).locations()
                self._last[tenant.id, dataset.id] = found
            except LakesweepError as exc:
                # Refusing every table of the tenant for one catalog that is away would let it stop them all.
                log.warning("neighbours_unknown", dataset=dataset.id, reason=str(exc))
                self._problems[tenant.id, dataset.id] = str(exc)
                found, complete = self._last.get((tenant.id, dataset.id), {}), False
            else:
                self._problems.pop((tenant.id, dataset.id), None)
            places |= found
        return places, complete
