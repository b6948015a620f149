"""What one cycle works with: its ports, and what is specific to this run. Values only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from lakesweep.aio import StopRequest
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.requests import FREE, Prices
from lakesweep.model.run import ListingMode
from lakesweep.model.trash import RunTrash
from lakesweep.ports.audit import Audit
from lakesweep.ports.clock import Clock
from lakesweep.ports.deleter import OpenDeleter
from lakesweep.ports.engine import ChooseEngine
from lakesweep.ports.run import Fence, Progress, ReportProgress, Slots
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.ports.surroundings import Surroundings
from lakesweep.ports.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world of one table's cycle."""

    table: Table
    storage: Storage
    choose_engine: ChooseEngine
    open_deleter: OpenDeleter
    state: StateStore
    audit: Audit
    clock: Clock
    artifacts: Artifacts
    surroundings: Surroundings
    rules: StoreRulesReader


def silent(_: Progress) -> None:
    """Nobody is watching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run: what it may do, by which rules, and how it is stopped."""

    run_id: str
    tenant_root: Location
    policy: CleanupPolicy
    execute: bool
    fence: Fence
    rows_path: str
    inventory: Location | None = None
    """An inventory to read instead of listing. It may be hours old."""
    listing: ListingMode = ListingMode.ALWAYS
    regular_wait: timedelta = timedelta(0)
    """Between two cycles of the table by its schedule."""
    stop: asyncio.Event = field(default_factory=StopRequest)
    """Set from outside to end the run: planning at once, a sweep after its running requests."""
    listing_slots: Slots | None = None
    deletion_slots: Slots | None = None
    """Slots for deletion batches that all tables share."""
    progress: ReportProgress = silent
    trash: RunTrash | None = None
    """Where files go with `deletion = "trash"`; None deletes them."""
    prices: Prices = FREE
