"""Divide a local tree into parts that other processes list: its directories, and the files above them."""

from __future__ import annotations

from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part
from lakesweep.storage.local.walk import Walk, directories

_MOST_PER_WANTED = 20
"""More parts than this multiple of the wanted number cost more than they help."""
_DEEPEST = 3
"""The number of levels searched."""


def divided(root: Location, wanted: int) -> list[Part]:
    """Directories with everything below them, from as many levels as needed, and the files directly in the levels
    above."""
    top = _top(root)
    done: list[Part] = []
    level = [top]
    for _ in range(_DEEPEST):
        if not level or len(done) + len(level) >= wanted:
            break
        above, level = level, []
        for path in above:
            inner = directories(top, _below(top, path))
            if len(done) + len(level) + len(inner) > _MOST_PER_WANTED * wanted:
                inner = []
            done.append(Part(root=root, prefix=path, flat=bool(inner)))
            level += [f"{path.rstrip('/')}/{name}" for name in inner]
    return done + [Part(root=root, prefix=path) for path in level]


def walk_of(part: Part, age_by: AgeBy) -> Walk:
    """One directory, with or without what is below it. Only the root itself may be a link."""
    top = _top(part.root)
    return Walk(top, _below(top, part.prefix), deep=not part.flat, age_by=age_by)


def _top(root: Location) -> str:
    return root.path.rstrip("/") or "/"


def _below(top: str, path: str) -> str:
    return path.removeprefix(top).removeprefix("/")
