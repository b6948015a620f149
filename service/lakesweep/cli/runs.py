"""`lakesweep tables`, `runs`, `show` and `approve`: the tables there are, past runs, and the plans that these saved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lakesweep.cleanup import report as reports
from lakesweep.cli import documents, exit_codes, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.targets import report_empty
from lakesweep.model import run_document
from lakesweep.model.errors import NoPlan, UnknownRun
from lakesweep.model.run import Outcome

if TYPE_CHECKING:
    from lakesweep.daemon.table_status import TableStatus
    from lakesweep.ports.state import PlanHeader, StateStore


class RunSort(StrEnum):
    """What comes first among runs."""

    STARTED = "started"
    TABLE = "table"
    DELETED = "deleted"
    DELETABLE = "deletable"


_KEYS: dict[RunSort, Callable[[run_document.Run], int | str]] = {
    RunSort.STARTED: lambda _: 0,  # as they come
    RunSort.TABLE: lambda run: run["table"],
    RunSort.DELETED: lambda run: -run["deleted"]["bytes"],
    RunSort.DELETABLE: lambda run: -run["orphans"]["bytes"],
}
_RUNS_AT_ONCE = 200


@session.command()
async def runs(
    opened: session.Session,
    targets: options.Scopes = None,
    *,
    table: options.OnlyTable = None,
    outcome: Annotated[Outcome | None, options.option("--outcome", help="Only runs with this outcome.")] = None,
    refused: Annotated[bool, Option("--refused", help="Only runs that were refused.")] = False,
    sort: Annotated[RunSort, Option("--sort", help="Order of the runs.")] = RunSort.STARTED,
    limit: Annotated[int, Option("--limit", min=1, metavar="N", help="Maximum number to return.")] = 20,
    as_json: options.Json = False,
) -> ExitCode:
    """List past runs, newest first.

    Shows what each one deleted, or why it did not. Every command that takes a run also takes the beginning of its id.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be read.
    """
    from lakesweep.daemon.targets import covers  # noqa: PLC0415 - heavy

    def wanted(run: run_document.Run) -> bool:
        return (
            (not targets or any(covers(target, run["table"]) for target in targets))
            and outcome in (None, run["outcome"])
            and (not refused or run["refused"] is not None)
        )

    found = sorted(await _matching(opened.app.state, wanted, table, limit), key=_KEYS[sort])
    if as_json:
        documents.write_array("runs", found)
    else:
        requested = [table] if table else targets or []
        lists.show_runs(screen.output(), found, ", ".join(requested))
        if requested and not found and (hint := await _suggested(opened, requested)):
            screen.say(hint)
    return ExitCode.DONE


async def _suggested(opened: session.Session, requested: Sequence[str]) -> str:
    """Names near those that nothing is known of: of tenants, datasets, and tables that had runs."""
    from lakesweep.daemon.targets import covers, suggestion  # noqa: PLC0415 - heavy

    recent = await opened.app.state.list_runs(limit=_RUNS_AT_ONCE)
    known = [run["table"] for run in recent]
    for tenant in opened.settings.tenants:
        known += [tenant.id, *(f"{tenant.id}/{dataset.id}" for dataset in tenant.datasets)]
    unknown = [name for name in requested if not any(covers(name, one) for one in known)]
    return " ".join(filter(None, (suggestion(name, known) for name in unknown)))


async def _matching(
    state: StateStore, wanted: Callable[[run_document.Run], bool], table: str | None, limit: int
) -> list[run_document.Run]:
    """The newest that are wanted, however many others lie between them."""
    found: list[run_document.Run] = []
    before: str | None = None
    while len(found) < limit:
        size = max(limit, _RUNS_AT_ONCE)
        page = await state.list_runs(table=table, before=before, limit=size)
        found += [run for run in page if wanted(run)]
        if len(page) < size:
            break
        before = page[-1]["run_id"]
    return found[:limit]


@session.command()
async def show(
    opened: session.Session,
    run: options.Run,
    *,
    files: Annotated[
        int, Option("--files", min=0, metavar="N", help="Show up to N of its files; --json has all.")
    ] = 10,
    as_json: options.Json = False,
) -> None:
    """Show the plan that a run saved.

    Its outcome, its files, and the digest for `lakesweep approve --digest`.

    Exit codes: 0 shown, 2 no such run or no plan of it is kept, 4 the plan cannot be read.
    """
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    state, artifacts = opened.app.state, opened.app.artifacts
    run_id = await targets.whole_run_id(state, run)
    recorded, header = await state.get_run(run_id), await state.get_plan(run_id)
    if recorded is None:
        raise UnknownRun(f"there is no run {run!r}: `lakesweep runs` shows them")
    if header is None or not header.rows_path:
        how = f"its outcome is {recorded['outcome']}" if recorded["outcome"] else "it has not ended"
        raise NoPlan(f"no plan of run {run} is kept: {how} ({recorded['reason'] or 'no reason given'})")
    if as_json:
        async with artifacts.opened(header.rows_path) as rows_path:
            _write(rows_path, recorded, header)
    else:
        first = await artifacts.page(header.rows_path, 0, files) if files else ()
        lists.show_stored_plan(screen.output(), recorded, header, first)


def _write(rows_path: str, recorded: run_document.Run, header: PlanHeader) -> None:
    """One document with all of the plan's files, some thousand in memory at a time."""
    from lakesweep.cleanup import arrow_json, plan_file  # noqa: PLC0415 - heavy

    document = {
        "run_id": header.run_id,
        "table": header.table,
        "head": header.head,
        "digest": header.digest,
        "created_at": reports.iso_utc(header.created_at),
        "outcome": recorded["outcome"],
        "refused": recorded["refused"],
    }
    whole = {"count": header.candidates, "bytes": header.bytes}
    batches = plan_file.read_checked(rows_path, header.digest)
    first = next(batches, None)  # a plan that cannot be read is reported before anything is written
    out = sys.stdout
    out.write(f'{documents.dumps(document)[:-1]}, "orphans": {documents.dumps(whole)[:-1]}, "files": [')
    separator = 1  # the first file has no comma before it
    for batch in chain(() if first is None else (first,), batches):
        text = arrow_json.plan_elements(batch)
        out.write(text[separator:])
        separator = 0 if text else separator
    out.write("]}}\n")


