"""Restore a run on request: the table is paused first, then its lease is held while files are restored.

The restore is itself a run of the table: it has an id, a journal, an audit trail and an outcome, and it is repeated by
asking again.
"""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from lakesweep.aio import StopRequest, interruption
from lakesweep.cleanup import interrupted_runs
from lakesweep.cleanup.restore import Restore
from lakesweep.cleanup.restore_entries import ANOTHER_TABLE
from lakesweep.cleanup.restore_finder import Finder, Taken, refuse_nothing
from lakesweep.daemon import undone
from lakesweep.daemon.events import hold_fields
from lakesweep.daemon.ghost_works import refuse_taken_place
from lakesweep.daemon.holds import HoldIndex
from lakesweep.daemon.lease import HeldLease
from lakesweep.daemon.undone import Undone
from lakesweep.model import run_document
from lakesweep.model.access import Trigger
from lakesweep.model.errors import LakesweepError, Refused, UnknownRun, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal, Restored
from lakesweep.model.store_rules import Versioning
from lakesweep.model.table import BARE_TENANT, TableRef, TenantId, is_ghost
from lakesweep.model.trash import RunTrash
from lakesweep.ports.state import Hold
from lakesweep.ports.table import HasReaderHints, Table

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

log = structlog.get_logger()

_EXTRA_SECONDS = 15
"""For so much longer than a lease lasts a run under way may take to end after the table was paused: the lease of a
process that was killed ends by itself."""


