"""Snapshots and the decision which of them go."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from lakesweep.model.files import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One retained state of a table. Ids are text: 64-bit numbers do not survive every JSON reader."""

    id: str
    committed_at: datetime
    pins: tuple[str, ...] = ()
    """Names of what holds it: `branch main`, `tag v1`, `consumer c`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshot:
    """A snapshot that stays, and the rule that keeps it."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan:
    """Which snapshots, refs and partitions go; valid only for the head it was made from."""

    head: str
    expire: tuple[Snapshot, ...] = ()
    keep: tuple[KeptSnapshot, ...] = ()
    drop_refs: tuple[str, ...] = ()
    """Branches and tags past their own age; they leave in the same commit."""
    partitions: tuple[str, ...] = ()
    partition_files: Tally = field(default_factory=Tally)
    """What the partitions hold: gone from the newest state at once, from storage when the snapshots before expire."""
    skipped: str | None = None
    """Why the expiry step cannot be done although orphan cleanup can; None when it can."""

    @property
    def empty(self) -> bool:
        """Nothing to commit."""
        return not (self.expire or self.drop_refs or self.partitions)
