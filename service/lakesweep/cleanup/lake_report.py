"""Build the report of a whole lake from what is known about its tables. Pure: values in, a document out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import cast

from lakesweep.cleanup.report import iso_utc
from lakesweep.model import lake_report as documents
from lakesweep.model.files import Reason
from lakesweep.model.refusal import consequences, remedy
from lakesweep.model.run import Outcome
from lakesweep.model.run_document import Run
from lakesweep.model.table import FormatName
from lakesweep.ports.state import RunFigures

TREND_DAYS = 90
GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """One table, as the settings, the catalogs and the state store know it."""

    label: str
    format: FormatName
    enabled: bool
    dry_run: bool
    unreadable: str | None = None
    """Why its dataset or the table itself cannot be opened."""
    held: str | None = None
    held_scope: str | None = None
    """What `resume` is to be given."""
    planned: Run | None = None
    """The newest run that made a plan."""
    last: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a GB (10^9 bytes) costs in a month; 0 when nobody knows."""

    per_gb_month: float
    currency: str

    def of(self, size_bytes: int) -> float | None:
        return round(size_bytes / GB * self.per_gb_month, 2) if self.per_gb_month else None


def report(
    tables: Iterable[KnownTable], runs: Sequence[RunFigures], *, now: datetime, price: Price
) -> documents.Report:
    """The whole lake, the most wasteful table first. `runs` are those since `TREND_DAYS` ago, oldest first."""
    unplanned: dict[str, list[RunFigures]] = defaultdict(list)
    for run in runs:
        if not run.planned and (run.restored_files or run.deleted_files):
            unplanned[run.table].append(run)
    rows = sorted(
        (_table(one, unplanned[one.label], price) for one in tables),
        key=lambda row: (-row["waste_bytes"], row["table"]),
    )
    named = {row["table"] for row in rows}
    of_these = [run for run in runs if run.table in named]
    lately = [run for run in of_these if run.started_at >= now - timedelta(days=30)]
    problems = Counter(row["why"]["code"] for row in rows if row["why"])
    whole = _part("", rows, price, lately)
    return {
        "generated_at": iso_utc(now),
        "currency": price.currency,
        "totals": {
            "tables": whole["tables"],
            "planned": sum(row["bytes"] is not None for row in rows),
            "bytes": whole["bytes"],
            "files": whole["files"],
            "waste_bytes": whole["waste_bytes"],
            "cost_per_month": whole["cost_per_month"],
            "deleted_bytes_30_days": sum(run.deleted_bytes for run in lately),
            "freed_bytes_30_days": whole["freed_bytes_30_days"],
            "retained_bytes_30_days": whole["retained_bytes_30_days"],
            "oldest_plan_at": min((row["last_planned_at"] for row in rows if row["last_planned_at"]), default=None),
            "ghosts": {"count": 0, "bytes": 0},
            "former_tables": 0,
            "problems": dict(sorted(problems.items())),
            "leftovers": None,
        },
        "tenants": _parts(rows, 1, price, lately),
        "datasets": _parts(rows, 2, price, lately),
        "tables": rows,
        "trend": trend(of_these, now.date()),
        "ghosts": [],
        "ghosts_looked_at": None,
        "leftover_counts": [],
    }


def trend(runs: Iterable[RunFigures], today: date) -> list[documents.Day]:
    """Day by day: what the newest plan of each table until then could delete, and what was deleted."""
    freed: Counter[date] = Counter()
    plans: dict[date, dict[str, int]] = defaultdict(dict)
    orphan: dict[str, int] = {}
    expired: dict[str, int] = {}
    for run in runs:
        day, table = run.started_at.date(), run.table
        freed[day] += run.freed_bytes
        if run.planned:
            left = max(0, run.orphan_bytes - run.deleted_bytes)
            expired[table] = _share(left, run.expired_bytes, run.orphan_bytes)
            orphan[table] = left - expired[table] + run.restored_bytes
        elif table in orphan:
            # Without a listing only files of expired snapshots are deleted.
            expired[table] = max(0, expired[table] - run.deleted_bytes)
            orphan[table] += run.restored_bytes
        else:
            continue
        plans[day][table] = orphan[table] + expired[table]
    if not plans:
        return []
    waste: dict[str, int] = {}
    days: list[documents.Day] = []
    first = min(plans)
    for number in range((today - first).days + 1):
        day = first + timedelta(days=number)
        waste |= plans.get(day, {})
        days.append({"date": day.isoformat(), "waste_bytes": sum(waste.values()), "freed_bytes": freed[day]})
    return days


def _table(known: KnownTable, unplanned: Iterable[RunFigures], price: Price) -> documents.ReportTable:
    planned = known.planned
    bytes_, files = None, None
    if planned:
        since = datetime.fromisoformat(planned["started_at"])
        later = [run for run in unplanned if run.started_at > since]
        restored, taken = sum(run.restored_bytes for run in later), sum(run.deleted_bytes for run in later)
        bytes_ = _figures(planned, "bytes", restored=restored, taken=taken)
        restored, taken = sum(run.restored_files for run in later), sum(run.deleted_files for run in later)
        files = _figures(planned, "count", restored=restored, taken=taken)
    waste = bytes_["orphan"] + bytes_["expired"] if bytes_ else 0
    sentence, why = _problem(known)
    newest = known.last or planned
    return {
        "table": known.label,
        "format": known.format.value,
        "location": newest["location"] if newest else None,
        "bytes": bytes_,
        "files": files,
        "waste_bytes": waste,
        "cost_per_month": price.of(waste) if bytes_ else None,
        "last_planned_at": planned["started_at"] if planned else None,
        "last_run_id": newest["run_id"] if newest else None,
        "last_outcome": newest["outcome"] if newest else None,
        "problem": sentence,
        "why": why,
        "leftovers": None,
    }


