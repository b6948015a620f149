"""Which tables are due, by the due times and holds of the state store. Starts nothing.

Both are kept in memory for some seconds, so that the store is not asked all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import structlog

from lakesweep.daemon import due_times
from lakesweep.daemon.holds import HoldIndex
from lakesweep.daemon.known_tables import KnownTables
from lakesweep.daemon.limits import Due
from lakesweep.model.errors import StateError
from lakesweep.ports.state import DueTime

log = structlog.get_logger()

REFRESH = timedelta(seconds=10)
"""How old the due times and holds that are kept in memory may be."""


class DueTables:
    """The known tables by their due times."""

    def __init__(self, known_tables: KnownTables) -> None:
        self._known_tables = known_tables
        self._due: dict[str, DueTime] = {}
        self._moments: dict[str, datetime] = {}
        """When each table is due, worked out once from its due time and its schedule."""
        self._look_again_at: dict[str, datetime] = {}
        self.holds = HoldIndex()
        self._refreshed: datetime | None = None

    def at(self, table: str) -> datetime | None:
        return self._moments.get(table)

    def next_after(self, now: datetime) -> datetime | None:
        return min((moment for moment in self._moments.values() if moment > now), default=None)

    def invalidate(self) -> None:
        """Somebody changed due times or holds."""
        self._refreshed = None

    def reschedule(self) -> None:
        """The schedules have changed."""
        self._moments.clear()

    async def refresh(self, now: datetime) -> bool:
        """Due times and holds as the state store has them. Without it nothing is started."""
        if self._refreshed is not None and timedelta(0) <= now - self._refreshed < REFRESH:
            return True
        try:
            # Later on only what became due: a table that others have put off is found out when it is claimed.
            rows = await self._known_tables.app.state.due_times(until=now if self._due else None)
            in_force = HoldIndex(await self._known_tables.app.state.holds())
        except StateError as exc:
            if self._refreshed is not None:
                log.warning("state_store_away", reason=str(exc))
            self._refreshed = None
            self._known_tables.app.metrics.state_up.set(0)
            return False
        self._log_ended_holds(in_force, now)
        self.holds = in_force
        self._known_tables.app.metrics.state_up.set(1)
        set_back = [row for row in self._due.values() if row.last_finished and row.last_finished > now]
        for row in set_back + [row for row in rows if self._due.get(row.table) != row]:
            self.learn(row)
        self._refreshed = now
        return True

    def _log_ended_holds(self, in_force: HoldIndex, now: datetime) -> None:
        there = {hold.scope for hold in in_force.holds}
        for hold in self.holds.holds:
            if hold.ends_at is not None and hold.ends_at <= now and hold.scope not in there:
                log.info("hold_ended", scope=hold.scope, since=hold.since, ends_at=hold.ends_at, by=hold.by)

    def learn(self, row: DueTime) -> None:
        self._due[row.table] = row
        self._moments.pop(row.table, None)

    def look_again(self, table: str, at: datetime | None) -> None:
        """Do not look at a table before then; None: as soon as it is due."""
        if at is None:
            self._look_again_at.pop(table, None)
        else:
            self._look_again_at[table] = at

    def waiting(self, running: Collection[str], now: datetime) -> Iterator[Due]:
        """Tables whose time has come, and that nobody is known to work on."""
        for label, entry in self._known_tables.entries.items():
            if not entry.enabled or label in running:
                continue
            moment = self._moments.get(label)
            if moment is None:
                moment = self._moments[label] = due_times.due_at(self._due.get(label), entry.schedule, now)
            if moment > now or self._look_again_at.get(label, now) > now:
                continue
            yield Due(tenant=str(entry.work.ref.tenant), table=label, since=moment)

    def one_suspect(self, due: list[Due], running: Collection[str]) -> list[Due]:
        """Of tables whose last run ended with its process, only one runs at a time: whatever kills the process ends all
        runs with it, and next time only one suspect, and tables that are none, should be running."""
        suspects = {label for label, row in self._due.items() if row.last_outcome == due_times.INTERRUPTED}
        if not suspects:
            return due
        waiting = sorted((one for one in due if one.table in suspects), key=lambda one: (one.since, one.table))
        held_up = {one.table for one in (waiting if not suspects.isdisjoint(running) else waiting[1:])}
        return [one for one in due if one.table not in held_up]
