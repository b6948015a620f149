"""Where `now` comes from."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from. Injected everywhere, so that tests control time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
