"""A story leaves little garbage behind: it is enough to look for it after some, and never among modules."""

from __future__ import annotations

import atexit
import gc

_MUCH = 3_000_000
"""Objects that are left over: a thousand of each story, and 0.4 MB. More than a process of a campaign ever gets to."""


def collect_much() -> None:
    """If there is enough of it to be worth looking."""
    if gc.get_count()[0] > _MUCH:
        gc.collect()
        gc.freeze()  # what is left is kept on purpose: do not look at it again


def collect_seldom() -> None:
    """From now on only when somebody asks."""
    if gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.disable()
        atexit.register(gc.unfreeze)  # DuckDB complains at the end of what nobody took away