def _figures(run: Run, unit: str, *, restored: int, taken: int) -> documents.Figures:
    """What the plan found and did not delete, with what later runs without a listing have `restored` and `taken`.

    What was restored is not in the plan: its own run, or one before it, had deleted that. Without a listing only files
    of expired snapshots are deleted.
    """
    kept = run["kept_bytes"] if unit == "bytes" else run["kept"]
    found = run["orphans"]["bytes"] if unit == "bytes" else run["orphans"]["count"]
    gone = run["deleted"]["bytes"] if unit == "bytes" else run["deleted"]["count"] + run["already_gone"]
    left = max(0, found - gone)
    by_reason = run["orphans"]["by_reason"].get(Reason.EXPIRED.value)
    of_expired = (by_reason["bytes"] if unit == "bytes" else by_reason["count"]) if by_reason else 0
    # Nobody counts deleted or restored files by reason, so they are split as the plan was.
    expired = _share(left, of_expired, found)
    expired_back = _share(restored, of_expired, found)
    return {
        "live": kept["live"],
        "young": kept["young"],
        "reserved": kept["reserved"],
        "orphan": left - expired + restored - expired_back,
        "expired": max(0, expired - taken) + expired_back,
        "foreign": kept["foreign"],
    }


def _share(number: int, part: int, whole: int) -> int:
    return number * part // whole if whole else 0


def _problem(known: KnownTable) -> tuple[str | None, documents.InTheWay | None]:
    """The most serious thing that stops a table from being cleaned. A person is needed if it does not end by itself."""
    last = known.last
    if known.unreadable is not None:
        return known.unreadable, _why("unreadable", "Check the dataset's catalog or location.", needs_person=True)
    if known.held is not None:
        why = _why("paused", None, needs_person=True)
        return known.held, {**why, "scope": known.held_scope}
    if last is not None and last["refused"] is not None and last["outcome"] is not None:
        code = last["refused"]["code"]
        known_code = consequences(code)
        why = _why(code, remedy(code, last["run_id"]), needs_person=not known_code.tried_again_soon)
        return last["refused"]["reason"], {**why, "approvable": known_code.approvable}
    if last is not None and last["outcome"] is Outcome.FAILED:
        return last["reason"], _why("failed", "The next cycle tries again; see the runbook.", needs_person=True)
    return _not_started(known)


def _not_started(known: KnownTable) -> tuple[str | None, documents.InTheWay | None]:
    """Nothing went wrong, but nothing is deleted either."""
    if known.planned is None:
        return "it was never planned", _why("never_planned", f"`lakesweep plan '{known.label}'` plans it.")
    if not known.enabled:
        return "the service does not clean it: orphan_cleanup.enabled is false", _why(
            "disabled", "Set orphan_cleanup.enabled = true for it, or run it by hand."
        )
    if known.dry_run:
        return "nothing is deleted: orphan_cleanup.dry_run is true", _why(
            "dry_run", "Look at its plan, then set orphan_cleanup.dry_run = false."
        )
    return None, None


def _why(code: str, advice: str | None, *, needs_person: bool = False) -> documents.InTheWay:
    return {"code": code, "advice": advice, "needs_person": needs_person, "approvable": False, "scope": None}


def _parts(
    rows: Iterable[documents.ReportTable], depth: int, price: Price, lately: Iterable[RunFigures]
) -> list[documents.Part]:
    """The same by tenant or by dataset, the most wasteful first."""
    groups: dict[str, list[documents.ReportTable]] = defaultdict(list)
    runs: dict[str, list[RunFigures]] = defaultdict(list)
    for row in rows:
        groups[_beginning(row["table"], depth)].append(row)
    for run in lately:
        runs[_beginning(run.table, depth)].append(run)
    parts = [_part(name, members, price, runs[name]) for name, members in groups.items()]
    return sorted(parts, key=lambda part: (-part["waste_bytes"], part["name"]))


def _beginning(label: str, depth: int) -> str:
    return "/".join(label.split("/")[:depth])


def part_without_tables(name: str, price: Price) -> documents.Part:
    return _part(name, (), price, ())


def _part(
    name: str, rows: Sequence[documents.ReportTable], price: Price, lately: Sequence[RunFigures]
) -> documents.Part:
    waste = sum(row["waste_bytes"] for row in rows)
    return {
        "name": name,
        "tables": len(rows),
        "bytes": _sum(rows, lambda row: row["bytes"]),
        "files": _sum(rows, lambda row: row["files"]),
        "waste_bytes": waste,
        "cost_per_month": price.of(waste),
        "freed_bytes_30_days": sum(run.freed_bytes for run in lately),
        "retained_bytes_30_days": max(
            0, sum(run.deleted_bytes - run.freed_bytes - run.restored_bytes for run in lately)
        ),
        "leftovers": None,
        "unclaimed": None,
    }


def _sum(
    rows: Iterable[documents.ReportTable], pick: Callable[[documents.ReportTable], documents.Figures | None]
) -> documents.Figures:
    known = [figures for row in rows if (figures := pick(row))]
    return cast("documents.Figures", {name: sum(one[name] for one in known) for name in documents.FIGURES})
