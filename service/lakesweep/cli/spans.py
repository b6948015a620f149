"""Spans and moments as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from lakesweep.model.errors import SettingsError

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"([1-9][0-9]{0,3})([mhdw])")


def end(now: datetime, *, until: str | None, lasts: str | None) -> datetime | None:
    """When something ends that was given `--until TIME` or `--for SPAN`; None for neither."""
    if until is not None and lasts is not None:
        raise SettingsError("give either --until or --for")
    ends_at = moment(until) if until is not None else now + span(lasts) if lasts is not None else None
    if ends_at is not None and ends_at <= now:
        raise SettingsError(f"--until {until}: that time has passed")
    return ends_at


def span(text: str) -> timedelta:
    """`90m`, `12h`, `3d`, `2w`."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"--for {text!r}: expected a span like 90m, 12h, 3d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def moment(text: str) -> datetime:
    """As ISO 8601 has it; in UTC if it names no zone, as everywhere else here."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # the last year's end has no time in UTC, nor has the first year's beginning
        raise SettingsError(f"--until {text!r}: expected a time like 2026-12-24T18:00") from None
