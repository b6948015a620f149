"""Count what is stored beside the tables' files below a tenant's root, whose it is, and remember it for the reports.

Reads only. It costs requests, so it is done only when a person asks for a fresh report, never in a cycle.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from lakesweep.aio import working_for
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon import lake_report, targets, trash_keeper
from lakesweep.daemon.app import App
from lakesweep.daemon.lake_map import Nearest, prefix
from lakesweep.daemon.table_locations import PlacesByTable, is_of_no_dataset
from lakesweep.model import lake_report as documents
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.store_rules import LeftoverKind, LeftoverPage, StoreRules
from lakesweep.settings.tenants import TenantSettings

_ABORT = (
    "where the bucket has no lifecycle rule with AbortIncompleteMultipartUpload (DaysAfterInitiation, say 7) for this "
    "prefix, add one"
)


async def count(app: App, tenant: TenantSettings) -> None:
    """Once, with a bounded number of requests. What cannot be counted is remembered with its reason."""
    counting = _Counting(tenant)
    with working_for(tenant.id):
        try:
            counting.owners = _Owners(tenant, await app.neighbours.of(tenant))
            await counting.trash(app)
            await counting.store(app)
        except LakesweepError as exc:
            counting.give_up(str(exc))
    await app.state.remember(lake_report.leftovers_note(tenant.id), json.dumps(counting.note(iso_utc(app.clock.now()))))


async def report(
    app: App, works: Iterable[targets.Work], names: Sequence[str], *, fresh: bool, stop: asyncio.Event | None = None
) -> documents.Report:
    """The report of these tables, by what is known of them. With `fresh` their tenants' leftovers are counted first.
    `names` are the targets, none for everything: they may name tenants that have no table left."""
    found = lake_report.named(works)
    tenants = {one.label.partition("/")[0] for one in found}
    tenants |= {
        one.id for one in app.settings.tenants if not names or any(targets.covers(name, one.id) for name in names)
    }
    for tenant in app.settings.tenants if fresh else ():
        if tenant.id in tenants and not (stop and stop.is_set()):
            await count(app, tenant)
    return await lake_report.make(app.settings, app.state, app.clock, found, tenants)


@dataclass(slots=True)
class _Count:
    answered: bool = False
    found: Tally = field(default_factory=Tally)
    requests: int = 0
    problem: str | None = None


class _Counting:
    def __init__(self, tenant: TenantSettings) -> None:
        self.owners = _Owners(tenant, {})
        self._tenant = tenant
        self._counts = {kind: _Count() for kind in LeftoverKind}
        self._by_owner: defaultdict[str, defaultdict[LeftoverKind, Tally]] = defaultdict(lambda: defaultdict(Tally))
        self._rules = StoreRules()

    async def trash(self, app: App) -> None:
        try:
            places = await trash_keeper.shown(app, self._tenant)
        except LakesweepError as exc:
            self._counts[LeftoverKind.TRASH].problem = str(exc)
            return
        self._counts[LeftoverKind.TRASH].answered = True
        for place in places:
            for run in place["runs"]:
                self._add(LeftoverKind.TRASH, run["table"], Tally(files=run["count"], bytes=run["bytes"]))
            others = Tally(files=place["foreign"]["count"], bytes=place["foreign"]["bytes"])
            self._add(LeftoverKind.TRASH, self._tenant.id, others)

    async def store(self, app: App) -> None:
        root, reader = targets.real(Location.parse(self._tenant.root)), app.adapters.rules(self._tenant.id)
        self._rules = await reader.rules(root)
        async with aclosing(reader.leftovers(root)) as pages:
            async for page in pages:
                self._take(page)

    def _take(self, page: LeftoverPage) -> None:
        so_far = self._counts[page.kind]
        so_far.answered = so_far.answered or page.files is not None
        so_far.requests, so_far.problem = page.requests, page.problem
        for path, size in page.files or ():
            self._add(page.kind, self.owners.of(path), Tally(files=1, bytes=size))

    def _add(self, kind: LeftoverKind, owner: str, tally: Tally) -> None:
        if not tally.files:
            return
        self._by_owner[owner][kind] += tally
        self._counts[kind].found += tally

    def give_up(self, why: str) -> None:
        """Of what was not counted until now."""
        for kind, one in self._counts.items():
            if one.problem is None and not (one.answered and kind is LeftoverKind.TRASH):
                one.problem = why

    def note(self, now: str) -> dict[str, Any]:
        owners = {
            owner: {kind.value: (tally.files, tally.bytes) for kind, tally in kinds.items()}
            for owner, kinds in self._by_owner.items()
        }
        return {"counts": [self._document(kind, one, now) for kind, one in self._counts.items()], "owners": owners}

    def _document(self, kind: LeftoverKind, one: _Count, now: str) -> documents.LeftoverCount:
        days, advice = None, None
        if kind is LeftoverKind.NONCURRENT_VERSIONS:
            days, advice = self._rules.noncurrent_days, self._rules.warning
        elif kind is LeftoverKind.INCOMPLETE_UPLOADS:
            days = self._rules.abort_uploads_days
            advice = _ABORT if days is None else None
        return {
            "tenant": self._tenant.id,
            "kind": kind,
            "counted_at": now,
            "found": {"count": one.found.files, "bytes": one.found.bytes} if one.answered else None,
            "complete": one.answered and one.problem is None,
            "problem": one.problem,
            "requests": one.requests,
            "removed_after_days": days,
            "advice": advice if one.found.files else None,
        }


class _Owners:
    """Whose a file is: the innermost table's whose root is above it, else its dataset's, else the tenant's."""

    def __init__(self, tenant: TenantSettings, places: PlacesByTable) -> None:
        self._tenant = tenant.id
        tables, datasets = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for ref, where in places.items():
            name = f"{tenant.id}/{ref.dataset}" if is_of_no_dataset(ref) else ref.label
            for place in where:
                tables[prefix(place)].add(name)
        for dataset in tenant.datasets:
            for address in dataset.places.values():
                datasets[prefix(Location.parse(address))].add(f"{tenant.id}/{dataset.id}")
        self._names = {place: self._one(names) for place, names in {**datasets, **tables}.items()}
        self._nearest = Nearest(self._names)

    def of(self, path: str) -> str:
        place = self._nearest.above(path)
        return self._tenant if place is None else self._names[place]

    def _one(self, names: set[str]) -> str:
        """What several share is that of none of them."""
        if len(names) == 1:
            return next(iter(names))
        datasets = {"/".join(name.split("/", 2)[:2]) for name in names}
        return next(iter(datasets)) if len(datasets) == 1 else self._tenant
