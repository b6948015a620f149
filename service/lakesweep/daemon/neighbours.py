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
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, tenant: TenantSettings) -> Places:
        """The places of all tables of a tenant that can be read."""
        async with self._asking[tenant.id]:
            found = self._known.get(tenant.id)
            now = self._clock.now()
            if found is None or not found[0] <= now < found[0] + KEPT_FOR:
                found = (now, await self._ask(tenant))
                self._known[tenant.id] = found
            return found[1]

    def forget(self, tenant: str) -> None:
        """Ask again next time: the tenant has other tables now."""
        self._known.pop(tenant, None)

    async def _ask(self, tenant: TenantSettings) -> Places:
        places: dict[TableRef, tuple[Location, ...]] = {}
        for dataset in tenant.datasets:
            try:
                places |= await self._adapters.format(tenant, dataset).locations()
            except LakesweepError as exc:
                log.warning("neighbours_unknown", dataset=dataset.id, reason=str(exc))
        return places
