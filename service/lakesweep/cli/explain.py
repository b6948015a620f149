"""`lakesweep explain`: why one file stays or goes. Reads only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cleanup.report import iso_utc
from lakesweep.cli import documents, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cleanup.explain import Explanation
    from lakesweep.cli.session import Session


def explain(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Full address of one stored file, as a plan shows it.")],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The table it belongs to: tenant/dataset/table or a location. Default: the configured table that "
            "holds the path.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Say why a file stays, or from when it may go.

    Names the snapshots, branches, tags and manifests that keep it, or the evidence that nothing does.

    Exit codes: 0 explained, 2 bad usage or settings, 3 outside the table, 4 the table cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        explanation = await opened.app.explain(path, target=target)
        if as_json:
            print(documents.dumps(_document(explanation)), file=sys.stdout)
        else:
            lists.show_explanation(screen.output(), explanation)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def _document(explanation: Explanation) -> dict[str, object]:
    return {
        "path": explanation.path,
        "table": explanation.table.label,
        "verdict": explanation.verdict.value if explanation.verdict else None,
        "evidence": list(explanation.sentences),
        "deletable_from": iso_utc(explanation.deletable_from),
    }
