"""The options that several commands share, each described once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName

option = partial(Option, show_default=False)
argument = partial(Argument, show_default=False)
"""Where the help says what holds without it."""
Tenant = Annotated[str | None, argument(metavar="TENANT", help="Only this tenant. Default: all.")]
Scopes = Annotated[
    list[str] | None, argument(metavar="TARGET", help="Only these: a tenant, tenant/dataset, a table or a glob.")
]
Config = Annotated[
    Path | None,
    option(
        "--config",
        metavar="FILE",
        help="Settings file (TOML), also s3://…. Without it: the one that LAKESWEEP_CONFIG names, or the defaults.",
    ),
]
Debug = Annotated[bool, Option("--debug", help="Log everything, and show tracebacks.")]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Format = Annotated[
    FormatName | None, option("--format", help="Format of a table given by its location, instead of detecting it.")
]
Root = Annotated[
    str | None,
    option(
        "--root",
        metavar="LOCATION",
        help="For a table given by its location: the place outside of which nothing is touched. Default: the location.",
    ),
]
OlderThan = Annotated[
    str | None,
    option(
        "--older-than", metavar="AGE", help="For this call: snapshots older than this may expire, such as 3d or 12h."
    ),
]
RetainLast = Annotated[
    int | None, option("--retain-last", metavar="N", help="For this call: how many snapshots of each branch stay.")
]
Grace = Annotated[
    str | None, option("--grace", metavar="AGE", help="For this call: how long unreferenced files stay; not below 24h.")
]
NoListing = Annotated[
    bool,
    Option(
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
Run = Annotated[str, Argument(metavar="RUN", help="A run's id, or its beginning, as `lakesweep runs` shows it.")]
OnlyTable = Annotated[str | None, option("--table", metavar="TENANT/DATASET/TABLE", help="Only this table.")]
Details = Annotated[bool, Option("--details", help="Show every table in full, even if there are several.")]
ShownOutcome = Annotated[Outcome | None, option("--outcome", help="Show only tables with this outcome.")]
ShownRefused = Annotated[bool, Option("--refused", help="Show only tables that are refused or fail.")]
Reason = Annotated[str | None, Option("--reason", metavar="TEXT", help="Shown wherever the hold is listed.")]
TARGET_HELP = (
    "tenant/dataset/table as configured, with globs such as 'acme/*/*', or a location: s3://…, file://… or a path."
)
