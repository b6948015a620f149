"""Errors between Spark's workers and this process. Pure text work; nothing is ever guessed to be harmless.

A worker raises its error as a WorkerFault, whose text carries the error through Spark's stack traces whole. Here
it becomes the same error again; everything else Spark says becomes EngineFailed with one sentence.
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
_LONGEST = 400


class WorkerFault(Exception):
    """An error on its way from a worker. Its text is for people, with the error itself at the end."""


def carried(error: LakesweepError) -> WorkerFault:
    """The error as a worker raises it."""
    kind = type(error).__name__
    if isinstance(error, Unreadable | StorageError) and kind in _ADDRESSED:
        words = [error.address, error.why]
    else:
        kind, words = kind if kind in _SPOKEN else EngineFailed.__name__, [str(error)]
    code = base64.b64encode(json.dumps([kind, *words]).encode()).decode()
    return WorkerFault(f"{error} [lakesweep-fault:{code}]")


def understood(text: str) -> LakesweepError:
    """What a Spark error means to us, from all its text."""
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
    return EngineFailed(f"Spark could not finish: {_first_words(text)}")


def _first_words(text: str) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not line.startswith(("An error occurred while calling", "at ", ":"))]
    words = telling[0] if telling else text.strip()
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
