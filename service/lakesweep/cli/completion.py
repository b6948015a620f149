"""`lakesweep completion`: the script that makes a shell complete commands, tenants and tables.

A name is completed from the settings and from the runs that are remembered; no catalog and no store is queried.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakesweep.settings.schema import Settings

_VARIABLE = "_LAKESWEEP_COMPLETE"


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a script that completes commands and tables.

    For bash: `source <(lakesweep completion bash)` in ~/.bashrc; likewise for zsh and fish. Names of tables come from
    the settings file that LAKESWEEP_CONFIG names and from past runs.

    Exit codes: 0 printed, 2 no such shell.
    """
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - only this command needs it

    print(get_completion_script(prog_name="lakesweep", complete_var=_VARIABLE, shell=shell.value))


def prepare_completion() -> None:
    """When a shell asks: let the parser know the shells, which it does by itself only with options of its own."""
    if _VARIABLE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415 - only a shell needs it

        completion_init()


def targets(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tenants, datasets and tables that begin so. Never raises: a shell is waiting."""
    found: list[str] = []
    with contextlib.suppress(Exception):
        from lakesweep.settings.load import load  # noqa: PLC0415 - heavy

        given = context.params.get("config")
        settings = load(Path(given) if given else None)
        found = sorted({*_configured(settings), *asyncio.run(_remembered(settings))})
    return [name for name in found if name.startswith(incomplete)]


def _configured(settings: Settings) -> Iterator[str]:
    for tenant in settings.tenants:
        yield tenant.id
        for dataset in tenant.datasets:
            yield f"{tenant.id}/{dataset.id}"
            yield from (f"{tenant.id}/{dataset.id}/{table.name}" for table in dataset.tables)


async def _remembered(settings: Settings) -> set[str]:
    """Tables of past runs, where the state store is an existing file: opening one that is missing would create it."""
    file = settings.state_url.removeprefix("sqlite:///")
    if not settings.state_url.startswith("sqlite:///") or not await asyncio.to_thread(Path(file).exists):
        return set()
    from lakesweep.daemon.clock import SystemClock  # noqa: PLC0415 - heavy
    from lakesweep.state.registry import open_state  # noqa: PLC0415 - heavy

    state = await open_state(settings.state_url, SystemClock())
    try:
        return {run["table"] for run in await state.list_runs(limit=500)}
    finally:
        await state.aclose()
