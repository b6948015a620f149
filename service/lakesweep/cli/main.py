"""The commands of `lakesweep`, one file each, and the process's exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from lakesweep import __version__
from lakesweep.cli import audit, startup, token
from lakesweep.cli.approve import approve
from lakesweep.cli.compact import compact_manifests
from lakesweep.cli.demo import demo
from lakesweep.cli.explain import explain
from lakesweep.cli.hold import pause, resume, stop
from lakesweep.cli.plan import plan
from lakesweep.cli.run import run
from lakesweep.cli.runs import runs
from lakesweep.cli.serve import serve
from lakesweep.cli.settings import settings
from lakesweep.cli.tables import tables

app = typer.Typer(
    name="lakesweep",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_WORK = (plan, run, serve, tables, settings, runs, explain, approve)
_HOLDS = (pause, stop, resume)
for command in (*_WORK, *_HOLDS, compact_manifests, demo):
    app.command()(command)
for group in (audit.app, token.app):
    app.add_typer(group)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lakesweep {__version__}")
        raise typer.Exit


@app.callback()
def _lakesweep(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Keep lakehouse tables clean: expire old snapshots, then delete what no snapshot references.

    A file is deleted only when it is proven unreferenced. Start with `lakesweep demo`, or with `lakesweep plan TARGET`,
    which changes nothing. Settings come from one TOML file: --config FILE after any command, or LAKESWEEP_CONFIG.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Without arguments given, they are those of this process."""
    if arguments is None:
        startup.begin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the locale cannot write is shown escaped; it must not end the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=arguments, prog_name="lakesweep")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
