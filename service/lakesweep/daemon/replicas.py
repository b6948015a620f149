"""Notice replicas that run with other settings. Two that differ would clean the same tables by different rules.

Each replica leaves a note with its settings' digest in the state store and reads the one that is there. What differs is
logged once, shown by `/readyz`, and counted; nobody stops: during a roll-out it is normal for a minute. Settings that
are new to this replica are recorded in the audit trail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from lakesweep import __version__
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon.app import App
from lakesweep.settings.effective import digest

log = structlog.get_logger()

EVERY_SECONDS = 60.0
FRESH = timedelta(minutes=10)
"""A note that is older may be of a replica that is gone."""
_NOTE = "settings of a replica"


@dataclass(kw_only=True)
class Replicas:
    """Compares this replica's settings with the others'."""

    current: Callable[[], App]
    differs: str | None = field(init=False, default=None)
    """Who runs with other settings, if somebody does."""

    _recorded: str | None = field(init=False, default=None)

    async def compare(self) -> None:
        app = self.current()
        mine, now = digest(app.settings), app.clock.now()
        other = _other(await app.state.recall(_NOTE), app.owner, now)
        differs = other[0] if other and other[1] != mine else None
        if differs and differs != self.differs:
            log.warning("settings_differ", replica=differs, hint="give all replicas the same settings")
        self.differs = differs
        app.metrics.settings_differ.set(1 if self.differs else 0)
        if mine != self._recorded:
            async with app.events.tightening("settings", app.owner, digest=mine, version=__version__):
                self._recorded = mine
        await app.state.remember(_NOTE, json.dumps({"replica": app.owner, "settings": mine, "at": iso_utc(now)}))


def _other(note: str | None, mine: str, now: datetime) -> tuple[str, str] | None:
    """Another replica and its settings' digest, if its note is fresh. A note that cannot be read says nothing."""
    try:
        found = json.loads(note or "")
        at = datetime.fromisoformat(found["at"])
        name, settings = str(found["replica"]), str(found["settings"])
    except (ValueError, KeyError, TypeError):
        return None
    return (name, settings) if name != mine and abs(now - at) < FRESH else None
