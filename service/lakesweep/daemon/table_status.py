"""What is known of a table without looking at its files. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakesweep.daemon import cadence, run_results, targets
from lakesweep.daemon.cadence import Cadence
from lakesweep.daemon.targets import Work
from lakesweep.model import run_document
from lakesweep.model.errors import LakesweepError
from lakesweep.model.table import TableRef
from lakesweep.ports.state import Hold, StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One line of `lakesweep tables`."""

    ref: TableRef
    location: str | None
    problem: str | None
    last_run: run_document.Run | None
    paused: bool
    cadence: Cadence | None = None
    """As it was last chosen, where it is adaptive."""

    @property
    def document(self) -> run_document.Table:
        return {
            "table": self.ref.label,
            "format": self.ref.format,
            "location": self.location,
            "problem": self.problem,
            "last_run": self.last_run,
            "estimate": run_document.next_cycle(self.last_run),
            "paused": self.paused,
            **cadence.document(self.cadence),
        }


async def of(work: Work, state: StateStore, holds: Sequence[Hold]) -> TableStatus:
    """Where a table is, or why it cannot be opened, its last run, and whether a hold covers it."""
    runs = await state.list_runs(table=work.ref.label, limit=1)
    location, problem = await _place(work)
    paused = any(targets.covers(hold.scope, work.ref.label) for hold in holds)
    return TableStatus(
        ref=work.ref,
        location=location,
        problem=problem,
        last_run=runs[0] if runs else None,
        paused=paused,
        cadence=await cadence.recall(state, work.ref.label),
    )


async def _place(work: Work) -> tuple[str | None, str | None]:
    if work.table is None:
        return None, str(work.problem)
    try:
        return (await work.table.load()).location.raw, None
    except LakesweepError as exc:
        place = work.table.place()
        return place.raw if place else None, str(exc)
    except Exception as exc:  # noqa: BLE001 - a bug that one table meets must not hide the others
        return None, str(run_results.unexpected(exc))
