"""A story leaves little garbage behind: it is enough to look for it after some, and never among modules."""

from __future__ import annotations

import atexit
import gc


def collect_seldom() -> None:
    """From now on only when somebody asks."""
    if gc.isenabled():
        gc.collect()
        gc.freeze()
        gc.disable()
        atexit.register(gc.unfreeze)  # DuckDB complains at the end of what nobody took away