@session.command()
async def approve(
    opened: session.Session,
    run: Annotated[
        str, Argument(metavar="RUN", help="Id of the refused run, or its beginning, as `lakesweep runs` shows it.")
    ],
    digest: Annotated[
        str | None, options.option("--digest", metavar="SHA256", help="Approve only if the plan has this digest.")
    ] = None,
) -> None:
    """Approve a plan that exceeds its ceilings.

    The table is planned again and everything is checked again; the files of the approved plan no longer count
    against the ceilings, for orphan_cleanup.approval_hours from now.

    Exit codes: 0 approved, 2 bad usage or settings or no such run, 3 the run is not waiting for an approval,
    4 failed.
    """
    from lakesweep.daemon import audit_factory, targets  # noqa: PLC0415 - heavy

    run_id = await targets.whole_run_id(opened.app.state, run)
    approval = await opened.app.approve(run_id, by=audit_factory.this_user().who, digest=digest)
    header = await opened.app.state.get_plan(run_id)
    files = header.candidates if header else 0
    screen.output().print(
        screen.text(
            f"approved: {screen.counted(files, 'file')} of {approval.table} may be deleted until "
            f"{approval.expires_at:%Y-%m-%d %H:%M} UTC, in its next run"
        )
    )
    if remark := opened.app.approval_remark(approval.table):
        screen.complain(remark)


class TableSort(StrEnum):
    """What comes first among tables."""

    TABLE = "table"
    DELETABLE = "deletable"
    LAST_RUN = "last-run"


_TABLE_KEYS: dict[TableSort, Callable[[TableStatus], int | str]] = {
    TableSort.TABLE: lambda status: status.ref.label,
    TableSort.DELETABLE: lambda status: -(run_document.deletable_bytes(status.last_run) if status.last_run else -1),
    TableSort.LAST_RUN: lambda status: status.last_run["started_at"] if status.last_run else "",
}


@session.command()
async def tables(
    opened: session.Session,
    targets: options.Scopes = None,
    *,
    outcome: Annotated[
        Outcome | None, options.option("--outcome", help="Only tables whose last run has this outcome.")
    ] = None,
    refused: Annotated[
        bool, Option("--refused", help="Only tables whose last run was refused, or that cannot be read.")
    ] = False,
    sort: Annotated[TableSort | None, options.option("--sort", help="Order of the tables.")] = None,
    as_json: options.Json = False,
) -> ExitCode:
    """List the configured tables and their last runs.

    Tables are discovered from the configured catalogs and warehouses each time.

    Exit codes: 0 listed, 2 bad usage or settings, 4 some catalog or table could not be read.
    """
    names: Sequence[str | None] = targets or [None]
    # Each table once, however many targets name it.
    looked = list({status.ref: status for name in names for status in await opened.app.tables(name)}.values())
    found = [status for status in looked if _is_wanted(status, outcome, refused=refused)]
    if sort:
        found.sort(key=_TABLE_KEYS[sort])
    if as_json:
        documents.write_array("tables", (status.document for status in found))
    else:
        lists.show_tables(screen.output(), found)
    report_empty(opened, names, (status.ref for status in looked))
    return exit_codes.highest(ExitCode.FAILED for status in found if status.problem)


def _is_wanted(status: TableStatus, outcome: Outcome | None, *, refused: bool) -> bool:
    last = status.last_run
    in_the_way = status.problem is not None or bool(last and last["refused"])
    return outcome in (None, last["outcome"] if last else None) and (in_the_way or not refused)
