"""What the API needs from the service. The daemon implements it; names that it returns are filtered by tenant.

Documents are those of `model.run_document`. A method that is given `tenants` gives nothing of any other tenant; None
means all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lakesweep.admin import documents
from lakesweep.cleanup.explain import Explanation
from lakesweep.cleanup.plan_groups import PlanGroups
from lakesweep.model import lake_report, run_document, trash_document
from lakesweep.model.files import Candidate
from lakesweep.ports.state import Approval, BatchRecord, PlanHeader


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
    matching: int
    """Of all its rows, those that were requested."""


class AdminBackend(Protocol):
    """The service as the API sees it.

    Errors: UnknownTable if there is no such name, Refused if it cannot be done now, and any other LakesweepError if a
    dependency does not answer.
    """

    async def tables(self, tenants: Collection[str] | None, *, after: str | None, limit: int) -> list[documents.Table]:
        """Known tables by name, behind `after`."""

    async def report(self, tenants: Collection[str] | None) -> lake_report.Report:
        """What the known tables store and what could be deleted. May be some seconds old."""

    async def start_run(self, table: str, *, execute: bool, who: str) -> str:
        """Start a run of one configured table, and return its id. `table` is a whole label, never a pattern."""

    async def hint(self, table: str, *, event: str, who: str) -> datetime:
        """Something happened to a table: run it sooner. Returns when it is due now; UnknownTable if it is not known."""

    async def runs(
        self, *, tenants: Collection[str] | None, table: str | None, before: str | None, limit: int
    ) -> list[run_document.Run]:
        """Run documents, newest first."""

    async def run(self, run_id: str) -> run_document.Run | None:
        """One run's document, from the moment its id was returned."""

    async def plan(self, run_id: str, *, offset: int, limit: int, text: str = "") -> PlanPage | None:
        """Part of the plan a run made, of the files whose path contains the text; None if it made none, or its rows are
        no longer kept."""

    async def plan_groups(self, run_id: str) -> PlanGroups | None:
        """What the plan of a run consists of; None likewise."""

    async def batches(self, run_id: str) -> list[BatchRecord]:
        """What a run has deleted so far, batch by batch."""

    async def explain(self, table: str, path: str) -> Explanation:
        """Why one file of a known table stays or is deleted."""

    async def table_detail(self, table: str) -> documents.TableDetail:
        """All holds that cover it, its trend and its next cycle. UnknownTable if it is not known."""

    async def snapshots(self, table: str) -> documents.Snapshots:
        """As the table's metadata has them now, and which the next run would expire."""

    async def settings_of(self, table: str) -> list[documents.Setting]:
        """The rules that apply to one table, and where each comes from."""

    async def approve(self, run_id: str, *, digest: str | None, who: str) -> Approval:
        """Approve a plan above its ceilings. Refused if it does not wait for an approval, or has another digest."""

    def approval_remark(self, table: str) -> str | None:
        """Why nothing of the table is deleted by itself although its plan is approved; None if it is."""

    async def restore(
        self, run_id: str, *, paths: Sequence[str], dry_run: bool, who: str, admin: bool
    ) -> trash_document.Restoration:
        """Restore what a run deleted. Refused if nothing can be restored."""

    async def cancel(self, run_id: str, *, who: str) -> None:
        """End a run after its running batches. Refused if it is not under way here."""

    async def pause(
        self, scope: str, *, who: str, reason: str | None, admin: bool, force: bool, ends_at: datetime | None
    ) -> None:
        """Start nothing inside the scope: `*`, a tenant, a dataset or a table. UnknownTable for a table that is not
        there, unless `force`. SettingsError for an end that has passed."""

    async def stop(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """The same, and runs under way inside it end before their next request, on all replicas."""

    async def resume(self, scope: str, *, who: str, admin: bool) -> None:
        """Lift the pause of the same scope. Refused if an administrator made it and the caller is not one."""

    async def holds(self) -> list[run_document.Hold]:
        """What is paused now."""

    async def ended_holds(self) -> list[run_document.Hold]:
        """What was paused and has ended in the last days."""

    async def alive(self) -> Health:
        """Should this process be left running?"""

    async def ready(self) -> Health:
        """Can it work now?"""

    def metrics(self) -> bytes:
        """What Prometheus scrapes."""