@dataclass(frozen=True, kw_only=True)
class Restoring:
    """One restore of one run."""

    app: App
    run_id: str
    """Of the run that is taken back."""
    patterns: Sequence[str]
    trigger: Trigger
    admin: bool = True
    """Is it requested by somebody who sees all tenants?"""

    async def plan(self) -> Undone:
        document, ref = await self._known()
        return await self._planned(document, await self._finder(document, ref))

    async def execute(self, new_id: str, stop: asyncio.Event | None = None) -> Undone:
        """Restore it. An error on the way becomes the run's outcome; if it cannot start, it raises."""
        document, ref = await self._known()
        finder = await self._finder(document, ref)
        kept = finder.taken.trash is not None or finder.taken.markers
        if document["outcome"] is not None and not (kept and await finder.wants_any()):
            return await self._planned(document, finder)  # nothing to bring back, so nothing to pause for
        stop = stop or StopRequest()
        await self._pause(ref)
        async with AsyncExitStack() as stack:
            held = await self._claim(stack, ref, new_id, stop)
            await interrupted_runs.close_interrupted(self.app.state, ref.label, self.app.clock.now())
            # If the run was still under way, it has taken more since, and only then knew where to.
            document, ref = await self._known()
            finder = await self._finder(document, ref)
            run = await self._run(document, finder, new_id, held, stop)
        log.info("run_restored", restored_run=self.run_id, by=self.trigger.who, outcome=run.outcome)
        result = run.restored or Restored(of=self.run_id)
        stands = await undone.look_for_head(document, finder)
        return Undone(result=result, paused=True, run=run, taken=document, head_stands=stands)

    async def held_scope(self) -> str | None:
        """The scope to resume so that the table is cleaned again; None if it is not paused. Of several holds one that
        does not end by itself."""
        document = await self.app.state.get_run(self.run_id)
        holds = await self.app.state.holds()
        for some in ([hold for hold in holds if hold.ends_at is None], holds):
            found = HoldIndex(some).covering(document["table"]) if document else None
            if found is not None:
                return found.scope
        return None

    async def _planned(self, document: run_document.Run, finder: Finder) -> Undone:
        held = await self.held_scope() is not None
        result, stands = await finder.plan(), await undone.look_for_head(document, finder)
        return Undone(result=result, paused=held, run=None, taken=document, head_stands=stands)

    async def _run(
        self, document: run_document.Run, finder: Finder, new_id: str, held: HeldLease, stop: asyncio.Event
    ) -> CleanupRun:
        app, ref = self.app, _table(document)
        begun = CleanupRun(
            id=new_id,
            table=ref,
            location=document["location"],
            started_at=app.clock.now(),
            phase=Phase.RESTORING,
            restored=Restored(of=self.run_id),
        )
        await app.state.start_run(begun)
        so_far = [begun]

        async def note(result: Restored) -> None:
            so_far.append(replace(so_far.pop(), restored=result))
            await app.state.update_run(so_far[-1])

        audit = app.trails.open(new_id, ref, held.token, self.trigger)
        await audit.begin(begun)
        restore = Restore(
            run_id=new_id,
            finder=finder,
            mover=self.app.adapters.mover(_owner(app, document)),
            journal=app.state,
            audit=audit,
            fence=held,
            fencing_token=held.token,
            stop=stop,
            note=note,
        )
        ended = await self._ended(restore, held)
        if restore.entries:
            await self._update_hints(document, ref)
        remark = undone.remark(document, head_stands=await undone.look_for_head(document, finder))
        if remark and ended["outcome"] is Outcome.DONE:
            ended["reason"] = f"{ended['reason']}; {remark}"
        run = replace(so_far[-1], **ended, phase=Phase.FINISHED, finished_at=app.clock.now())
        await audit.end(run)
        await app.state.update_run(run)
        return run

    async def _ended(self, restore: Restore, held: HeldLease) -> dict[str, Any]:
        """How it ended, as fields of the run."""
        so_far: dict[str, Any] = {}
        try:
            async with held.guarding():
                result = so_far["restored"] = await restore.run()
            if not restore.failed:
                refuse_nothing(result)
        except Refused as exc:
            refusal = Refusal(code=exc.code, reason=exc.reason)
            return {**so_far, "outcome": Outcome.REFUSED, "refusal": refusal, "reason": exc.reason}
        except LakesweepError as exc:
            return {"outcome": Outcome.FAILED, "reason": str(exc)}
        finally:
            await restore.mover.aclose()
        if restore.failed:
            first, count = restore.failed[0], len(restore.failed)
            reason = f"{count} file{'s' * (count != 1)} could not be restored (first: {first.path}: {first.why})"
            return {"restored": result, "outcome": Outcome.FAILED, "reason": reason}
        reason = f"restored {result.restored.files} of the files that run {self.run_id} took"
        return {"restored": result, "outcome": Outcome.DONE, "reason": reason}

    async def _update_hints(self, document: run_document.Run, ref: TableRef) -> None:
        """Best effort: the files are there in any case, and a repeated restore tries it again."""
        try:
            table = await self._opened(document, ref)
            if isinstance(table, HasReaderHints):
                await table.reopened()
        except LakesweepError as exc:
            log.warning("readers_not_told", table=ref.label, reason=str(exc))

    async def _known(self) -> tuple[run_document.Run, TableRef]:
        document = await self.app.state.get_run(self.run_id)
        if document is None:
            raise UnknownRun(f"there is no run {self.run_id!r}: `lakesweep runs` shows them")
        if document["restored"] is not None:
            of = document["restored"]["run_id"]
            raise Refused("nothing_to_restore", f"run {self.run_id} took nothing: it restored what run {of} took")
        return document, _table(document)

    async def _pause(self, ref: TableRef) -> None:
        """A restored orphan would be deleted again in the next cycle. A hold that ends by itself only postpones
        that."""
        app = self.app
        lasting = HoldIndex(hold for hold in await app.state.holds() if hold.ends_at is None)
        if lasting.covering(ref.label) is None:
            reason = f"run {self.run_id} was restored: look at the table, then resume it"
            scope, now = glob.escape(ref.label), app.clock.now()
            hold = Hold(scope=scope, since=now, by=self.trigger.who, reason=reason, by_admin=self.admin)
            # However many holds there are, and also of a table that is no longer configured: should it be again, the
            # restored files must not go in its first cycle.
            async with app.events.tightening("paused", hold.by, **hold_fields(hold)):
                await app.state.set_hold(hold)

    async def _claim(self, stack: AsyncExitStack, ref: TableRef, new_id: str, stop: asyncio.Event) -> HeldLease:
        """The table's lease, as soon as a run under way has heard of the pause."""
        for left in range(self.app.settings.daemon.lease_seconds + _EXTRA_SECONDS, -1, -1):
            if stop.is_set():
                raise interruption(stop)
            try:
                return await stack.enter_async_context(self.app.claimed(ref, new_id))
            except Refused:
                if not left:
                    raise
                await asyncio.sleep(1)
        raise AssertionError

    async def _finder(self, document: run_document.Run, ref: TableRef) -> Finder:
        app, tenant = self.app, _owner(self.app, document)
        root = _root(app, document)
        header = await app.state.get_plan(self.run_id)
        if is_ghost(ref.label):
            await refuse_taken_place(self.app.adapters.storage(tenant), app.artifacts, app.state, document)
        taken = Taken(
            run_id=self.run_id,
            root=root,
            plan=header,
            batches=await app.state.journal(self.run_id),
            trash=_trash(document, root),
            markers=await self._markers(ref),
            versioned=_may_have_versions(document, root),
        )
        bare = root if ref.tenant == BARE_TENANT else None
        return Finder(
            taken=taken,
            patterns=self.patterns,
            storage=self.app.adapters.storage(tenant, bare, taken.trash.place if taken.trash else None),
            artifacts=app.artifacts,
            another_table=self._another_table(document, ref) if document["table_uuid"] else None,
        )

    def _another_table(self, document: run_document.Run, ref: TableRef) -> Callable[[], Awaitable[str | None]]:
        """Checks whether the table at this place is still the one that the run changed."""

        async def check() -> str | None:
            try:
                table = await self._opened(document, ref)
                now = await table.load()
            except LakesweepError as exc:
                return f"the table cannot be read, so it is unknown whose log it is now: {exc}"
            return None if now.table_uuid == document["table_uuid"] else ANOTHER_TABLE

        return check

    async def _opened(self, document: run_document.Run, ref: TableRef) -> Table:
        """As a cycle opens it; by its place if no dataset has it."""
        app = self.app
        tenant = app.settings.tenant(ref.tenant)
        dataset = tenant.dataset(ref.dataset) if tenant else None
        if tenant is not None and dataset is not None:
            works = await app.discovery.discover(tenant, dataset, glob.escape(ref.label))
        else:
            works = await app.resolve(document["location"] or "", format=ref.format, root=_root(app, document).raw)
        work = next(iter(works), None)
        if work is None or work.table is None:
            raise (work.problem if work else None) or UnknownTable(f"{ref} is not found: configure its dataset")
        return work.table

    async def _markers(self, ref: TableRef) -> dict[str, str]:
        """Delete markers of this very run, as its audit trail names them."""
        found: dict[str, str] = {}
        try:
            async with aclosing(self.app.trails.inspector().records(self.run_id, ref.label)) as records:
                async for _, record in records:
                    if record["record"] == "deleted" and record.get("delete_marker"):
                        found[record["path"]] = record["delete_marker"]
        except UnknownTable:
            return {}
        return found


