"""The store's clock as its last answer told it. Every answer has a Date header, so to ask for nothing but the time is
needed only if there was no answer within the last seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SECONDS = 5.0
"""How long an answer serves. What passed since is added to it."""


class AnsweredClock:
    """Of one store."""

    def __init__(self, elapsed: Callable[[], float] = lambda: time.clock_gettime(_STEADY)) -> None:
        self._elapsed = elapsed
        self._last: tuple[datetime, float] | None = None

    def note(self, response_dict: dict[str, Any] | None = None, **_: object) -> None:
        """Botocore's event for an answer. One from a cache on the way (`Age`) tells an old time."""
        headers = {str(name).lower(): text for name, text in ((response_dict or {}).get("headers") or {}).items()}
        if "age" in headers:
            return
        try:
            date = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        if date.tzinfo is not None:
            self._last = (date, self._elapsed())

    def now(self) -> datetime | None:
        """None if the last answer is too long ago."""
        if self._last is None:
            return None
        date, at = self._last
        passed = self._elapsed() - at
        return date + timedelta(seconds=passed) if 0 <= passed < _SECONDS else None
