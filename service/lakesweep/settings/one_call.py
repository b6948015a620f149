"""Rules for one call from the command line or Python, which override the configured ones. Pure.

They are the narrowest level of the cascade and have the same minimums as the settings; nothing here can lift a ceiling,
a hold or a `dry_run = true`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from lakesweep.model.errors import SettingsError
from lakesweep.settings.cleanup import CleanupOverride

_SPAN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([mhdw])\s*$")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def override(
    *, older_than: timedelta | None = None, retain_last: int | None = None, grace: timedelta | None = None
) -> CleanupOverride:
    """The age from which snapshots may expire, the number kept on each branch, and the grace period of unreferenced
    files."""
    given: dict[str, Any] = {
        "max_snapshot_age_hours": _hours("older_than", older_than),
        "min_snapshots_to_keep": _number("retain_last", retain_last),
        "grace_period_hours": _hours("grace", grace),
    }
    try:
        return CleanupOverride.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        names = {"max_snapshot_age_hours": "older_than", "min_snapshots_to_keep": "retain_last"}
        faults = [
            f"{names.get(str(fault['loc'][0]), 'grace')}: {fault['msg'].replace('Input should be', 'must be')}"
            for fault in exc.errors()
        ]
        raise SettingsError(faults) from exc


def span(name: str, text: str | None) -> timedelta | None:
    """Parse `90m`, `12h`, `3d` or `2w`."""
    if text is None:
        return None
    found = _SPAN.match(text)
    if found is None:
        raise SettingsError(f"{name} {text!r}: expected a number and m, h, d or w, such as 3d")
    return float(found[1]) * _UNITS[found[2]]


def _number(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise SettingsError(f"{name} must be a whole number, such as 5, not {value!r}")
    return value


def _hours(name: str, value: timedelta | None) -> float | None:
    if value is None:
        return None
    if not isinstance(value, timedelta):
        raise SettingsError(f"{name} must be a datetime.timedelta, such as timedelta(days=3), not {value!r}")
    return value.total_seconds() / 3600
