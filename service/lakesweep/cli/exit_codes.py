"""What a command's exit code says. Over several tables the highest wins: 4 > 3 > 2 > 0."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from lakesweep.model.errors import LakesweepError, Refused, SettingsError
from lakesweep.model.run import CleanupRun, Outcome


class ExitCode(IntEnum):
    """A table that could not be judged outweighs one that a guard stopped, and that a name that does not exist."""

    DONE = 0
    USAGE = 2
    """Bad options or settings, or a target that names no table."""
    REFUSED = 3
    """A guard said no."""
    FAILED = 4
    """Failed, or what must be kept could not be read."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it."""
    CLOSED_PIPE = 141
    """The reader of standard output went away, as shells count it."""


def of_run(run: CleanupRun) -> ExitCode:
    if run.outcome is None or run.outcome is Outcome.FAILED:
        return ExitCode.FAILED
    if run.refusal is not None or run.outcome is Outcome.REFUSED:
        return ExitCode.REFUSED
    return ExitCode.DONE


def of_error(error: BaseException) -> ExitCode:
    """What an error contributes that belongs to no table's run."""
    if isinstance(error, SettingsError):
        return ExitCode.USAGE
    return ExitCode.REFUSED if isinstance(error, Refused) else ExitCode.FAILED


def highest(codes: Iterable[ExitCode]) -> ExitCode:
    return max(codes, default=ExitCode.DONE)


def sentence(error: BaseException) -> str:
    """An error as a person reads it: several faults on a line each, an unexpected one with its type."""
    if isinstance(error, SettingsError) and len(error.faults) > 1:
        return "\n".join([f"{len(error.faults)} errors in the settings:", *(f"  - {fault}" for fault in error.faults)])
    if isinstance(error, LakesweepError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"
