"""What the audit trail records of one file that was brought back. Reads only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from lakesweep.cleanup.explain import Explanation
from lakesweep.model.errors import LakesweepError
from lakesweep.ports.state import StateStore

_RUNS = 200
"""Runs of the table looked back on."""


Records = Callable[[str, str], Any]
"""The audit records of a run of a table."""


@dataclass(frozen=True, kw_only=True)
class RestoredFiles:
    """Looks for a file among those that restores of its table brought back."""

    state: StateStore
    records: Records

    async def add(self, explanation: Explanation) -> Explanation:
        """The same with a sentence for every restore that brought it back, the newest first."""
        label = explanation.table.label
        added = [
            sentence
            for run in await self.state.list_runs(table=label, limit=_RUNS)
            if run["restored"] is not None
            async for sentence in self._sentences(run["run_id"], run["restored"]["run_id"], explanation)
        ]
        return replace(explanation, sentences=(*explanation.sentences, *added)) if added else explanation

    async def _sentences(self, run_id: str, of: str, explanation: Explanation) -> AsyncIterator[str]:
        who = "somebody"
        try:
            async with aclosing(self.records(run_id, explanation.table.label)) as records:
                async for segment, record in records:
                    if record["record"] == "begin":
                        who = record["trigger"]["who"]
                    elif record["record"] == "restored" and record["path"] == explanation.path:
                        when = f"{segment.at:%Y-%m-%d %H:%M} UTC"
                        yield f"restored on {when} by {who}: run {of} had taken it, run {run_id} restored it"
        except LakesweepError as exc:
            yield f"run {run_id} restored files, but its audit trail cannot be read ({exc})"
