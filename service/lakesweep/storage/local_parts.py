"""Divide a local tree into parts that other processes list: its directories, and the files above them."""

from __future__ import annotations

from lakesweep.cleanup.ports import Part
from lakesweep.model.location import Location
from lakesweep.storage.local_walk import directories

_MOST_PER_WANTED = 20
"""Parts beyond this many times the wanted number cost more than they spread."""
_DEEPEST = 3
"""Levels that are looked at."""


def divided(root: Location, wanted: int) -> list[Part]:
    """Directories with all that is below them, from as many levels as give enough, and the files of those above."""
    done: list[Part] = []
    level = [root.path.rstrip("/") or "/"]
    for depth in range(_DEEPEST):
        if not level or len(done) + len(level) >= wanted:
            break
        above, level = level, []
        for path in above:
            inner = directories(path, is_root=depth == 0)
            if len(done) + len(level) + len(inner) > _MOST_PER_WANTED * wanted:
                inner = []
            done.append(Part(root=root, prefix=path, flat=bool(inner)))
            level += [f"{path.rstrip('/')}/{name}" for name in inner]
    return done + [Part(root=root, prefix=path) for path in level]
