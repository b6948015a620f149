"""Real values to show and to write: plans, runs and their files."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lakesweep.model.files import Candidate, DeletionReport, FailedDelete, OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, EngineChoice, Outcome, Phase, Refusal
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot
from lakesweep.model.table import FormatName, TableRef, TenantId

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROOT = "s3://lake/acme/orders"
REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="orders", format=FormatName.ICEBERG)

EXPIRY = ExpiryPlan(
    head="v3",
    expire=(Snapshot(id="111", committed_at=NOW - timedelta(days=90)),),
    keep=(KeptSnapshot(id="222", why="tag release"), KeptSnapshot(id="333", why="current snapshot of branch main")),
    drop_refs=("old-branch",),
)


def candidates(number: int) -> list[Candidate]:
    return [
        Candidate(
            path=f"{ROOT}/data/orphan-{index}.parquet",
            size_bytes=1024,
            modified_at=NOW - timedelta(days=3),
            etag=None,
            kind="data",
            reason=Reason.UNREFERENCED,
        )
        for index in range(number)
    ]


def plan(orphans: int = 3, missing: tuple[str, ...] = ()) -> OrphanPlan:
    going = Tally(files=orphans, bytes=1024 * orphans)
    return OrphanPlan(
        head="v3",
        cutoff=NOW - timedelta(hours=24),
        verdicts={
            Verdict.LIVE: Tally(files=1200, bytes=3 * 1024**3),
            Verdict.YOUNG: Tally(files=2, bytes=10),
            Verdict.ORPHAN: going,
        },
        candidates=going,
        by_kind={"data": going},
        by_reason={Reason.UNREFERENCED: going},
        missing=missing,
        missing_count=len(missing),
        references=1200,
        matched=1200,
        rows_path="/plans/r1.parquet",
        digest="d1",
        engine="inprocess",
    )


def planned(**given) -> CleanupRun:
    run = CleanupRun(
        id="r1",
        table=REF,
        location=ROOT,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=5),
        phase=Phase.FINISHED,
        outcome=Outcome.DRY_RUN,
        reason="nothing was changed",
        head="v3",
        expiry=EXPIRY,
        plan=plan(),
        engine=EngineChoice(kind="inprocess", why="1200 files fit in one process"),
    )
    return replace(run, **given)


def refused(code: str = "overlap", reason: str = "two tables share a place") -> CleanupRun:
    return planned(outcome=Outcome.REFUSED, refusal=Refusal(code=code, reason=reason), reason=reason)


def failed(reason: str = "the catalog does not answer") -> CleanupRun:
    return planned(outcome=Outcome.FAILED, reason=reason, plan=None, expiry=None, location=None, engine=None)


def indeterminate() -> CleanupRun:
    reason = "cannot read s3://lake/acme/orders/metadata/m.avro: truncated"
    return planned(outcome=Outcome.FAILED, refusal=Refusal(code="indeterminate", reason=reason), reason=reason)


def done() -> CleanupRun:
    deletion = DeletionReport(
        deleted=Tally(files=2, bytes=2048), already_gone=1, by_kind={"data": Tally(files=2, bytes=2048)}
    )
    return planned(outcome=Outcome.DONE, reason=None, deletion=deletion, expired_snapshots=("111",), spared=1)


def half_done() -> CleanupRun:
    failures = (FailedDelete(path=f"{ROOT}/data/orphan-2.parquet", why="AccessDenied: no"),)
    return replace(done(), outcome=Outcome.FAILED, reason="1 object", deletion=DeletionReport(failed=failures))
