"""What the API needs from the service. The daemon implements it; names it gives are filtered here by tenant.

Documents are those of `model.run_document`. A method that is given `tenants` gives nothing of any other tenant; None
means all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakesweep.admin import documents
from lakesweep.model import run_document
from lakesweep.model.files import Candidate
from lakesweep.ports.state import Approval, Hold, PlanHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the service is well, and each thing that was looked at. Holds no names of tenants or tables."""

    well: bool
    checks: dict[str, str]
    """What was looked at, and `ok` or a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """Some rows of a run's plan."""

    header: PlanHeader
    files: Sequence[Candidate]


class AdminBackend(Protocol):
    """The service as the API sees it.

    Errors: UnknownTable when a name names nothing, Refused when it is not the time for it, and any other
    LakesweepError when something that is needed does not answer.
    """

    async def tables(self, tenants: Collection[str] | None, *, after: str | None, limit: int) -> list[documents.Table]:
        """Known tables by name, behind `after`."""
        ...

    async def start_run(self, table: str, *, execute: bool, who: str) -> str:
        """Begin a run of one configured table, and tell its id. `table` is a whole label, never a pattern."""
        ...

    async def runs(
        self, *, tenants: Collection[str] | None, table: str | None, before: str | None, limit: int
    ) -> list[run_document.Run]:
        """Run documents, newest first."""
        ...

    async def run(self, run_id: str) -> run_document.Run | None:
        """One run's document, from the moment its id was told."""
        ...

    async def plan(self, run_id: str, *, offset: int, limit: int) -> PlanPage | None:
        """Part of the plan a run made; None if it made none, or its rows are no longer kept."""
        ...

    async def approve(self, run_id: str, *, digest: str | None, who: str) -> Approval:
        """Let a plan above its ceilings go. Refused if it waits for no approval, or has another digest."""
        ...

    async def cancel(self, run_id: str, *, who: str) -> None:
        """End a run after its running batches. Refused if it is not under way here."""
        ...

    async def pause(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """Start nothing inside the scope: `*`, a tenant, a dataset or a table."""
        ...

    async def stop(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """The same, and runs under way inside it end before their next request, on all replicas."""
        ...

    async def resume(self, scope: str, *, who: str, admin: bool) -> None:
        """Take back what `pause` said of the same scope. Refused if an administrator said it and this is not one."""
        ...

    async def holds(self) -> list[Hold]:
        """What is paused now."""
        ...

    async def alive(self) -> Health:
        """Should this process be left running?"""
        ...

    async def ready(self) -> Health:
        """Can it work now?"""
        ...

    def metrics(self) -> bytes:
        """What Prometheus scrapes."""
        ...
