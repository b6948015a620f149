"""What a report says of trash, noncurrent versions and incomplete uploads: sentences, and a row by owner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakesweep.cli import screen
from lakesweep.model import lake_report
from lakesweep.model.run_document import Tally
from lakesweep.model.store_rules import LeftoverKind

NEVER = "trash, noncurrent versions, incomplete uploads: not counted yet; `lakesweep report --fresh` does"
_TENANTS_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table, or what is nobody's below a dataset or a tenant."""

    owner: str
    sizes: tuple[str, ...]
    """In the order of `LeftoverKind`; a dash where it was not counted."""
    files: int
    cost: str


def rows(found: lake_report.Report) -> list[Row]:
    owners = [(row["table"], row["leftovers"]) for row in found["tables"]]
    parts = [*found["datasets"], *found["tenants"]]
    owners += [(f"{part['name']}, unclaimed", part["unclaimed"]) for part in parts]
    known = [(name, one) for name, one in owners if one is not None and _files(one)]
    return [
        Row(
            owner=name,
            sizes=tuple(screen.size(tally["bytes"]) if tally else "-" for tally in _tallies(one)),
            files=_files(one),
            cost=screen.money(one["cost_per_month"], found["currency"]),
        )
        for name, one in sorted(known, key=lambda pair: (-pair[1]["bytes"], pair[0]))
    ]


def sentences(found: lake_report.Report) -> list[str]:
    """The sums by kind, what was not counted and why, and how old that is."""
    sums, counts = found["totals"]["leftovers"], found["leftover_counts"]
    if sums is None:
        return [NEVER]
    statements: dict[str, list[str]] = {}
    for kind, tally in zip(LeftoverKind, _tallies(sums), strict=True):
        statements.setdefault(_statement(tally, [one for one in counts if one["kind"] == kind]), []).append(
            kind.replace("_", " ")
        )
    lines = [f"{_and(kinds)}: {statement}" for statement, kinds in statements.items()]
    money = screen.money(sums["cost_per_month"], found["currency"])
    cost = f", {money} a month" if sums["cost_per_month"] is not None and sums["bytes"] else ""
    requests = sum(one["requests"] for one in counts)
    took = f" with {screen.counted(requests, 'request')}" if requests else ""
    oldest = screen.moment(min(one["counted_at"] for one in counts))
    return [*lines, f"together {screen.size(sums['bytes'])}{cost}; counted {oldest}{took}; no cycle deletes them"]


def advice(found: lake_report.Report) -> list[str]:
    advice = ((one["advice"], one["tenant"]) for one in found["leftover_counts"] if one["advice"])
    return [f"{tenants}: {text}" for text, tenants in _by_text(advice)]


def _and(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _statement(tally: Tally | None, counts: Sequence[lake_report.LeftoverCount]) -> str:
    if tally is None:
        statement = "not counted"
    else:
        least = "at least " if any(not one["complete"] for one in counts) else ""
        statement = f"{least}{screen.size(tally['bytes'])} in {screen.counted(tally['count'], 'file')}"
    days = {one["removed_after_days"] for one in counts if one["found"] and one["found"]["count"]}
    if len(days) == 1 and (after := next(iter(days))) is not None:
        statement += f", which a lifecycle rule removes after {screen.counted(after, 'day')}"
    problems = _by_text((one["problem"], one["tenant"]) for one in counts if one["problem"])
    return "; ".join([statement, *(f"{tenants}: {problem}" for problem, tenants in problems)])


def _by_text(pairs: Iterable[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Each text once, with the tenants it is true of."""
    found: dict[str, list[str]] = {}
    for text, tenant in pairs:
        found.setdefault(text or "", []).append(tenant)
    return [(text, _named(tenants)) for text, tenants in found.items()]


def _named(tenants: Sequence[str]) -> str:
    more = len(tenants) - _TENANTS_NAMED
    return ", ".join(tenants[:_TENANTS_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _tallies(one: lake_report.Leftovers) -> tuple[Tally | None, ...]:
    return one["trash"], one["noncurrent_versions"], one["incomplete_uploads"]


def _files(one: lake_report.Leftovers) -> int:
    return sum(tally["count"] for tally in _tallies(one) if tally)
