"""Put what was counted beside the tables' files into the report of a lake. Pure: values in, a document out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakesweep.cleanup.lake_report import Price, part_without_tables
from lakesweep.model import lake_report as documents
from lakesweep.model import run_document
from lakesweep.model.files import Tally
from lakesweep.model.store_rules import LeftoverKind

Found = Mapping[LeftoverKind, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLeftovers:
    """One tenant's, as they were last counted."""

    counts: Sequence[documents.LeftoverCount]
    by_owner: Mapping[str, Found] = field(default_factory=dict)
    """By table, by `tenant/dataset` for what is below a dataset's place but no table's, by tenant for the rest."""

    @property
    def counted(self) -> set[LeftoverKind]:
        return {one["kind"] for one in self.counts if one["found"] is not None}


def added(report: documents.Report, tenants: Mapping[str, TenantLeftovers], price: Price) -> documents.Report:
    """A tenant that has no table left gets a part of its own: what is stored there is paid for all the same."""
    with_tables = {part["name"] for part in report["tenants"]}
    without = {name: _as_its_own(name, found) for name, found in tenants.items() if name not in with_tables}
    tenants = {**tenants, **without}
    parts = [part_without_tables(name, price) for name in sorted(without)]
    report = {**report, "tenants": [*report["tenants"], *parts]}
    shown = _shown(report, tenants)
    below: defaultdict[str, list[Found]] = defaultdict(list)
    for owner, found in shown.items():
        tenant, *rest = owner.split("/", 2)
        below[tenant].append(found)
        if rest:
            below[f"{tenant}/{rest[0]}"].append(found)

    def counted(name: str, found: Iterable[Found]) -> documents.Leftovers | None:
        known = tenants.get(name.partition("/")[0])
        return _document(known.counted, found, price) if known else None

    def part(one: documents.Part) -> documents.Part:
        name = one["name"]
        return {**one, "leftovers": counted(name, below[name]), "unclaimed": counted(name, [shown.get(name, {})])}

    everywhere = set().union(*(tenant.counted for tenant in tenants.values()))
    whole = _document(everywhere, shown.values(), price) if tenants else None
    return {
        **report,
        "totals": {**report["totals"], "leftovers": whole},
        "tenants": [part(one) for one in report["tenants"]],
        "datasets": [part(one) for one in report["datasets"]],
        "tables": [
            {**row, "leftovers": counted(row["table"], [shown.get(row["table"], {})])} for row in report["tables"]
        ],
        "leftover_counts": [count for _, tenant in sorted(tenants.items()) for count in tenant.counts],
    }


def _as_its_own(tenant: str, found: TenantLeftovers) -> TenantLeftovers:
    """None of the tables is left that it was counted for."""
    sums: defaultdict[LeftoverKind, Tally] = defaultdict(Tally)
    for one in found.by_owner.values():
        for kind, tally in one.items():
            sums[kind] += tally
    return TenantLeftovers(counts=found.counts, by_owner={tenant: sums})


def _shown(report: documents.Report, tenants: Mapping[str, TenantLeftovers]) -> dict[str, Found]:
    names = {row["table"] for row in report["tables"]}
    names |= {part["name"] for part in [*report["tenants"], *report["datasets"]]}
    everyone = (tenant.by_owner for tenant in tenants.values())
    return {owner: found for by_owner in everyone for owner, found in by_owner.items() if owner in names}


def _document(counted: set[LeftoverKind], found: Iterable[Found], price: Price) -> documents.Leftovers:
    sums: defaultdict[LeftoverKind, Tally] = defaultdict(Tally)
    for one in found:
        for kind, tally in one.items():
            sums[kind] += tally
    size = sum(tally.bytes for tally in sums.values())

    def tally_of(kind: LeftoverKind) -> run_document.Tally | None:
        return {"count": sums[kind].files, "bytes": sums[kind].bytes} if kind in counted else None

    return {
        "trash": tally_of(LeftoverKind.TRASH),
        "noncurrent_versions": tally_of(LeftoverKind.NONCURRENT_VERSIONS),
        "incomplete_uploads": tally_of(LeftoverKind.INCOMPLETE_UPLOADS),
        "bytes": size,
        "cost_per_month": price.of(size),
    }
