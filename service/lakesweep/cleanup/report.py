"""Build the JSON documents of runs and plans: for `plan --json`, `run --json`, the API, the database and the log.

Pure: values in, documents out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast, overload

from lakesweep.model import plan_document as plans
from lakesweep.model import run_document as documents
from lakesweep.model.files import Candidate, DeletionReport, OrphanPlan, Reason, Tally, Verdict, Went
from lakesweep.model.requests import KINDS, Expense
from lakesweep.model.run import CleanupRun, Outcome, Phase, Restored
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.state import Hold

FAILED_SHOWN = 1000
"""How many failed deletes a document names; the count is always exact."""


def run_document(run: CleanupRun) -> documents.Run:
    """One table of `run --json`. `outcome` is null until the run's end."""
    failed = run.deletion.failed
    return {
        "table": run.table.label,
        "format": run.table.format,
        "location": run.location,
        "run_id": run.id,
        "phase": run.phase.value,
        "outcome": run.outcome,
        "reason": run.reason,
        "refused": _refused(run),
        "started_at": iso_utc(run.started_at),
        "finished_at": iso_utc(run.finished_at),
        "head": run.head,
        "engine": _engine(run),
        "expired_snapshots": list(run.expired_snapshots),
        "expired_partitions": list(run.expired_partitions),
        "orphans": {
            **count_and_bytes(run.plan.candidates if run.plan else Tally()),
            "by_reason": _by_reason(run.plan),
        },
        "deleted": {
            **count_and_bytes(run.deletion.deleted),
            "by_kind": {kind: tally.files for kind, tally in sorted(run.deletion.by_kind.items())},
        },
        "freed_bytes": run.deletion.freed_bytes,
        "retained_bytes": _retained(run.deletion),
        "store": _store(run),
        "warnings": _warnings(run),
        "already_gone": run.deletion.already_gone,
        "failed": {
            "count": len(failed),
            "files": [{"path": one.path, "why": one.why} for one in failed[:FAILED_SHOWN]],
        },
        "spared": run.spared,
        "kept": _kept(run.plan, "files"),
        "kept_bytes": _kept(run.plan, "bytes"),
        "unconfirmed": count_and_bytes(run.plan.unconfirmed if run.plan else Tally()),
        "missing": _missing(run.plan),
        "stream": run.stream,
        "lent": _shared_files(run),
        "requests": _requests(run),
        "trash": {"place": run.trash.place.raw, "root": run.trash.root.raw} if run.trash else None,
        "table_uuid": run.table_uuid,
        "listed": run.plan is not None and run.plan.listed,
        "last_listed_at": iso_utc(run.last_listed_at),
        "listed_because": run.listed_because,
        "restored": _brought_back(run.restored),
        "interrupted": False,
        "digest": run.plan.digest if run.plan else None,
    }


def plan_document(run: CleanupRun, files: Iterable[Candidate]) -> plans.Plan:
    """One table of `plan --json`. `files` are the rows of the run's plan, in its order."""
    return {
        "table": run.table.label,
        "format": run.table.format,
        "location": run.location,
        "run_id": run.id,
        "head": run.head,
        "expire": _expire(run),
        "verdicts": {verdict.value: _tally(run.plan, verdict).files for verdict in Verdict},
        "verdict_bytes": {verdict.value: _tally(run.plan, verdict).bytes for verdict in Verdict},
        "orphans": {
            **count_and_bytes(run.plan.candidates if run.plan else Tally()),
            "by_reason": _by_reason(run.plan),
            "files": [orphan_document(row) for row in files],
        },
        "freed_bytes": _retained_of_plan(run, Went.FREED),
        "retained_bytes": {
            "trash": _retained_of_plan(run, Went.TRASH),
            "versions": _retained_of_plan(run, Went.VERSIONS),
        },
        "store": _store(run),
        "warnings": _warnings(run),
        "unconfirmed": count_and_bytes(run.plan.unconfirmed if run.plan else Tally()),
        "missing": _missing(run.plan),
        "stream": run.stream,
        "lent": _shared_files(run),
        "requests": _requests(run),
        "listed": run.plan is not None and run.plan.listed,
        "last_listed_at": iso_utc(run.last_listed_at),
        "listed_because": run.listed_because,
        "engine": _engine(run),
        "refused": _refused(run),
        "digest": run.plan.digest if run.plan else None,
    }


def interrupted_document(
    open_run: documents.Run, *, what: str, finished_at: datetime, deletion: DeletionReport, plan: Tally
) -> documents.Run:
    """The document of a run whose process is gone, closed with what its journal says. The journal has no kinds."""
    return {
        **open_run,
        "phase": Phase.FINISHED.value,
        "outcome": Outcome.FAILED,
        "reason": f"{documents.INTERRUPTED} {what}",
        "finished_at": iso_utc(finished_at),
        "orphans": {**count_and_bytes(plan), "by_reason": open_run["orphans"]["by_reason"]},
        "deleted": {**count_and_bytes(deletion.deleted), "by_kind": {}},
        "freed_bytes": deletion.freed_bytes,
        "retained_bytes": _retained(deletion),
        "already_gone": deletion.already_gone,
        "interrupted": True,
    }


