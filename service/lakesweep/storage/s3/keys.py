"""Points between S3's keys. Pure."""

from __future__ import annotations

from os.path import commonprefix

_BEFORE_FIRST, _AFTER_LAST = 0x20, 0x7F
"""Points consist of printable ASCII: valid in every request, and what nearly all keys consist of."""
_KINDS = tuple((ord(first), ord(last) + 1) for first, last in ("09", "AZ", "az"))


def midpoint(low: str, bound: str | None, prefix: str, *, within_kind: bool = True) -> str | None:
    """A text after `low` and before `bound` (or the end of `prefix`) in key order; None if there is no room. Unless
    `within_kind` it is one in the middle of all characters.

    A bad guess costs a request, never a key. Keys rarely use all characters: where one has a digit, its neighbours
    mostly have digits as well. So a guess stays among the digits, or among the letters of one case, as long as there is
    room. It never adds a slash: some stores read an empty segment as another place."""
    high = prefix + chr(_AFTER_LAST) if bound is None else bound
    if not low.startswith(prefix) or low >= high:
        return None
    at = len(commonprefix([low, high]))  # noqa: RUF071 - character by character
    ceiling = min(ord(high[at]), _AFTER_LAST)
    for position in range(at, len(low) + 1):
        floor = max(ord(low[position]) if position < len(low) else 0, _BEFORE_FIRST)
        nearer = min(ceiling, _end_of_kind(floor)) if within_kind else ceiling
        code = _between(floor, nearer) or _between(floor, ceiling)
        if code is not None:
            return low[:position] + chr(code)
        ceiling = _AFTER_LAST
    return None


def _between(floor: int, ceiling: int) -> int | None:
    middle = (floor + ceiling) // 2
    for code in (middle, middle + 1, middle - 1):
        if floor < code < ceiling and code != ord("/"):
            return code
    return None


def _end_of_kind(code: int) -> int:
    """The character after the last one of the same kind."""
    return next((end for first, end in _KINDS if first <= code < end), _AFTER_LAST)
