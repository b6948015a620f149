"""`lakesweep report`: what the whole lake stores, what could be deleted, and what prevents it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from lakesweep.cli import documents, exit_codes, lists, options, report_html, report_leftovers, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.targets import Targets, report_empty
from lakesweep.model import lake_report
from lakesweep.model.errors import SettingsError
from lakesweep.model.refusal import RefusalCode

_TENANTS_SHOWN = 10
_OLD = timedelta(days=7)
_NOT_READ = frozenset({"unreadable", "failed", RefusalCode.INDETERMINATE.value})
"""Problems of tables for which the command fails."""


@session.command()
async def report(
    opened: session.Session,
    tenants: Annotated[
        list[str] | None, options.argument(metavar="TENANT", help="A tenant, tenant/dataset or a glob. Default: all.")
    ] = None,
    *,
    fresh: Annotated[
        bool,
        Option(
            "--fresh",
            help="Plan every table again first, and count trash, noncurrent versions and incomplete uploads. "
            "Changes nothing.",
        ),
    ] = False,
    html: Annotated[
        Path | None, options.option("--html", metavar="FILE", help="Write one HTML file that also works offline.")
    ] = None,
    limit: Annotated[int, Option("--limit", min=1, metavar="N", help="Tables to print; --json has all.")] = 20,
    as_json: options.Json = False,
) -> ExitCode:
    """Show what all tables store and what could be deleted.

    Made from the newest plan of each table, without listing storage; --fresh plans first. Sorted by what could be
    deleted. --fresh also counts what is stored beside the tables' files, with at most 1,000 requests per tenant for
    versions and as many for uploads; later reports show these counts and how old they are.

    Exit codes: 0 reported, 2 bad usage or settings, 4 some catalog or table could not be read.
    """
    if html is not None and not html.parent.is_dir():  # planning every table first would be in vain
        raise SettingsError(f"--html {html}: there is no directory {html.parent}")
    found, codes = await make(opened, tenants or [], fresh=fresh)
    if html is not None:
        try:
            html.write_text(report_html.page(found), encoding="utf-8", errors="backslashreplace")
        except OSError as exc:
            raise SettingsError(f"--html {html}: it cannot be written: {exc.strerror}") from exc
        screen.complain(f"wrote {html}")
    if as_json:
        documents.write(found)
    elif html is None:
        show(screen.output(), found, limit)
    # A guard that refuses a table is what a report is there to show, and no failure of the report.
    failed = [ExitCode.FAILED for code in found["totals"]["problems"] if code in _NOT_READ]
    return exit_codes.highest([*failed, *(code for code in codes if code is not ExitCode.REFUSED)])


async def make(
    opened: session.Session, names: Sequence[str], *, fresh: bool
) -> tuple[lake_report.Report, list[ExitCode]]:
    """The report, and the exit codes of what was planned for it."""
    from lakesweep.daemon import leftovers  # noqa: PLC0415 - heavy

    if not opened.settings.tenants:
        raise SettingsError("nothing to report: configure tenants and name the file with --config")
    works = await opened.app.works(names)
    planned = Targets(opened, names)
    if fresh:
        async for _ in planned.runs(execute=False):
            pass
    else:
        report_empty(opened, names or [None], [work.ref for work in works])
    return await leftovers.report(opened.app, works, names, fresh=fresh), planned.codes


def show(console: Console, found: lake_report.Report, limit: int) -> None:
    totals, now = found["totals"], datetime.fromisoformat(found["generated_at"])
    screen.line(console, _headline(found), "bold")
    holdings = (f"{name} {screen.size(totals['bytes'][name])}" for name in lake_report.FIGURES)
    screen.line(console, ", ".join(holdings), "dim")
    if totals["deleted_bytes_30_days"]:
        kept = totals["retained_bytes_30_days"]
        more = f"; {screen.size(kept)} deleted but kept in trash or versions" if kept else ""
        screen.line(console, f"{screen.size(totals['freed_bytes_30_days'])} freed in the last 30 days{more}")
    if trend := _trend(found["trend"]):
        screen.line(console, trend)
    screen.line(console, _ghosts(found))
    for sentence in report_leftovers.sentences(found):
        screen.line(console, sentence)
    _show_tenants(console, found)
    _show_tables(console, found, limit, now)
    screen.and_more(console, len(found["tables"]) - limit, "table")
    _show_leftovers(console, found, limit)
    _show_problems(console, found, limit)
    _show_age(console, found, now)


def _show_tables(console: Console, found: lake_report.Report, limit: int, now: datetime) -> None:
    """One line a table. A narrow terminal has no room for everything beside whole names."""
    numbers = ("deletable",) if console.width < screen.NARROW else ("deletable", "expired", "live", "cost")
    columns = ("table", *numbers, "planned", "in the way")
    shown = screen.table(console, *columns, numbers=(*numbers, "planned"), paths=("table",), whole=("in the way",))
    for row in found["tables"][:limit]:
        figures = row["bytes"]
        sizes = (row["waste_bytes"], figures["expired"], figures["live"]) if figures else ()
        cells = [*(screen.size(one) for one in sizes), *("-",) * (3 - len(sizes))]
        cells.append(screen.money(row["cost_per_month"], found["currency"]))
        shown.add_row(
            screen.text(row["table"]),
            *cells[: len(numbers)],
            screen.age(row["last_planned_at"], now),
            screen.text(row["why"]["code"] if row["why"] else "", "yellow"),
        )
    screen.block(console, shown)


def _headline(found: lake_report.Report) -> str:
    totals = found["totals"]
    money = screen.money(totals["cost_per_month"], found["currency"])
    cost = f", {money} a month" if totals["cost_per_month"] is not None else ""
    files = totals["files"]["orphan"] + totals["files"]["expired"]
    return (
        f"{screen.size(totals['waste_bytes'])} in {screen.counted(files, 'file')} could be deleted{cost}, "
        f"in {screen.counted(totals['tables'], 'table')}"
    )


def _trend(days: Sequence[lake_report.Day]) -> str | None:
    if len(days) < 2:
        return None
    first, most = days[0], max(days, key=lambda day: day["waste_bytes"])
    return (
        f"deletable since {first['date']}: {screen.size(first['waste_bytes'])} at first, at most "
        f"{screen.size(most['waste_bytes'])} on {most['date']}, {screen.size(days[-1]['waste_bytes'])} now"
    )


def _ghosts(found: lake_report.Report) -> str:
    ghosts, looked_at = found["totals"]["ghosts"], found["ghosts_looked_at"]
    if looked_at is None:
        return "ghosts: not searched for yet; `lakesweep ghosts` finds them"
    where = screen.counted(found["totals"]["former_tables"], "former table")
    return f"ghosts: {screen.size(ghosts['bytes'])} of {where}, as of {screen.moment(looked_at)}"


def _show_tenants(console: Console, found: lake_report.Report) -> None:
    if len(found["tenants"]) < 2:
        return
    numbers = ("deletable", "live", "cost")
    shown = screen.table(console, "tenant", *numbers, "tables", numbers=(*numbers, "tables"), paths=("tenant",))
    for part in found["tenants"][:_TENANTS_SHOWN]:
        shown.add_row(
            screen.text(part["name"]),
            screen.size(part["waste_bytes"]),
            screen.size(part["bytes"]["live"]),
            screen.money(part["cost_per_month"], found["currency"]),
            screen.count(part["tables"]),
        )
    screen.block(console, shown)
    screen.and_more(console, len(found["tenants"]) - _TENANTS_SHOWN, "tenant")


def _show_leftovers(console: Console, found: lake_report.Report, limit: int) -> None:
    rows = report_leftovers.rows(found)
    if rows:
        numbers = ("trash", "versions", "uploads", "files", "cost")
        shown = screen.table(console, "stored beside", *numbers, numbers=numbers, paths=("stored beside",))
        for row in rows[:limit]:
            shown.add_row(screen.text(row.owner), *row.sizes, screen.count(row.files), row.cost)
        screen.block(console, shown)
        screen.and_more(console, len(rows) - limit)
    for sentence in report_leftovers.advice(found):
        screen.long_line(console, sentence, "dim")


def _show_problems(console: Console, found: lake_report.Report, limit: int) -> None:
    waiting = [row for row in found["tables"] if row["why"] and row["why"]["needs_person"]]
    if waiting:
        console.print()
        screen.line(console, f"{screen.counted(len(waiting), 'table')} waiting for a person:", "bold yellow")
    for row in waiting[:limit]:
        screen.long_line(console, f"  {row['table']}: {row['problem']}")
        if row["why"] and row["why"]["advice"]:
            run_id = row["last_run_id"] or ""
            advice = row["why"]["advice"].replace(run_id, run_id[: lists.ID_SHOWN]) if run_id else row["why"]["advice"]
            screen.long_line(console, f"    {advice}", "dim")
    screen.and_more(console, len(waiting) - limit, "table")


def _show_age(console: Console, found: lake_report.Report, now: datetime) -> None:
    never = found["totals"]["tables"] - found["totals"]["planned"]
    planned = [row["last_planned_at"] for row in found["tables"] if row["last_planned_at"]]
    old = sum(now - datetime.fromisoformat(moment) > _OLD for moment in planned)
    parts = [
        *([f"{screen.counted(never, 'table')} never planned"] if never else []),
        *([f"{screen.counted(old, 'plan')} older than {_OLD.days} days"] if old else []),
    ]
    if parts:
        screen.line(console, f"{', '.join(parts)}: --fresh plans them again", "yellow")
