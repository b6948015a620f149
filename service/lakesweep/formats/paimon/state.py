"""A table as loaded at one moment: the log, the options, and what is needed to decide. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakesweep.formats.paimon.options import TableOptions
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonState:
    """What was read of a table, before anything is made of it."""

    log: Log
    options: TableOptions
    partitions: tuple[Partition, ...]
    """Live partitions of the latest snapshot; empty unless partitions expire."""
    partitions_checked_at: datetime | None
    writers_offset: timedelta | None = None
    """The westernmost offset from UTC that writers' clocks were seen with, where partitions may expire by it."""
    given_up: frozenset[str]
    """Keys of snapshots and changelogs whose expiry was committed and whose files are going."""

    @property
    def latest(self) -> PaimonSnapshot | None:
        return self.log.snapshots[-1] if self.log.snapshots else None

    @property
    def snapshots(self) -> tuple[PaimonSnapshot, ...]:
        """Snapshots of the main table that are still ours to decide about."""
        return tuple(self._standing(self.log.snapshots))

    @property
    def changelogs(self) -> tuple[PaimonSnapshot, ...]:
        """Long-lived changelogs of the main table that are still ours to decide about."""
        return tuple(self._standing(self.log.changelogs))

    def producers_of(self, snapshot: PaimonSnapshot) -> tuple[str, ...]:
        """The changelog producers under which a snapshot may have been written: then, and now."""
        then = next((schema.options for schema in self.log.schemas if schema.id == snapshot.schema_id), {})
        return (_producer(then), self.options.changelog.producer)

    @property
    def changelogs_last(self) -> bool:
        """Do changelogs outlive their snapshots, or did some?"""
        branched = any(one.role is Role.CHANGELOG for one in self.log.branched)
        return self.options.decoupled or branched or bool(self.log.changelogs)

    @property
    def snapshot_consumers(self) -> Mapping[str, int]:
        """Consumers that keep snapshots. Where they only need changelogs, those outlive the snapshots."""
        if self.options.consumer_changelog_only and self.options.decoupled:
            return {}
        return self.log.consumers

    def is_to_be_read(self, snapshot: PaimonSnapshot) -> bool:
        """Has a consumer still to read this snapshot or changelog?"""
        return bool(self.readers_of(snapshot))

    def readers_of(self, snapshot: PaimonSnapshot) -> list[str]:
        """The consumers that have still to read this snapshot or changelog."""
        consumers = self.snapshot_consumers if snapshot.role is Role.SNAPSHOT else self.log.consumers
        return sorted(name for name, following in consumers.items() if following <= snapshot.id)

    def _standing(self, snapshots: Iterable[PaimonSnapshot]) -> Iterable[PaimonSnapshot]:
        for snapshot in snapshots:
            # A consumer that appeared meanwhile takes its snapshots back, and a rollback the one it went back to.
            if snapshot.key not in self.given_up or snapshot is self.latest or self.is_to_be_read(snapshot):
                yield snapshot


def _producer(options: Mapping[str, str]) -> str:
    return options.get("changelog-producer", "none").strip().lower()
