"""Read the settings again on SIGHUP or when their file changes. An invalid file changes nothing but is reported.

Some settings are bound to what was opened at the start: the state store, the ports. A change of those waits for a
restart. It is logged, and the other changes apply at once.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from pydantic import ValidationError

from lakesweep import __version__
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon.app import App
from lakesweep.model.errors import SettingsError
from lakesweep.settings.effective import digest
from lakesweep.settings.schema import Settings
from lakesweep.telemetry.metrics import Metrics

log = structlog.get_logger()

POLL_SECONDS = 5.0
COMPARE_SECONDS = 60.0
FRESH = timedelta(minutes=10)
"""A note of a replica that is older may be of one that is gone."""
_REPLICAS_NOTE = "settings of a replica"
AT_START_ONLY = ("service", "state", "admin", "metrics")
"""Sections that only a restart changes."""

Signature = tuple[int, int, int]


@dataclass(kw_only=True)
class Reloader:
    """Watches one file. `apply` is given every new set of settings; `problem` is what is wrong with the file now."""

    file: Path | None
    load: Callable[[], Settings]
    current: Settings
    apply: Callable[[Settings], None]
    metrics: Metrics
    problem: str | None = field(init=False, default=None)
    _requested: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._seen = _signature(self.file)
        self.metrics.settings_valid.set(1)

    @contextmanager
    def listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._requested.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._requested.wait()
            await self.check()

    async def check(self) -> None:
        """Reload if somebody requested it or the file is not what it was."""
        signature = await asyncio.to_thread(_signature, self.file)
        if not self._requested.is_set() and signature == self._seen:
            return
        self._requested.clear()
        self._seen = signature
        try:
            settings = self._bound(await asyncio.to_thread(self.load))
        except SettingsError as exc:
            self.problem = str(exc)
            self.metrics.settings_valid.set(0)
            self.metrics.settings_reloads.labels("kept").inc()
            log.warning("settings_kept", faults=exc.faults)
            return
        self.problem = None
        self.metrics.settings_valid.set(1)
        self.metrics.settings_reloads.labels("done").inc()
        log.info("settings_reloaded", changed=settings != self.current)
        if settings != self.current:
            self.current = settings
            self.apply(settings)

    def _bound(self, settings: Settings) -> Settings:
        """The new settings, but with what cannot change while the service runs."""
        waiting = [name for name in AT_START_ONLY if getattr(settings, name) != getattr(self.current, name)]
        if not waiting:
            return settings
        log.warning("settings_need_restart", sections=waiting)
        merged = settings.model_dump() | {name: getattr(self.current, name).model_dump() for name in waiting}
        try:
            return Settings.model_validate(merged)
        except ValidationError as exc:
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in exc.errors()]
            raise SettingsError(["these changes need a restart:", *faults]) from exc


def _signature(file: Path | None) -> Signature | None:
    """Changes whenever the file does; a link that is pointed elsewhere counts, as Kubernetes does it."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(kw_only=True)
class Replicas:
    """Notices replicas that run with other settings: two that differ would clean the same tables by different rules.

    Each replica leaves a note with its settings' digest in the state store and reads the one that is there. What
    differs is logged once, shown by `/readyz`, and counted; nobody stops: during a roll-out it is normal for a minute.
    Settings that are new to this replica are recorded in the audit trail.
    """

    current: Callable[[], App]
    differs: str | None = field(init=False, default=None)
    """Who runs with other settings, if somebody does."""

    _recorded: str | None = field(init=False, default=None)

    async def compare(self) -> None:
        app = self.current()
        mine, now = digest(app.settings), app.clock.now()
        other = _other(await app.state.recall(_REPLICAS_NOTE), app.owner, now)
        differs = other[0] if other and other[1] != mine else None
        if differs and differs != self.differs:
            log.warning("settings_differ", replica=differs, hint="give all replicas the same settings")
        self.differs = differs
        app.metrics.settings_differ.set(1 if self.differs else 0)
        if mine != self._recorded:
            async with app.events.tightening("settings", app.owner, digest=mine, version=__version__):
                self._recorded = mine
        await app.state.remember(
            _REPLICAS_NOTE, json.dumps({"replica": app.owner, "settings": mine, "at": iso_utc(now)})
        )


def _other(note: str | None, mine: str, now: datetime) -> tuple[str, str] | None:
    """Another replica and its settings' digest, if its note is fresh. A note that cannot be read says nothing."""
    try:
        found = json.loads(note or "")
        at = datetime.fromisoformat(found["at"])
        name, settings = str(found["replica"]), str(found["settings"])
    except (ValueError, KeyError, TypeError):
        return None
    return (name, settings) if name != mine and abs(now - at) < FRESH else None
