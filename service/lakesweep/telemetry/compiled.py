"""Whether the compiled inner loops are used, or their plain Python versions, which give the same results more slowly.

If the compiled parts are not installed or cannot be loaded, or if LAKESWEEP_PURE_PYTHON=1 is set, one log line says so.
"""

from __future__ import annotations

import importlib
import os

import structlog

VARIABLE = "LAKESWEEP_PURE_PYTHON"
PARTS = ("lakesweep.formats._avro", "lakesweep.storage.local._walk", "lakesweep.storage.local._unlink")

_NO = ("", "0", "false", "no", "off")

log = structlog.get_logger(__name__)
_without: dict[str, str] = {}
"""The parts that are not used, and why."""
_reported: list[str] = []


def is_there(name: str) -> bool:
    """Can this compiled module be used, and may it?"""
    if os.environ.get(VARIABLE, "").strip().lower() not in _NO:
        _without[name] = f"{VARIABLE} is set"
        return False
    try:
        importlib.import_module(name)
    except ImportError as exc:
        _without[name] = str(exc)
        return False
    return True


def without(name: str) -> str | None:
    """Why a part is not used, if it is not."""
    return _without.get(name)


def warn_if_missing() -> None:
    """Log once per process which parts are plain Python."""
    missing = [name for name in PARTS if not is_there(name)]
    if missing and not _reported:
        _reported.extend(missing)
        log.warning(
            "compiled_parts_missing",
            parts=[name.rpartition(".")[2] for name in missing],
            why=_without[missing[0]],
            detail="plain Python is used instead, which is slower; for the compiled parts, install a wheel for this "
            "platform, or install with a C compiler",
        )
