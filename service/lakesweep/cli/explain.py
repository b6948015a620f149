"""`lakesweep explain`: why one file stays or goes. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from lakesweep.cli import completion, documents, lists, options, screen, session


@session.command(*options.PLANNING)
async def explain(
    opened: session.Session,
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
) -> None:
    """Say why a file stays, or from when it may be deleted.

    Names the snapshots, branches, tags and manifests that keep it, or the evidence that nothing does. Takes the
    same rules as `plan`, and with the same rules gives the same answer.

    Exit codes: 0 explained, 2 bad usage or settings, 3 outside the table, 4 the table cannot be read.
    """
    explanation = await opened.app.explain(path, target=target, format=opened.format, root=opened.root)
    if as_json:
        documents.write(explanation.document)
    else:
        lists.show_explanation(screen.output(), explanation)
