"""Errors between Spark's workers and this process. Pure text processing. No error is assumed to be harmless.

A worker raises its error as a WorkerFault, whose text carries the complete error through Spark's stack traces. Here it
becomes the same error again. Every other error of Spark becomes EngineFailed with one sentence.
"""

from __future__ import annotations

import base64
import json
import re

from lakesweep.model.errors import (
    Denied,
    EngineFailed,
    Indeterminate,
    LakesweepError,
    NotFound,
    OutOfOrder,
    StorageError,
    Unavailable,
    Unreadable,
)

_ADDRESSED = {kind.__name__: kind for kind in (Unreadable, NotFound, Denied, Unavailable, OutOfOrder)}
_SPOKEN = {kind.__name__: kind for kind in (Indeterminate, EngineFailed)}

_CARRIED = re.compile(r"\[lakesweep-fault:([A-Za-z0-9+/=]+)\]")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_TOO_OLD = re.compile(r"\[?(?:UNSUPPORTED_PACKAGE_VERSION|PACKAGE_NOT_INSTALLED)\]? ([^\n]+)")
_PYTHONS = re.compile(r"\[?PYTHON_VERSION_MISMATCH\]? ?([^\n]+)")
_CAUSE = "Caused by: "
_ERROR = ": "
_NOISE = ("An error occurred while calling", "at ", ":", "Suppressed: ")
_LONGEST = 400
NOT_FINISHED = "Spark could not finish: "
"""Begins what is understood of any other error."""


class WorkerFault(Exception):
    """An error on its way from a worker. Its text is readable and ends with the serialised error."""


def carried(error: LakesweepError) -> WorkerFault:
    """The error in the form that a worker raises. Throttling, for instance, arrives as Unavailable."""
    kinds = [one.__name__ for one in type(error).__mro__]
    kind = next((one for one in kinds if one in _ADDRESSED or one in _SPOKEN), EngineFailed.__name__)
    if isinstance(error, Unreadable | StorageError) and kind in _ADDRESSED:
        words = [error.address, error.why]
    else:
        words = [str(error)]
    code = base64.b64encode(json.dumps([kind, *words]).encode()).decode()
    return WorkerFault(f"{error} [lakesweep-fault:{code}]")


def understood(text: str) -> LakesweepError:
    """The error of ours that a Spark error stands for, by its full text."""
    found = _CARRIED.search(text)
    if found:
        kind, *words = json.loads(base64.b64decode(found.group(1)))
        return _ADDRESSED[kind](*words) if kind in _ADDRESSED else _SPOKEN[kind](*words)
    if module := _NO_MODULE.search(text):
        name = module.group(1).partition(".")[0]
        return EngineFailed(
            f"the Spark executors do not have the Python package {name}: install this version of lakesweep there"
        )
    if version := _PYTHONS.search(text) or _TOO_OLD.search(text):
        return EngineFailed(f"the Spark executors run another Python environment than this one: {version.group(1)}")
    return EngineFailed(f"{NOT_FINISHED}{_innermost_cause(text)}")


def _innermost_cause(text: str) -> str:
    """The innermost cause of a Java error, or else the first line with useful text, or else the error itself."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    telling = [line for line in lines if line and not line.startswith(_NOISE)]
    outermost = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    words = next(iter([*causes[-1:], *telling, *outermost, *filter(None, lines)]), "")
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
