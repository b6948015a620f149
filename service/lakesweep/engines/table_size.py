"""Estimate how many files a table has before it is listed: from its metadata and from earlier runs. Pure.

Metadata counts live files only, and some tables keep no count; a run has listed everything, garbage included, but some
time ago. The larger number wins: an engine that is too small for a table is worse than one that is too large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakesweep.model import run_document
from lakesweep.ports.table import TableState

RUNS_LOOKED_AT = 5
"""How many runs to look back: one that failed before it listed has no number, but an older one may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number of files and where it comes from."""

    files: int
    source: str

    def __str__(self) -> str:
        return f"about {self.files} files by {self.source}"


def estimate(state: TableState, runs: Iterable[run_document.Run]) -> Estimate | None:
    """The larger number of the metadata and of the newest run that listed the table. `runs` are run documents, newest
    first."""
    said = [_by_metadata(state), _by_last_run(runs)]
    return max((one for one in said if one is not None), key=lambda one: one.files, default=None)


def _by_metadata(state: TableState) -> Estimate | None:
    if state.estimated_files is None:
        return None
    return Estimate(files=state.estimated_files, source="its metadata")


def _by_last_run(runs: Iterable[run_document.Run]) -> Estimate | None:
    for run in runs:
        kept = run["kept"]
        listed = kept["live"] + kept["young"] + kept["reserved"] + kept["foreign"] + run["orphans"]["count"]
        if listed:
            left = listed - run["deleted"]["count"]
            return Estimate(files=max(left, 0), source=f"the run of {run['started_at'][:16].replace('T', ' ')} UTC")
    return None
