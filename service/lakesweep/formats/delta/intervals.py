"""Interval properties, read as Spark reads them. Pure. Text that cannot be parsed stops the table: a default in its
place would delete what its owner meant to keep."""

from __future__ import annotations

import re
from datetime import timedelta

LONGEST = timedelta(days=365_000)
"""Longer intervals mean the same: nothing is that old. Keeps dates inside the calendar."""

_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_CALENDAR_UNITS = ("month", "year")
_TERM = re.compile(r"([+-]?)\s*(\d+)(?:\.(\d{0,9}))?\s+([a-z]+)(?:\s+|$)", re.ASCII)


def parse(text: str) -> timedelta:
    """`interval 1 day 12 hours`, `30 days`, `INTERVAL 2 WEEKS`. Raises ValueError with what is wrong."""
    rest = text.strip().lower()
    if rest.startswith("interval") and rest[8:9].isspace():
        rest = rest[8:].lstrip()
    if not rest:
        raise ValueError("it is empty")
    total = 0
    while rest:
        term = _TERM.match(rest)
        if not term:
            raise ValueError(f"{rest!r} does not begin with a number and a unit")
        total += _microseconds(*term.groups())
        rest = rest[term.end() :]
    if total < 0:
        raise ValueError("it is negative")
    return timedelta(microseconds=min(total, LONGEST // timedelta(microseconds=1)))


def _microseconds(sign: str, whole: str, fraction: str | None, unit: str) -> int:
    name = unit.removesuffix("s")
    if name in _CALENDAR_UNITS and int(whole) == 0:
        return 0
    if name in _CALENDAR_UNITS:
        raise ValueError("months and years have no fixed length")
    if name not in _MICROSECONDS:
        raise ValueError(f"{unit!r} is not a unit of time")
    if fraction is not None and name != "second":
        raise ValueError("only seconds may have a fraction")
    value = int(whole) * _MICROSECONDS[name]
    if fraction:
        value += int(fraction.ljust(9, "0")) // 1000
    return -value if sign == "-" else value
