"""The commands of `lakesweep`, and the process's exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from lakesweep import __version__
from lakesweep.cli import audit, startup, token
from lakesweep.cli.completion import completion, prepare_completion
from lakesweep.cli.demo import demo
from lakesweep.cli.ghosts import ghosts, lake_map
from lakesweep.cli.hold import holds, pause, resume, stop
from lakesweep.cli.init import doctor, init
from lakesweep.cli.report import report
from lakesweep.cli.run import compact_manifests, explain, plan, run, serve
from lakesweep.cli.runs import approve, runs, show, tables
from lakesweep.cli.settings import settings
from lakesweep.cli.trash import restore, trash


class _Commands(TyperGroup):
    """Says what is wrong with an option in our words: typer passes on what pydantic says."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as exc:
            exc.message = exc.message.removeprefix("Value error, ").replace("Input should be", "must be")
            raise


app = typer.Typer(
    name="lakesweep",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_WORK = (plan, run, report, ghosts, serve, tables, settings, runs, show, explain, approve, restore, trash)
_START = (init, doctor, completion)
_HOLDS = (pause, stop, holds, resume)
for command in (*_WORK, *_HOLDS, *_START, compact_manifests, demo):
    app.command()(command)
app.command("map")(lake_map)
for group in (audit.app, token.app):
    app.add_typer(group)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lakesweep {__version__}")
        raise typer.Exit


@app.callback()
def _lakesweep(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Keep lakehouse tables clean: expire old snapshots, then delete what no snapshot references.

    A file is deleted only when it is proven unreferenced. Start with `lakesweep demo`, with `lakesweep plan TARGET`,
    which changes nothing, or with `lakesweep init`. Settings come from one TOML file: --config FILE after any command,
    or LAKESWEEP_CONFIG.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Without arguments given, they are those of this process."""
    if arguments is None:
        startup.begin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the locale cannot write is shown escaped; it must not end the program.
            stream.reconfigure(errors="backslashreplace")
    prepare_completion()
    try:
        app(args=arguments, prog_name="lakesweep")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
