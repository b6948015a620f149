"""The words that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakesweep.model.table import FormatName

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file (TOML). Without it: the one that LAKESWEEP_CONFIG names, or the defaults.",
        show_default=False,
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Log everything, and show tracebacks.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Format = Annotated[
    FormatName | None,
    typer.Option(
        "--format", help="Format of a table given by its location, instead of detecting it.", show_default=False
    ),
]
Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="LOCATION",
        help="For a table given by its location: the place outside of which nothing is touched. Default: the location.",
        show_default=False,
    ),
]
TARGET_HELP = (
    "tenant/dataset/table as configured, with globs such as 'acme/*/*', or a location: s3://…, file://… or a path."
)
