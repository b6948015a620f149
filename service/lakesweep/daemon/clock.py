"""The real clock. Everything else gets it handed in."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """Time as this machine tells it."""

    def now(self) -> datetime:
        """Aware, in UTC."""
        return datetime.now(UTC)
