"""`lakesweep audit`: check the audit trail, and show what one run did. Reads only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lakesweep.cli import documents, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from lakesweep.audit.inspect import Findings, Inspector

app = typer.Typer(name="audit", help="Verify and show the audit trail.", no_args_is_help=True, rich_markup_mode=None)

_SAID = ("record", "event", "by")


@app.command()
@session.command()
async def verify(opened: session.Session, table: options.OnlyTable = None, as_json: options.Json = False) -> ExitCode:
    """Check that the audit trail was not modified.

    Reads every segment and compares it with the one before it, and the newest with what the state store recorded, to
    find segments that were changed, removed or replaced.

    Exit codes: 0 nothing was modified, 2 bad usage or settings, 4 something was modified or cannot be read.
    """
    inspector = opened.app.trails.inspector()
    if as_json:
        with documents.array("tables", sys.stdout) as written:
            return await _each(inspector, table, lambda found: written.add(asdict(found)))
    console = screen.output()
    tables = 0

    def show_one(found: Findings) -> None:
        nonlocal tables
        tables += 1
        _show_findings(console, found)

    code = await _each(inspector, table, show_one)
    if not tables:
        screen.line(console, "there are no audit records yet")
    return code


@app.command()
@session.command()
async def show(
    opened: session.Session,
    run: options.Run,
    table: Annotated[
        str | None,
        options.option(
            "--table", metavar="TENANT/DATASET/TABLE", help="Its table; needed only if the state store was lost."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what a run recorded about each file.

    Who started it, which files it decided to delete and why, and what happened to each.

    Exit codes: 0 shown, 2 no such run, 4 its records are damaged or cannot be read.
    """
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    console = screen.output()
    run_id = await targets.whole_run_id(opened.app.state, run)
    async with aclosing(opened.app.trails.inspector().records(run_id, table)) as records:
        if as_json:
            with documents.array("records", sys.stdout) as written:
                async for segment, record in records:
                    written.add({"at": segment.at.isoformat(), "segment": segment.number, **record})
        else:
            async for segment, record in records:
                screen.long_line(console, f"{segment.at:%Y-%m-%d %H:%M:%S} {_sentence(record)}")


@app.command()
@session.command()
async def compact(
    opened: session.Session,
    older_than_days: Annotated[
        float, Option("--older-than-days", min=1, metavar="N", help="Leave newer records as they are.")
    ] = 90,
    table: options.OnlyTable = None,
    as_json: options.Json = False,
) -> None:
    """Pack old records into Parquet files.

    The files take about a tenth of the space, and no record changes: `verify` and `show` read them as before. Needs
    the right to delete below service.artifacts.

    Exit codes: 0 done, 2 bad usage or settings, 4 something cannot be read or written.
    """
    trails, now = opened.app.trails, opened.app.clock.now()
    inspector, packer = trails.inspector(), trails.packer()
    rows = []
    for name in [table] if table else await opened.app.state.audited_tables():
        numbers = await inspector.unpacked(name)
        packed = await packer.pack(name, numbers, now - timedelta(days=older_than_days))
        rows.append({"table": name, **asdict(packed)})
    if as_json:
        documents.write({"tables": rows})
        return
    for row in rows:
        sizes = f"{screen.size(row['bytes_before'])} became {screen.size(row['bytes_after'])}"
        segments = f"{screen.counted(row['segments'], 'segment')} packed, {sizes}"
        shown = segments if row["segments"] else "nothing to pack"
        screen.say(f"{row['table']}: {shown}")


async def _each(inspector: Inspector, table: str | None, show: Callable[[Findings], None]) -> ExitCode:
    code = ExitCode.DONE
    async with aclosing(inspector.verify(table)) as tables:
        async for findings in tables:
            show(findings)
            if findings.faults:
                code = ExitCode.FAILED
    return code


def _show_findings(console: Console, findings: Findings) -> None:
    from lakesweep.daemon.events import CHAIN  # noqa: PLC0415 - heavy

    noun = "event" if findings.table == CHAIN else "run"
    whole = f"{screen.counted(findings.segments, 'segment')} of {screen.counted(findings.runs, noun)}"
    verdict = screen.text("BROKEN", "red") if findings.faults else screen.text("ok", "green")
    console.print(screen.text(f"{findings.table}: {whole}: "), verdict, sep="", soft_wrap=True)
    for fault in findings.faults:
        screen.long_line(console, f"  - {fault}", "red")
    for remark in findings.remarks:
        screen.long_line(console, f"  - {remark}", "yellow")


def _sentence(record: dict[str, Any]) -> str:
    """One record on one line; what only a machine reads is left to --json."""
    match record:
        case {"record": "begin", "trigger": {"by": by, "who": who}, "head": head, "plan": plan}:
            planned = f"{plan['count']:,} files, {screen.size(plan['bytes'])}" if plan else "no plan"
            return f"begin by {by} ({who}), head {head}, {planned}"
        case {"record": "expiring" | "expired" as event, "snapshots": snapshots}:
            return f"{event} {screen.counted(len(snapshots), 'snapshot')} {' '.join(snapshots)}".rstrip()
        case {"record": "delete" | "spare" as event, "path": path, "size_bytes": size, "kind": kind, "reason": reason}:
            return f"{event} {path} ({kind}, {reason}, {screen.size(size)})"
        case {"record": "end", "outcome": outcome, "deleted": deleted}:
            freed_bytes = record.get("freed_bytes", deleted["bytes"])  # records before this field had freed it all
            kept = deleted["bytes"] - freed_bytes
            retained = f", {screen.size(kept)} kept in trash or versions" if kept > 0 else ""
            freed = f"{deleted['count']:,} deleted, {screen.size(freed_bytes)} freed{retained}"
            return f"end: {outcome}, {freed}" + (f" ({record['reason']})" if record.get("reason") else "")
        case {"record": event, "path": path}:
            return f"{event} {path}" + (f": {record['why']}" if record.get("why") else "")
        case _:
            return _event(record) if record.get("record") == "event" else documents.dumps(record)


def _event(record: dict[str, Any]) -> str:
    rest = [f"{name} {value}" for name, value in record.items() if name not in _SAID and value is not None]
    return ", ".join([f"{record.get('event')} by {record.get('by')}", *rest])