def _table(document: run_document.Run) -> TableRef:
    tenant, dataset, name = document["table"].split("/", 2)
    return TableRef(tenant=TenantId(tenant), dataset=dataset, name=name, format=document["format"])


def _may_have_versions(document: run_document.Run, root: Location) -> bool:
    """Where that is not known it may, unless the run had a trash."""
    versioning = document["store"]["versioning"] if document["store"] else Versioning.UNKNOWN
    if versioning == Versioning.UNKNOWN:
        return not root.is_local and document["trash"] is None
    return versioning != Versioning.OFF


def _root(app: App, document: run_document.Run) -> Location:
    """The tenant's root as the settings have it now; that of a bare location as its run had it."""
    tenant = app.settings.tenant(_table(document).tenant)
    if tenant is not None:
        return Location.parse(tenant.root)
    if _table(document).tenant != BARE_TENANT:
        raise UnknownTable(f"{document['table']}: its tenant is no longer configured, so nothing is restored")
    trash = document["trash"]
    return Location.parse(trash["root"] if trash else document["location"] or "/")


def _owner(app: App, document: run_document.Run) -> str:
    """The tenant whose stores are used: of a bare location the one whose root it is in."""
    ref = _table(document)
    if ref.tenant != BARE_TENANT:
        return ref.tenant
    root = _root(app, document)
    around = (one for one in app.settings.tenants if Location.parse(one.root).overlaps(root))
    return next((one.id for one in around), "")


def _trash(document: run_document.Run, root: Location) -> RunTrash | None:
    trash = document["trash"]
    if trash is None:
        return None
    if Location.parse(trash["root"]) != root:
        raise Refused(
            "trash_place",
            f"run {document['run_id']} moved files out of {trash['root']}, but the tenant's root is {root} now: "
            "set it back to restore",
        )
    return RunTrash(place=Location.parse(trash["place"]), root=root, run_id=document["run_id"])
