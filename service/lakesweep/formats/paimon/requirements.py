"""How much of each snapshot, tag, branch and changelog must stay readable. Pure.

What other tools may already have taken is kept if it is there and not missed if it is not: a tag keeps no
changelog, nor does what came back from one; nobody but us keeps a branch's changelogs; a long-lived changelog keeps
its changelog files.

Where a table has no changelog producer and changelogs outlive their snapshots, streams read the deltas instead: what
one adds and, after an overwrite or a compaction, what it deletes. So both stay as long as the changelog or the snapshot
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role
from lakesweep.formats.paimon.state import PaimonState


class Presence(Enum):
    """What a part of a snapshot means to it."""

    REQUIRED = "required"
    IF_THERE = "if there"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The parts of one root. `data` covers base and delta, index and statistics."""

    data: Presence
    changelog: Presence
    diff: bool = False
    """The delta serves as the changelog: what it adds and what it deletes."""
    itself: bool = False
    """Its own file can be a candidate, so it has to be named. Tags and branches are reserved anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One thing that protects files."""

    snapshot: PaimonSnapshot
    need: Need


def retained_roots(state: PaimonState, expiring: Sequence[PaimonSnapshot], *, decoupled: bool) -> Iterator[Root]:
    """Everything that stays, in order of commit within the main table and within each branch."""
    going = {snapshot.key for snapshot in expiring}
    copied = frozenset(snapshot.delta_list for snapshot in (*state.log.tags, *state.log.branched))
    for snapshot in (*state.snapshots, *state.log.branched, *state.log.tags, *state.changelogs):
        if snapshot.key not in going:
            yield Root(snapshot=snapshot, need=_need(snapshot, snapshot.role, state, copied))
    if decoupled:  # an expired snapshot leaves its changelog behind
        for snapshot in expiring:
            if snapshot.role is Role.SNAPSHOT:
                yield Root(snapshot=snapshot, need=_need(snapshot, Role.CHANGELOG, state, copied))


def _need(snapshot: PaimonSnapshot, role: Role, state: PaimonState, copied: frozenset[str]) -> Need:
    """What `snapshot` needs as a snapshot, a tag or a changelog. `copied` has the delta lists of tags and branches."""
    # It may have come back from there, by a rollback or a fast-forward, and then without its changelog.
    changelog = Presence.IF_THERE if snapshot.delta_list in copied else Presence.REQUIRED
    itself = snapshot.branch is None and snapshot.role is role
    # A branch has schemas of its own: its deltas are kept in any case.
    without_producer = snapshot.branch is not None or "none" in state.producers_of(snapshot)
    diff = without_producer and snapshot.changelog_list is None
    match role:
        case Role.SNAPSHOT:
            return Need(data=Presence.REQUIRED, changelog=changelog, diff=diff and state.changelogs_last, itself=itself)
        case Role.TAG:
            return Need(data=Presence.REQUIRED, changelog=Presence.UNUSED)
        case Role.CHANGELOG:
            return Need(data=Presence.UNUSED, changelog=changelog, diff=diff, itself=itself)
