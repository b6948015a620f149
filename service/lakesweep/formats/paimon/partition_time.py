"""When a partition value was, read from its text: Java's date patterns, as far as tables use them. Pure. The result is
a wall-clock time without a zone. Text that does not fit gives None, and then the partition never expires; a pattern
that is not understood raises, so that a person hears of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

ParseTime = Callable[[str], datetime | None]

_DEFAULT = re.compile(
    r"(?P<y>\d{1,10})-(?P<M>\d{1,2})-(?P<d>\d{1,2})"
    r"(?: (?P<H>\d{1,2}):(?P<m>\d{1,2}):(?P<s>\d{1,2})(?:\.(?P<S>\d{1,9}))?)?"
)
_LETTERS = "yuMdHmsSn"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


def default_time(text: str) -> datetime | None:
    """`2024-1-1` or `2024-01-01 10:20:30.5`. Overlong parts carry over, as in Java: hour 24 is the next day."""
    found = _DEFAULT.fullmatch(text)
    if not found:
        return None
    part = {name: int(value) if value else 0 for name, value in found.groupdict().items()}
    years, month = divmod(part["M"] - 1, 12)
    try:
        first = datetime(part["y"] + years, month + 1, 1)  # noqa: DTZ001 - partition values have no zone
        return first + timedelta(days=part["d"] - 1, hours=part["H"], minutes=part["m"], seconds=part["s"])
    except (ValueError, OverflowError):
        return None


def time_parser(pattern: str) -> ParseTime:
    """A parser for a `java.time.format.DateTimeFormatter` pattern. Raises ValueError for one we do not understand."""
    expression = re.compile(_regex(pattern))
    named = set(expression.groupindex)
    if not {"M", "d"} <= named or not {"y", "u"} & named:
        raise ValueError(f"the pattern {pattern!r} does not give a complete date")

    def parse(text: str) -> datetime | None:
        found = expression.fullmatch(text)
        return _moment(found.groupdict()) if found else None

    return parse


def _regex(pattern: str) -> str:
    pieces = []
    seen: set[str] = set()
    for token in _TOKEN.finditer(pattern):
        quoted, letter, other = token.groups()
        if quoted is not None:
            pieces.append(re.escape(quoted.replace("''", "'") or "'"))
        elif letter:
            if letter not in _LETTERS or letter in seen:
                raise ValueError(f"the letter {letter!r} in the pattern {pattern!r} is not understood")
            seen.add(letter)
            pieces.append(f"(?P<{letter}>{_digits(letter, len(token.group()), pattern)})")
        elif other in "[]":
            pieces.append("(?:" if other == "[" else ")?")
        elif other in "#{}":
            raise ValueError(f"the character {other!r} in the pattern {pattern!r} is reserved")
        else:
            pieces.append(re.escape(other))
    try:
        re.compile("".join(pieces))
    except re.error as exc:
        raise ValueError(f"the pattern {pattern!r} is not well-formed: {exc}") from exc
    return "".join(pieces)


def _digits(letter: str, count: int, pattern: str) -> str:
    """One letter takes any number of digits, two or more exactly as many; three months are a name."""
    if letter in "Mdhms" and count > 2:
        raise ValueError(f"the pattern {pattern!r} asks for names, only numbers are understood")
    if letter in "Sn":
        return rf"\d{{{count}}}" if letter == "S" else r"\d{1,9}"
    return r"\d{1,4}" if count == 1 else rf"\d{{{count}}}"


def _moment(part: dict[str, str | None]) -> datetime | None:
    year = part.get("y") or part.get("u") or ""
    fraction = (part.get("S") or "0").ljust(9, "0")
    try:
        return datetime(  # noqa: DTZ001 - partition values have no zone
            2000 + int(year) if len(year) == 2 else int(year),
            int(part["M"] or 0),
            int(part["d"] or 0),
            int(part.get("H") or 0),
            int(part.get("m") or 0),
            int(part.get("s") or 0),
            int(fraction[:6]),
        )
    except ValueError:
        return None
