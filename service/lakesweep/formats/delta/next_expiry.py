"""When something of a Delta table becomes old enough next, if nobody commits. Pure.

    removed files   at the end of their retention, or of the grace period if that is longer, each by its own time
    change data     likewise, by the time of the commit that wrote it
    log files       at the midnight that log cleanup goes by

Too early only costs a look. What only a checkpoint still knows is found by a listing, and waits for that anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc

from lakesweep.formats.delta.retention import millis
from lakesweep.formats.delta.state import DeltaState

_DAY_MS = 24 * 60 * 60 * 1000


def next_expiry(state: DeltaState, floor: timedelta, grace: timedelta) -> datetime | None:
    """After the moment that the state was judged at; None if nothing is left to wait for."""
    now_ms = millis(state.as_of)
    retention_ms = now_ms - state.delete_before_ms(floor)
    waits_ms = {retention_ms, max(retention_ms, grace // timedelta(milliseconds=1))}
    moments = [begun + wait for begun in _beginnings(state) for wait in waits_ms]
    if state.properties.log_cleanup_enabled:
        log_ms = state.properties.log_retention // timedelta(milliseconds=1)
        moments += [-(-written // _DAY_MS) * _DAY_MS + log_ms for written in _written(state)]
    soonest = min((moment for moment in moments if moment >= now_ms), default=None)
    return None if soonest is None else datetime.fromtimestamp(soonest / 1000, UTC) + timedelta(milliseconds=1)


def _beginnings(state: DeltaState) -> Iterator[int]:
    """From when on removed files and change data are waiting."""
    yield from (file.modified_ms or millis(state.as_of) for file in state.listing.commits.values())
    for actions in (state.removed_below, state.segment.tail.last):
        yield from pc.unique(actions.column("removed_ms").drop_null()).to_pylist()


def _written(state: DeltaState) -> Iterator[int]:
    return (file.modified_ms or millis(state.as_of) for file in state.listing.files)
