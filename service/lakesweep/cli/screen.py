"""How values look on a screen: consoles, tables, units. Text from outside is shown, never interpreted.

On a terminal there are colours and lines; anywhere else the same as plain text, one row a line, however long.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakesweep.model.units import counted, size

__all__ = ["counted", "size"]  # commands take these from here, with all else that they print with

NARROW = 100
"""A terminal with fewer columns has shorter times and less space between columns."""
_PLAIN_WIDTH = 100_000
"""Without a terminal nothing is wrapped or cut: another program may read the lines."""


class _Output(Console):
    """Leaves a reader that went away to `session`, which has an exit code for it."""

    def on_broken_pipe(self) -> None:
        """Is called while the error is handled."""
        raise  # noqa: PLE0704 - see above


def output() -> Console:
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return _Output(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def say(value: object) -> None:
    output().print(text(value))


def line(console: Console, value: object, style: str = "") -> None:
    console.print(text(value, style))


def long_line(console: Console, value: object, style: str = "") -> None:
    """One that the terminal breaks, so that it can be copied whole."""
    console.print(text(value, style), soft_wrap=True)


def complain(message: str) -> None:
    print(f"lakesweep: {printable(message, newlines=True)}", file=sys.stderr)


def printable(text: str, *, newlines: bool = False) -> str:
    """An object's key may hold control characters, which must not reach a terminal."""
    return "".join(
        one if one.isprintable() or (newlines and one == "\n") else one.encode("unicode_escape").decode()
        for one in text
    )


def text(value: object, style: str = "") -> Text:
    """Text to show as it is: `[bold]` in a path is part of the path."""
    return Text(printable(str(value)), style=style)


def table(
    console: Console,
    *columns: str,
    numbers: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
) -> Table:
    """A table with a line under its head on a terminal, else with blanks. Only `paths` are broken into lines."""
    lines = box.SIMPLE_HEAD if console.is_terminal else None
    padding = (0, 1, 0, 0) if console.is_terminal and console.width < NARROW else (0, 1)
    made = Table(box=lines, show_edge=False, pad_edge=console.is_terminal, header_style="bold", padding=padding)
    for column in columns:
        overflow, justify = ("fold" if column in paths else "ellipsis"), ("right" if column in numbers else "left")
        made.add_column(column, overflow=overflow, justify=justify, no_wrap=column in (numbers + whole))  # type: ignore[arg-type]
    return made


def block(console: Console, shown: Table) -> None:
    console.print()
    console.print(shown)


def and_more(console: Console, number: int, noun: str = "") -> None:
    if number > 0:
        line(console, f"  … and {counted(number, f'more {noun}') if noun else f'{number:,} more'}", "dim")


def count(number: int) -> str:
    return f"{number:,}"


def money(amount: float | None, currency: str) -> str:
    """12.30 USD; nothing where no price is known."""
    return "-" if amount is None else f"{amount:,.2f} {printable(currency)}"


def age(when: str | None, now: datetime) -> str:
    """How long ago: 5m, 3h, 12d. Never happened: never."""
    if when is None:
        return "never"
    seconds = max(0, int((now - datetime.fromisoformat(when)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def moment(when: datetime | str | None) -> str:
    """2026-03-01 12:00 UTC, whether it comes as a time or from a document."""
    if when is None:
        return "-"
    if isinstance(when, str):
        when = datetime.fromisoformat(when)
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
