"""Guess a point in the middle of a range of keys. Pure text work; a bad guess costs a request, never a key."""

from __future__ import annotations

_BEFORE_FIRST, _AFTER_LAST = 0x20, 0x7F
"""Points are made of printable ASCII: valid in every request, and what nearly all keys are made of."""


def midpoint(low: str, bound: str | None, prefix: str) -> str | None:
    """A text after `low` and before `bound` (or the end of `prefix`) in key order; None if there is no room.

    It never adds a slash: an empty segment would be a place that some stores read as another.
    """
    high = prefix + chr(_AFTER_LAST) if bound is None else bound
    if not low.startswith(prefix) or low >= high:
        return None
    at = _shared(low, high)
    ceiling = min(ord(high[at]), _AFTER_LAST)
    for position in range(at, len(low) + 1):
        floor = max(ord(low[position]) if position < len(low) else 0, _BEFORE_FIRST)
        middle = (floor + ceiling) // 2
        for code in (middle, middle + 1, middle - 1):
            if floor < code < ceiling and code != ord("/"):
                return low[:position] + chr(code)
        ceiling = _AFTER_LAST
    return None


def _shared(low: str, high: str) -> int:
    """How many characters two texts have in common at their beginning."""
    count = 0
    while count < len(low) and low[count] == high[count]:
        count += 1
    return count
