"""`lakesweep show`: the plan that a run stored. Reads only."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cleanup import report as reports
from lakesweep.cli import documents, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import UnknownRun

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.model import run_document
    from lakesweep.ports.state import PlanHeader


def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's id, or its beginning, as `lakesweep runs` shows it.")
    ],
    *,
    files: Annotated[
        int, typer.Option("--files", min=0, metavar="N", help="Show up to N of its files; --json has all.")
    ] = 10,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Show the plan that a run saved.

    Its outcome, its files, and the digest for `lakesweep approve --digest`.

    Exit codes: 0 shown, 2 no such run or no plan of it is kept, 4 the plan cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

        state, artifacts = opened.app.state, opened.app.artifacts
        run_id = await targets.whole_run_id(state, run)
        recorded, header = await state.get_run(run_id), await state.get_plan(run_id)
        if recorded is None:
            raise UnknownRun(f"there is no run {run!r}: `lakesweep runs` shows them")
        if header is None:
            how = f"its outcome is {recorded['outcome']}" if recorded["outcome"] else "it has not ended"
            raise UnknownRun(f"no plan of run {run} is kept: {how} ({recorded['reason'] or 'no reason given'})")
        if as_json:
            async with artifacts.opened(header.rows_path) as rows_path:
                _write(rows_path, recorded, header)
        else:
            first = await artifacts.page(header.rows_path, 0, files) if files else ()
            lists.show_stored_plan(screen.output(), recorded, header, first)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def _write(rows_path: str, recorded: run_document.Run, header: PlanHeader) -> None:
    """One document with all of the plan's files, some thousand in memory at a time."""
    from lakesweep.cleanup import plan_file  # noqa: PLC0415 - heavy
    from lakesweep.cli import plan_rows  # noqa: PLC0415 - heavy

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
        text = plan_rows.elements(batch)
        out.write(text[separator:])
        separator = 0 if text else separator
    out.write("]}}\n")
