"""Gather what the report of a lake is made of: tables, their newest plans, holds, settings. Reads only.

No catalog is queried here: the caller says which tables there are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakesweep.cleanup import lake_leftovers, lake_report
from lakesweep.cleanup.lake_leftovers import TenantLeftovers
from lakesweep.cleanup.lake_report import KnownTable, Price
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon import holds, targets
from lakesweep.daemon.holds import HoldIndex
from lakesweep.model import ghost
from lakesweep.model import lake_report as documents
from lakesweep.model.files import Tally as Counted
from lakesweep.model.ghost import Ghost
from lakesweep.model.run_document import Run, Tally
from lakesweep.model.store_rules import LeftoverKind
from lakesweep.model.table import FormatName
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.settings.cascade import cleanup_for
from lakesweep.settings.schema import Settings

_GHOSTS_KEPT = 200
_TABLES_AT_ONCE = 1000
"""Names in one question to the state store: databases limit the parameters of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A table that exists, or a dataset whose tables cannot be listed (`tenant/dataset/*`)."""

    label: str
    format: FormatName
    problem: str | None = None


def named(works: Iterable[targets.Work]) -> list[Named]:
    found = (
        Named(label=work.ref.label, format=work.ref.format, problem=str(work.problem) if work.problem else None)
        for work in works
    )
    return list(dict.fromkeys(found))


async def make(
    settings: Settings, state: StateStore, clock: Clock, tables: Iterable[Named], tenants: Collection[str] | None
) -> documents.Report:
    """The report of these tables and of their tenants, by default all: `tenants` limits what is read of the state
    store."""
    now = clock.now()
    planned = await state.last_planned(tenants)
    named = list(_with_remembered(tables, planned))
    last: dict[str, Run] = {}
    labels = [one.label for one in named]
    for start in range(0, len(labels), _TABLES_AT_ONCE):
        last |= await state.last_runs(labels[start : start + _TABLES_AT_ONCE])
    held = HoldIndex(await state.holds())
    known = [_known(settings, one, held, planned.get(one.label), last.get(one.label)) for one in named]
    runs = await state.run_figures(now - timedelta(days=lake_report.TREND_DAYS), tenants)
    price = Price(per_gb_month=settings.prices.storage_per_gb_month, currency=settings.prices.currency)
    made = await asyncio.to_thread(
        lake_report.report, known, runs, now=now, price=price
    )  # of many tables it takes long
    # Also of those that have no table left: what dropped tables left behind is all that they have.
    of_tenants = sorted({one.id for one in settings.tenants if tenants is None or one.id in tenants})
    looks = [look for tenant in of_tenants if (look := await last_look(state, tenant)) is not None]
    ghosts = sorted((one for look in looks for one in look.largest), key=lambda one: (-one["bytes"], one["location"]))
    found: Tally = {"count": sum(look.files for look in looks), "bytes": sum(look.bytes for look in looks)}
    complete: documents.Report = {
        **made,
        "totals": {**made["totals"], "ghosts": found, "former_tables": sum(look.count for look in looks)},
        "ghosts": ghosts,
        "ghosts_looked_at": iso_utc(min((look.at for look in looks), default=None)),
    }
    return lake_leftovers.added(complete, await _recalled_leftovers(state, of_tenants), price)


async def remember_ghosts(state: StateStore, tenant: str, found: Sequence[Ghost], now: datetime) -> None:
    largest = sorted(found, key=lambda one: (-one.bytes, one.location))[:_GHOSTS_KEPT]
    note = {
        "at": iso_utc(now),
        "ghosts": [ghost.document(one) for one in largest],
        "count": len(found),
        "files": sum(one.files for one in found),
        "bytes": sum(one.bytes for one in found),
    }
    await state.remember(f"ghosts {tenant}", json.dumps(note))


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostLook:
    """What the last look for a tenant's ghosts has found."""

    at: datetime
    count: int
    files: int
    bytes: int
    largest: list[ghost.GhostDocument]
    """The others are counted only."""


async def last_look(state: StateStore, tenant: str) -> GhostLook | None:
    note = await state.recall(f"ghosts {tenant}")
    if note is None:
        return None
    document = json.loads(note)
    found = document["ghosts"]
    return GhostLook(
        at=datetime.fromisoformat(document["at"]),
        count=document.get("count", len(found)),
        files=document.get("files", sum(one["files"] for one in found)),
        bytes=document.get("bytes", sum(one["bytes"] for one in found)),
        largest=found,
    )


def leftovers_note(tenant: str) -> str:
    return f"leftovers {tenant}"


async def _recalled_leftovers(state: StateStore, tenants: Iterable[str]) -> dict[str, TenantLeftovers]:
    """The last counts, for each tenant that has any."""
    found: dict[str, TenantLeftovers] = {}
    for tenant in tenants:
        note = await state.recall(leftovers_note(tenant))
        if note is not None:
            document = json.loads(note)
            by_owner = {
                owner: {LeftoverKind(kind): Counted(files=files, bytes=size) for kind, (files, size) in kinds.items()}
                for owner, kinds in document["owners"].items()
            }
            found[tenant] = TenantLeftovers(counts=document["counts"], by_owner=by_owner)
    return found


def _with_remembered(tables: Iterable[Named], planned: Collection[str]) -> Iterable[Named]:
    """Of a dataset that cannot be read, also the tables that it had when they were last planned."""
    for one in tables:
        yield one
        if one.problem is not None and one.label.endswith("/*"):
            of_it = (label for label in planned if targets.covers(one.label, label))
            yield from (Named(label=label, format=one.format, problem=one.problem) for label in sorted(of_it))


def _known(settings: Settings, one: Named, held: HoldIndex, planned: Run | None, last: Run | None) -> KnownTable:
    tenant, dataset, name = one.label.split("/", 2)
    cleanup = cleanup_for(settings, tenant, dataset, name)
    hold = held.covering(one.label)
    return KnownTable(
        label=one.label,
        format=one.format,
        enabled=cleanup.enabled,
        dry_run=cleanup.dry_run,
        unreadable=one.problem,
        held=holds.sentence(one.label, hold) if hold else None,
        held_scope=hold.scope if hold else None,
        planned=planned,
        last=last,
    )
