"""A table as loaded at one moment, and how much of each snapshot, tag, branch and changelog must stay readable. Pure.
What other tools may already have taken is kept if it is there and not missed if it is not: a tag keeps no changelog,
and nobody but us keeps a branch's. Where a table has no changelog producer and changelogs outlive their snapshots,
streams read the deltas instead, what they add and what they delete: so both stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from lakesweep.formats.paimon.options import TableOptions
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role
from lakesweep.model.errors import Indeterminate


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonState:
    """What was read of a table, before anything is made of it."""

    log: Log
    options: TableOptions
    partitions: tuple[Partition, ...] = ()
    """Live partitions of the latest snapshot; empty unless partitions expire."""
    partitions_checked_at: datetime | None
    writers_offset: timedelta | None = None
    """The westernmost offset from UTC that writers' clocks were seen with, where partitions may expire by it."""
    released: frozenset[str]
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
        return then.get("changelog-producer", "none").strip().lower(), self.options.changelog.producer

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
        return bool(self.readers_of(snapshot))

    def readers_of(self, snapshot: PaimonSnapshot) -> list[str]:
        consumers = self.snapshot_consumers if snapshot.role is Role.SNAPSHOT else self.log.consumers
        return sorted(name for name, following in consumers.items() if following <= snapshot.id)

    def _standing(self, snapshots: Iterable[PaimonSnapshot]) -> Iterable[PaimonSnapshot]:
        for snapshot in snapshots:
            # A consumer that appeared meanwhile takes its snapshots back, and a rollback the one it went back to.
            if snapshot.key not in self.released or snapshot is self.latest or self.is_to_be_read(snapshot):
                yield snapshot


class Presence(Enum):
    """What its changelog means to a root."""

    REQUIRED = "required"
    IF_THERE = "if there"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One thing that protects files, and which parts of it are needed."""

    snapshot: PaimonSnapshot
    data: bool
    """Base and delta, index and statistics."""
    changelog: Presence
    diff: bool = False
    """The delta serves as the changelog: what it adds and what it deletes."""
    itself: bool = False
    """Its own file can be a candidate, so it has to be named. Tags and branches are reserved anyway."""


def retained_roots(state: PaimonState, expiring: Sequence[PaimonSnapshot], *, decoupled: bool) -> Iterator[Root]:
    """Everything that stays, in order of commit within the main table and within each branch."""
    going = {snapshot.key for snapshot in expiring}
    copied = frozenset(snapshot.delta_list for snapshot in (*state.log.tags, *state.log.branched))
    for snapshot in (*state.snapshots, *state.log.branched, *state.log.tags, *state.changelogs):
        if snapshot.key not in going:
            yield _root(snapshot, snapshot.role, state, copied)
    if decoupled:  # an expired snapshot leaves its changelog behind
        for snapshot in expiring:
            if snapshot.role is Role.SNAPSHOT:
                yield _root(snapshot, Role.CHANGELOG, state, copied)


def _root(snapshot: PaimonSnapshot, role: Role, state: PaimonState, copied: frozenset[str]) -> Root:
    """What `snapshot` needs as a snapshot, a tag or a changelog. `copied` has the delta lists of tags and branches."""
    # It may have come back from there, by a rollback or a fast-forward, and then without its changelog.
    changelog = Presence.IF_THERE if snapshot.delta_list in copied else Presence.REQUIRED
    itself = snapshot.branch is None and snapshot.role is role
    # A branch has schemas of its own: its deltas are kept in any case.
    without_producer = snapshot.branch is not None or "none" in state.producers_of(snapshot)
    diff = without_producer and snapshot.changelog_list is None
    match role:
        case Role.SNAPSHOT:
            diff = diff and state.changelogs_last
            return Root(snapshot=snapshot, data=True, changelog=changelog, diff=diff, itself=itself)
        case Role.TAG:
            return Root(snapshot=snapshot, data=True, changelog=Presence.UNUSED)
        case Role.CHANGELOG:
            return Root(snapshot=snapshot, data=False, changelog=changelog, diff=diff, itself=itself)


class ReleasedSnapshots:
    """Snapshots and changelogs that one handle has let go. Each stands while its file is there, and is closed once it
    is gone: from then on nobody can open it any more."""

    def __init__(self) -> None:
        self._by_key: dict[str, PaimonSnapshot] = {}
        self._back: set[str] = set()
        self._history: dict[int, str] = {}
        """The key of every snapshot that stood when some were let go."""
        self._sent: set[str] = set()
        """The names of those whose own files were asked to be deleted."""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._by_key)

    @property
    def names(self) -> frozenset[str]:
        """Of their files: that these go changes nothing for anybody."""
        return frozenset(one.location.name for one in self._by_key.values())

    @property
    def roles(self) -> list[Role]:
        return sorted({one.role for one in self._by_key.values()})

    def add(self, snapshots: Iterable[PaimonSnapshot], log: Log) -> None:
        self._by_key |= {snapshot.key: snapshot for snapshot in snapshots}
        self._history |= {one.id: one.key for one in log.snapshots}

    def keep_if_rolled_back(self, log: Log) -> None:
        """An id that is another snapshot's now proves a rollback. One of those that were to go was the newest for a
        while, however short: who reads it then began to read it a moment ago. So all that stand are kept."""
        if any(self._history.get(one.id, one.key) != one.key for one in log.snapshots):
            for key in [one.key for one in (*log.snapshots, *log.changelogs) if one.key in self._by_key]:
                del self._by_key[key]
                self._back.add(key)

    def take_back(self, stored: Iterable[tuple[Role, str]]) -> list[PaimonSnapshot]:
        """Those whose files are still stored: who opens one must find all of it."""
        there = set(stored)
        back = [one for one in self._by_key.values() if (one.role, one.location.name) in there]
        for one in back:
            del self._by_key[one.key]
        self._back.update(one.key for one in back)
        return back

    def still_going(self, snapshots: Iterable[PaimonSnapshot]) -> list[PaimonSnapshot]:
        return [one for one in snapshots if one.key not in self._back]

    def closed(self, log: Log) -> list[PaimonSnapshot]:
        standing = {one.key for one in (*log.snapshots, *log.changelogs)}
        gone = [one for key, one in self._by_key.items() if key not in standing]
        return sorted(gone, key=lambda one: one.id)

    def check_not_needed(self, state: PaimonState) -> None:
        """A closed snapshot cannot come back, so what it named must stay until a person has looked."""
        lasting = {one.id for one in state.log.changelogs}
        for one in self.closed(state.log):
            if one.role is Role.SNAPSHOT and one.id in lasting:
                continue  # its changelog is there to be read
            readers = state.readers_of(one)
            if readers:
                raise Indeterminate(
                    f"{one.label} was expired by this run, and consumer {readers[0]} now needs it: "
                    "nothing more was deleted; reset the consumer to a snapshot that exists"
                )

    @property
    def snapshots(self) -> list[PaimonSnapshot]:
        return [one for one in self._by_key.values() if one.role is Role.SNAPSHOT]

    @property
    def begun(self) -> list[PaimonSnapshot]:
        """Snapshots whose own files we may have deleted."""
        return [one for one in self.snapshots if one.location.name in self._sent]

    def send(self, paths: Iterable[str]) -> None:
        """A request to delete these is about to be sent."""
        self._sent |= self.names.intersection(path.rpartition("/")[2] for path in paths)
