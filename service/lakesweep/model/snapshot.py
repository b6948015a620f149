"""Snapshots, and the decision which of them expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from lakesweep.model.files import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One retained state of a table. Ids are text, because not every JSON reader keeps 64-bit numbers."""

    id: str
    committed_at: datetime
    pins: tuple[str, ...] = ()
    """Names of what keeps it: `branch main`, `tag v1`, `consumer c`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshot:
    """A snapshot that stays, and the rule that keeps it."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan:
    """The snapshots, refs and partitions to expire; valid only for the head it was made from."""

    head: str
    expire: tuple[Snapshot, ...] = ()
    keep: tuple[KeptSnapshot, ...] = ()
    drop_refs: tuple[str, ...] = ()
    """Branches and tags past their own maximum age; the same commit removes them."""
    partitions: tuple[str, ...] = ()
    partition_files: Tally = field(default_factory=Tally)
    """The partitions' files: removed from the newest state at once, from storage when the older snapshots expire."""
    skipped: str | None = None
    """Why snapshots cannot be expired although orphan cleanup is possible; None if they can."""

    @property
    def empty(self) -> bool:
        return not (self.expire or self.drop_refs or self.partitions)