def _brought_back(result: Restored | None) -> documents.BroughtBack | None:
    if result is None:
        return None
    return {
        **count_and_bytes(result.restored),
        "run_id": result.of,
        "already_there": result.already_there,
        "not_restorable": result.not_restorable,
    }


def hold_document(hold: Hold) -> documents.Hold:
    return {
        "scope": hold.scope,
        "since": iso_utc(hold.since),
        "ends_at": iso_utc(hold.ends_at),
        "by": hold.by,
        "reason": hold.reason,
    }


def log_fields(run: documents.Run) -> dict[str, object]:
    """What the log line of a finished run says: the numbers of its document."""
    return {
        "outcome": run["outcome"],
        "reason": run["reason"],
        "expired_snapshots": len(run["expired_snapshots"]),
        "candidates": run["orphans"]["count"],
        "deleted": run["deleted"]["count"],
        "bytes": run["deleted"]["bytes"],
        "freed_bytes": run["freed_bytes"],
        "failed": run["failed"]["count"],
        "spared": run["spared"],
        "missing": run["missing"]["count"],
        "unverified": run["missing"]["unverified"],
        "requests": sum(run["requests"]["sent"][kind] for kind in KINDS),
    }


@overload
def iso_utc(moment: datetime) -> str: ...
@overload
def iso_utc(moment: datetime | None) -> str | None: ...
def iso_utc(moment: datetime | None) -> str | None:
    """`2026-03-01T12:00:00.000Z`. Milliseconds, as listings record them."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _tally(plan: OrphanPlan | None, verdict: Verdict) -> Tally:
    return plan.verdicts.get(verdict, Tally()) if plan else Tally()


def _kept(plan: OrphanPlan | None, unit: str) -> documents.Kept:
    numbers = {one.value: getattr(_tally(plan, one), unit) for one in Verdict if one is not Verdict.ORPHAN}
    return cast("documents.Kept", numbers)


def _by_reason(plan: OrphanPlan | None) -> dict[str, documents.Tally]:
    found = plan.by_reason if plan else {}
    return {reason.value: count_and_bytes(found.get(reason, Tally())) for reason in Reason}


def count_and_bytes(tally: Tally) -> documents.Tally:
    return {"count": tally.files, "bytes": tally.bytes}


def _expire(run: CleanupRun) -> plans.Expiry:
    expiry = run.expiry or ExpiryPlan(head="")
    return {
        "snapshots": [snapshot.id for snapshot in expiry.expire],
        "partitions": list(expiry.partitions),
        "partition_files": count_and_bytes(expiry.partition_files),
        "refs": list(expiry.drop_refs),
        "kept": len(expiry.keep),
        "kept_because": [{"id": kept.id, "why": kept.why} for kept in expiry.keep],
        "skipped": expiry.skipped,
    }


def orphan_document(row: Candidate) -> plans.OrphanFile:
    return {
        "path": row.path,
        "size_bytes": row.size_bytes,
        "modified_at": iso_utc(row.modified_at),
        "kind": row.kind,
        "reason": row.reason,
    }


def _missing(plan: OrphanPlan | None) -> documents.Missing:
    """What storage does not show; `unverified` are live files outside the listed places, which nobody looked for."""
    if plan is None:
        return {"count": 0, "files": [], "unverified": 0}
    return {"count": plan.missing_count, "files": list(plan.missing), "unverified": plan.unverified}


def _shared_files(run: CleanupRun) -> list[documents.SharedFiles]:
    return [{"table": one.table, "files": one.files, "first": one.first} for one in run.shared_files]


def _retained(deletion: DeletionReport) -> documents.Retained:
    return {"trash": deletion.retained_bytes(Went.TRASH), "versions": deletion.retained_bytes(Went.VERSIONS)}


def _retained_of_plan(run: CleanupRun, where: Went) -> int:
    """How many bytes of a plan would still be stored after it was executed."""
    return run.plan.candidates.bytes if run.plan and run.will_stay is where else 0


def _store(run: CleanupRun) -> documents.Store | None:
    if run.store is None:
        return None
    return {
        "versioning": run.store.versioning.value,
        "noncurrent_days": run.store.noncurrent_days,
        "abort_uploads_days": run.store.abort_uploads_days,
    }


def _warnings(run: CleanupRun) -> list[str]:
    return [run.store.warning] if run.store and run.store.warning else []


def _requests(run: CleanupRun) -> documents.Requests:
    return {"planned": _expense(run.planned) if run.planned else None, "sent": _expense(run.sent)}


def _expense(expense: Expense) -> documents.Expense:
    measured = {"seconds": round(expense.seconds, 3), "cost": expense.cost, "currency": expense.currency}
    return cast("documents.Expense", {**asdict(expense.requests), **measured})


def _engine(run: CleanupRun) -> documents.EngineChoice | None:
    return {"kind": run.engine.kind, "why": run.engine.why} if run.engine else None


def _refused(run: CleanupRun) -> documents.Refusal | None:
    """Null only when nothing stood in the way: a table that failed must not look like an empty plan."""
    if run.refusal:
        return {"code": str(run.refusal.code), "reason": run.refusal.reason}
    if run.outcome is Outcome.FAILED:
        return {"code": "failed", "reason": run.reason}
    return None
