"""`lakesweep explain`: why one file stays or goes. Reads only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import completion, documents, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def explain(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Full address of one stored file, as a plan shows it.")],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            autocompletion=completion.targets,
            help="The table it belongs to: tenant/dataset/table or a location. Default: the configured table that "
            "holds the path.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: options.Json = False,
    older_than: options.OlderThan = None,
    retain_last: options.RetainLast = None,
    grace: options.Grace = None,
    table_format: options.Format = None,
    root: options.Root = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Say why a file stays, or from when it may be deleted.

    Names the snapshots, branches, tags and manifests that keep it, or the evidence that nothing does. Takes the
    same rules as `plan`, and with the same rules gives the same answer.

    Exit codes: 0 explained, 2 bad usage or settings, 3 outside the table, 4 the table cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        explanation = await opened.app.explain(path, target=target, format=table_format, root=root)
        if as_json:
            print(documents.dumps(explanation.document), file=sys.stdout)
        else:
            lists.show_explanation(screen.output(), explanation)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug, rules=session.Rules(older_than, retain_last, grace)))
