"""A Delta table at one version: it plans what leaves the log, and names what refers to files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from lakesweep.cleanup import guards
from lakesweep.formats.delta import checkpoint, expire, log, retention
from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.delta.log import LogFile, LogKind
from lakesweep.formats.delta.state import DeltaState, Tail
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.table import ExpiringFiles, ReadSources, TableView

if TYPE_CHECKING:
    from lakesweep.formats.delta.table import DeltaTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaView(TableView):
    """One version of an open table."""

    layout: DeltaLayout
    native: DeltaState
    table: DeltaTable = field(repr=False, compare=False)
    """Reads for the view, and remembers for one cycle what the log will begin with and how long removes wait."""

    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        self.table.floor = min(GRACE_FLOOR, policy.grace_period)
        return expire.plan(self.native, self.head, policy, now)

    def next_expiry(self, policy: CleanupPolicy, after: datetime) -> datetime | None:  # noqa: ARG002  # the port's
        """By the moment that this cycle judges at: a store's clock may be behind ours."""
        self.table.floor = min(GRACE_FLOOR, policy.grace_period)
        return expire.next_expiry(self.native, self.table.floor, guards.grace(policy, self))

    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:  # noqa: ARG002  # all are in the log
        """The checkpoint is decoded by engines; the commits behind it are replayed here."""
        native, table = self.native, self.table
        tail, delete_before_ms = native.segment.tail, native.delete_before_ms(table.floor)
        boundary = expire.boundary_of(native, expiring)
        table.stands_on = boundary or table.stands_on
        released = expire.released(native, boundary)
        going = frozenset(file.path for file in (*released, *await self._free_sidecars(released)))
        newest = frozenset(file.path for file in native.segment.files)
        # Known names, and the checksums that Hadoop keeps beside them.
        named = [(file.path, log.parse_name(log.beside(file.relative)).kind) for file in native.listing.files]
        stays = [path for path, kind in named if kind is not LogKind.OTHER]
        live = await asyncio.to_thread(tail.live)
        elsewhere = () if table.lite else tuple(await asyncio.to_thread(tail.elsewhere))
        return References(
            retained=(*sorted(newest), *(() if table.lite else live)),
            expired=tuple(sorted(going)),
            sources=self._sources(),
            released=tuple(sorted(await table.reader.overruled(native.segment, delete_before_ms))),
            tolerated=(
                *(live if table.lite else ()),
                *(path for path in stays if path not in going and path not in newest),
                *await asyncio.to_thread(self._removed_lately),
                *sorted(await table.reader.other_commits.unpublished(native.listing)),
                *sorted(await self._named_by_iceberg()),
            ),
            elsewhere=elsewhere,
        )

    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:  # noqa: ARG002  # the port's
        """From here on this cycle is a lite vacuum, by what commits have removed, unless they are too many."""
        return ExpiringFiles(shortlist=await self.table.become_lite(self.native))

    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:  # noqa: ARG002  # the port's
        """A lite vacuum lists them itself."""
        return ()

    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        """A log below the root is another table's: its files look like orphans of this one."""
        marker = f"/{log.LOG_DIRECTORY}/"
        own = self.location.join(log.LOG_DIRECTORY).as_directory().raw
        nested = next((path for path in unreferenced if marker in path and not path.startswith(own)), None)
        if nested is None:
            other = next((path for path in unreferenced if self.layout.is_other_table(path)), None)
            return other and f"{other} belongs to a table of another format inside this one: move one of them"
        return f"another Delta table lives inside this one, at {nested.partition(marker)[0]}: move one of them"

    async def explain(self, source: Location) -> tuple[str, ...]:
        native, table, key = self.native, self.table, source.match_key
        for file in native.listing.files:
            if Location.parse(file.path).match_key == key:
                return (_log_sentence(native, file),)
        if _names(native.segment.tail.live(), key):
            return (f"version {native.version} has it: a commit behind the newest checkpoint added it",)
        if _names(self._removed_lately(), key):
            hours = table.floor / timedelta(hours=1)
            return (f"a commit removed it, and delta.deletedFileRetentionDuration (at least {hours:g} h) is not over",)
        if _names(await table.reader.other_commits.unpublished(native.listing), key):
            return ("a commit that was written under a temporary name, and may still be added to the log, names it",)
        if _names(await self._named_by_iceberg(), key):
            return ("Iceberg metadata in the table's directory names it",)
        return ()

    def _removed_lately(self) -> list[str]:
        native = self.native
        delete_before_ms = native.delete_before_ms(self.table.floor)
        below = Tail(last=native.removed_below).tolerated(delete_before_ms)
        return sorted({*native.segment.tail.tolerated(delete_before_ms), *below})

    def _sources(self) -> tuple[ReferenceSource, ...]:
        opened, table = self.native.segment.checkpoint, self.table
        context = checkpoint.context(self.location, self.native.delete_before_ms(table.floor), listed=not table.lite)
        return tuple(
            ReferenceSource(
                location=Location.parse(file.path),
                format=FormatName.DELTA,
                kind=checkpoint.KIND,
                retained=True,
                size_bytes=file.size_bytes,
                context=context,
            )
            for file in (opened.files if opened else ())
        )

    async def _named_by_iceberg(self) -> frozenset[str]:
        """While UniForm is on, its metadata follows this log and names nothing else."""
        return frozenset() if self.native.properties.iceberg_metadata else await self.table.iceberg.named()

    async def _free_sidecars(self, going: list[LogFile]) -> list[LogFile]:
        """Old sidecars that no staying checkpoint names. They were listed before the checkpoints are read here."""
        native = self.native
        if not native.properties.log_cleanup_enabled:
            return []
        cutoff_ms = retention.sidecar_cutoff_ms(native.as_of, native.properties.log_retention)
        newest = set(native.segment.files)
        old = {
            name: file
            for name, file in native.listing.sidecars.items()
            if file not in newest and file.modified_ms is not None and file.modified_ms < cutoff_ms
        }
        leaving = set(going)
        for one in native.listing.checkpoints if old else ():
            if not one.may_use_sidecars or not one.complete or one.files[0] in leaving:
                continue
            try:
                head = await self.table.reader.head(one.files[0])
            except Unreadable:
                # It is unknown what this checkpoint names, so any sidecar may be one of its.
                return []
            for name, _ in head.sidecars:
                old.pop(name, None)
        return list(old.values())


def _names(paths: Iterable[str], match_key: str) -> bool:
    return any(Location.parse(path).match_key == match_key for path in paths)


def _log_sentence(native: DeltaState, file: LogFile) -> str:
    if file in native.segment.files:
        return f"version {native.version} is read from it"
    return f"the log of version {file.version} stays until a younger checkpoint is past delta.logRetentionDuration"
