"""The commands of `lakesweep`, as their own parser knows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from lakesweep.cli.main import app

LAKESWEEP = typer.main.get_command(app)


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, found in command.commands.items():
        if hasattr(found, "commands"):
            yield from _below(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


COMMANDS = dict(_below(LAKESWEEP, ()))
"""By name: `plan`, `audit verify`, …"""
