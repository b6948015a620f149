"""The options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName

Tenant = Annotated[
    str | None, typer.Argument(metavar="TENANT", help="Only this tenant. Default: all.", show_default=False)
]
Scopes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET", help="Only these: a tenant, tenant/dataset, a table or a glob.", show_default=False
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file (TOML), also s3://…. Without it: the one that LAKESWEEP_CONFIG names, or the defaults.",
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
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="AGE",
        help="For this call: snapshots older than this may expire, such as 3d or 12h.",
        show_default=False,
    ),
]
RetainLast = Annotated[
    int | None,
    typer.Option(
        "--retain-last", metavar="N", help="For this call: snapshots of each branch that stay.", show_default=False
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="AGE",
        help="For this call: how long unreferenced files stay; not below 24h.",
        show_default=False,
    ),
]
NoListing = Annotated[
    bool,
    typer.Option(
        "--no-listing",
        help="Do not list the table: only files of expiring snapshots can be deleted. Unreferenced and missing files "
        "wait for the next listing. A table that cannot be cleaned safely this way is listed, and the output says why.",
    ),
]
SHARED: dict[str, tuple[object, object]] = {
    "older_than": (OlderThan, None),
    "retain_last": (RetainLast, None),
    "grace": (Grace, None),
    "table_format": (Format, None),
    "root": (Root, None),
    "config": (Config, None),
    "debug": (Debug, False),
}
"""What `session.command` adds to a command, with its defaults."""
PLANNING = ("older_than", "retain_last", "grace", "table_format", "root")
"""Of commands that judge a table."""
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its beginning, as `lakesweep runs` shows it.")]
OnlyTable = Annotated[
    str | None, typer.Option("--table", metavar="TENANT/DATASET/TABLE", help="Only this table.", show_default=False)
]
Details = Annotated[bool, typer.Option("--details", help="Show every table in full, even if there are several.")]
ShownOutcome = Annotated[
    Outcome | None, typer.Option("--outcome", help="Show only tables with this outcome.", show_default=False)
]
ShownRefused = Annotated[bool, typer.Option("--refused", help="Show only tables that are refused or fail.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Shown wherever the hold is listed.")]
TARGET_HELP = (
    "tenant/dataset/table as configured, with globs such as 'acme/*/*', or a location: s3://…, file://… or a path."
)
