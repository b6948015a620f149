"""A run's id from its beginning, as a person types it. Never guesses: what several runs begin with is an error."""

from __future__ import annotations

from lakesweep.model.errors import SettingsError
from lakesweep.ports.state import StateStore

SHORTEST = 4
"""Fewer letters name nothing: one run today may be a thousand tomorrow."""
_WHOLE = 32


async def whole(state: StateStore, text: str) -> str:
    """The id of the one run that begins so. A text that no run begins with is returned as it is: the caller knows best
    how to report that there is no such run. Raises SettingsError if it is too short or if several runs begin with
    it."""
    if len(text) >= _WHOLE or await state.get_run(text) is not None:
        return text
    if len(text) < SHORTEST:
        raise SettingsError(f"{text!r} is too short for the beginning of a run's id: give {SHORTEST} letters or more")
    found = await state.runs_beginning(text, limit=6)
    if len(found) > 1:
        named = [f"  {run['run_id']}  {run['started_at'] or ''}  {run['table']}" for run in found[:5]]
        more = ["  …"] if len(found) > 5 else []
        raise SettingsError("\n".join([f"several runs begin with {text!r}; give more of the id:", *named, *more]))
    return found[0]["run_id"] if found else text
