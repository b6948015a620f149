"""Reads `plan.sql`: named statements, with the limits of a plan filled in."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from lakesweep.model.files import METADATA_SHOWN, MISSING_SHOWN

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LIMITS = {":missing_shown": str(MISSING_SHOWN), ":metadata_shown": str(METADATA_SHOWN)}


@cache
def statements() -> dict[str, str]:
    """The text of each statement by its name."""
    text = resources.files("lakesweep.engines").joinpath("plan.sql").read_text(encoding="utf-8")
    for placeholder, limit in _LIMITS.items():
        text = text.replace(placeholder, limit)
    pieces = _NAME.split(text)
    return {name: body.strip() for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}
