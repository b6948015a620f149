"""The JSON documents: field names are a promise to other programs, so they are spelled out here."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakesweep.cleanup.report import FAILED_SHOWN, iso_utc, log_fields, plan_document, run_document
from lakesweep.model.files import Candidate, DeletionReport, FailedDelete, OrphanPlan, Reason, Tally, Verdict, Went
from lakesweep.model.requests import Expense, Requests
from lakesweep.model.run import CleanupRun, EngineChoice, Outcome, Phase, Refusal
from lakesweep.model.run_document import from_storage
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot
from lakesweep.model.store_rules import StoreRules, Versioning
from lakesweep.model.table import FormatName, TableRef, TenantId

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)
FILE = Candidate(
    path="s3://lake/acme/events/data/a b%20c.parquet",
    size_bytes=7,
    modified_at=NOON,
    etag="e",
    kind="data",
    reason=Reason.UNREFERENCED,
)
PLAN = OrphanPlan(
    head="m7",
    cutoff=NOON,
    verdicts={Verdict.LIVE: Tally(files=5, bytes=50), Verdict.ORPHAN: Tally(files=2, bytes=9)},
    candidates=Tally(files=2, bytes=9),
    by_kind={"data": Tally(files=2, bytes=9)},
    by_reason={Reason.UNREFERENCED: Tally(files=2, bytes=9)},
    missing=("s3://lake/acme/events/data/gone.parquet",),
    missing_count=1,
    unverified=2,
    unverified_first="s3://elsewhere/1.parquet",
    references=6,
    matched=5,
    rows_path="/artifacts/r1.parquet",
    digest="d",
    engine="inprocess",
)
RUN = CleanupRun(
    id="r1",
    table=TABLE,
    location="s3://lake/acme/events",
    started_at=NOON,
    finished_at=NOON,
    phase=Phase.FINISHED,
    outcome=Outcome.DONE,
    head="m7",
    expiry=ExpiryPlan(
        head="m7",
        expire=(Snapshot(id="9223372036854775807", committed_at=NOON),),
        keep=(KeptSnapshot(id="12", why="branch main"),),
        drop_refs=("tag old",),
        partitions=("dt=1",),
        partition_files=Tally(files=2, bytes=8),
    ),
    expired_snapshots=("9223372036854775807",),
    expired_partitions=("dt=1",),
    plan=PLAN,
    engine=EngineChoice(kind="inprocess", why="1000 files"),
    deletion=DeletionReport(
        deleted=Tally(files=2, bytes=9),
        already_gone=1,
        failed=(FailedDelete(path="s3://lake/x", why="AccessDenied"),),
        by_kind={"manifest": Tally(files=1, bytes=2), "data": Tally(files=1, bytes=7)},
        retained={Went.TRASH: Tally(files=1, bytes=3), Went.VERSIONS: Tally(files=1, bytes=2)},
    ),
    store=StoreRules(versioning=Versioning.ON, noncurrent_days=7, warning="do this"),
    spared=3,
    planned=Expense(requests=Requests(list=3, get=5, put=2, delete=1, bytes_read=900), seconds=1.5, cost=0.000027),
    sent=Expense(requests=Requests(list=3, get=6, head=1, put=2, delete=1, bytes_read=950), seconds=2.0, cost=0.000028),
)
REQUESTS = {
    "planned": {
        "list": 3,
        "get": 5,
        "head": 0,
        "put": 2,
        "delete": 1,
        "bytes_read": 900,
        "seconds": 1.5,
        "cost": 0.000027,
        "currency": "USD",
    },
    "sent": {
        "list": 3,
        "get": 6,
        "head": 1,
        "put": 2,
        "delete": 1,
        "bytes_read": 950,
        "seconds": 2.0,
        "cost": 0.000028,
        "currency": "USD",
    },
}


def test_a_run_document_is_spelled_like_this():
    assert run_document(RUN) == {
        "table": "acme/prod/events",
        "format": "iceberg",
        "location": "s3://lake/acme/events",
        "run_id": "r1",
        "phase": "finished",
        "outcome": "done",
        "reason": None,
        "refused": None,
        "started_at": "2026-03-01T12:00:00.000Z",
        "finished_at": "2026-03-01T12:00:00.000Z",
        "head": "m7",
        "engine": {"kind": "inprocess", "why": "1000 files"},
        "expired_snapshots": ["9223372036854775807"],
        "expired_partitions": ["dt=1"],
        "orphans": {
            "count": 2,
            "bytes": 9,
            "by_reason": {"unreferenced": {"count": 2, "bytes": 9}, "expired": {"count": 0, "bytes": 0}},
        },
        "deleted": {"count": 2, "bytes": 9, "by_kind": {"data": 1, "manifest": 1}},
        "freed_bytes": 4,
        "retained_bytes": {"trash": 3, "versions": 2},
        "store": {"versioning": "on", "noncurrent_days": 7, "abort_uploads_days": None},
        "warnings": ["do this"],
        "already_gone": 1,
        "failed": {"count": 1, "files": [{"path": "s3://lake/x", "why": "AccessDenied"}]},
        "spared": 3,
        "kept": {"live": 5, "young": 0, "reserved": 0, "foreign": 0},
        "kept_bytes": {"live": 50, "young": 0, "reserved": 0, "foreign": 0},
        "unconfirmed": {"count": 0, "bytes": 0},
        "missing": {"count": 1, "files": ["s3://lake/acme/events/data/gone.parquet"], "unverified": 2},
        "stream": None,
        "lent": [],
        "requests": REQUESTS,
        "trash": None,
        "table_uuid": None,
        "listed": True,
        "last_listed_at": None,
        "listed_because": None,
        "restored": None,
        "interrupted": False,
        "digest": "d",
    }


def test_a_plan_document_is_spelled_like_this():
    files = [FILE, replace(FILE, modified_at=None, kind="manifest", reason=Reason.EXPIRED)]
    assert plan_document(RUN, iter(files)) == {
        "table": "acme/prod/events",
        "format": "iceberg",
        "location": "s3://lake/acme/events",
        "run_id": "r1",
        "head": "m7",
        "expire": {
            "snapshots": ["9223372036854775807"],
            "partitions": ["dt=1"],
            "partition_files": {"count": 2, "bytes": 8},
            "refs": ["tag old"],
            "kept": 1,
            "kept_because": [{"id": "12", "why": "branch main"}],
            "skipped": None,
        },
        "verdicts": {"live": 5, "young": 0, "reserved": 0, "foreign": 0, "orphan": 2},
        "verdict_bytes": {"live": 50, "young": 0, "reserved": 0, "foreign": 0, "orphan": 9},
        "orphans": {
            "count": 2,
            "bytes": 9,
            "by_reason": {"unreferenced": {"count": 2, "bytes": 9}, "expired": {"count": 0, "bytes": 0}},
            "files": [
                {
                    "path": "s3://lake/acme/events/data/a b%20c.parquet",
                    "size_bytes": 7,
                    "modified_at": "2026-03-01T12:00:00.000Z",
                    "kind": "data",
                    "reason": "unreferenced",
                },
                {
                    "path": "s3://lake/acme/events/data/a b%20c.parquet",
                    "size_bytes": 7,
                    "modified_at": None,
                    "kind": "manifest",
                    "reason": "expired",
                },
            ],
        },
        "freed_bytes": 0,
        "retained_bytes": {"trash": 0, "versions": 9},
        "store": {"versioning": "on", "noncurrent_days": 7, "abort_uploads_days": None},
        "warnings": ["do this"],
        "unconfirmed": {"count": 0, "bytes": 0},
        "missing": {"count": 1, "files": ["s3://lake/acme/events/data/gone.parquet"], "unverified": 2},
        "stream": None,
        "lent": [],
        "requests": REQUESTS,
        "listed": True,
        "last_listed_at": None,
        "listed_because": None,
        "engine": {"kind": "inprocess", "why": "1000 files"},
        "refused": None,
        "digest": "d",
    }


def test_a_run_that_has_just_begun_has_the_whole_shape_and_no_outcome():
    begun = CleanupRun(id="r1", table=TABLE, location=None, started_at=NOON)
    document = run_document(begun)
    assert document.keys() == run_document(RUN).keys()
    assert document["kept"].keys() == run_document(RUN)["kept"].keys()
    assert (document["outcome"], document["finished_at"], document["location"]) == (None, None, None)
    plan = plan_document(begun, [])
    assert plan.keys() == plan_document(RUN, []).keys()
    assert plan["expire"].keys() == plan_document(RUN, [])["expire"].keys()
    assert plan["refused"] is None


@pytest.mark.parametrize("document", [run_document, lambda run: plan_document(run, [])])
def test_a_refusal_and_a_failure_never_look_like_an_empty_success(document):
    refused = replace(RUN, plan=None, outcome=Outcome.REFUSED, refusal=Refusal(code="gc_disabled", reason="gc.enabled"))
    failed = replace(RUN, plan=None, outcome=Outcome.FAILED, reason="the catalog does not answer")
    assert document(refused)["refused"] == {"code": "gc_disabled", "reason": "gc.enabled"}
    assert document(failed)["refused"] == {"code": "failed", "reason": "the catalog does not answer"}


def test_failed_deletes_are_all_counted_and_the_first_ones_named():
    failed = tuple(FailedDelete(path=f"s3://lake/{number}", why="503") for number in range(FAILED_SHOWN + 5))
    document = run_document(replace(RUN, deletion=DeletionReport(failed=failed)))
    assert document["failed"]["count"] == FAILED_SHOWN + 5
    assert len(document["failed"]["files"]) == FAILED_SHOWN


def test_the_log_line_of_a_run_has_the_numbers_of_its_document():
    assert log_fields(run_document(RUN)) == {
        "outcome": RUN.outcome,
        "reason": RUN.reason,
        "expired_snapshots": len(RUN.expired_snapshots),
        "candidates": RUN.plan.candidates.files,
        "deleted": RUN.deletion.deleted.files,
        "bytes": RUN.deletion.deleted.bytes,
        "freed_bytes": 4,
        "failed": len(RUN.deletion.failed),
        "spared": RUN.spared,
        "missing": RUN.plan.missing_count,
        "unverified": RUN.plan.unverified,
        "requests": 13,
    }


def test_a_document_of_an_older_version_is_read_as_a_whole_one():
    deletion = replace(RUN.deletion, retained={})  # all that went was freed, as far as anybody knew
    whole = json.loads(
        json.dumps(run_document(replace(RUN, plan=None, planned=None, sent=Expense(), store=None, deletion=deletion)))
    )
    later = ("unconfirmed", "stream", "lent", "requests", "interrupted", "digest")
    later += ("freed_bytes", "retained_bytes", "store", "warnings")
    old = {name: value for name, value in whole.items() if name not in later}
    old["missing"] = {"count": 0, "files": []}
    assert from_storage(old) == whole


def test_an_interrupted_run_of_an_older_version_is_known_by_its_reason():
    stored = json.loads(json.dumps(run_document(RUN)))
    del stored["interrupted"]
    assert from_storage(stored | {"reason": "interrupted: its process ended"})["interrupted"]
    assert not from_storage(stored | {"reason": "not interrupted: it failed"})["interrupted"]
    assert not from_storage(stored | {"reason": None})["interrupted"]


def test_a_stored_document_keeps_its_order_and_what_is_not_known_here():
    stored = json.loads(json.dumps(run_document(RUN))) | {"of_a_later_version": [1]}
    assert json.dumps(from_storage(stored)) == json.dumps(stored)


def test_documents_are_plain_json():
    for document in (run_document(RUN), plan_document(RUN, [FILE])):
        assert json.loads(json.dumps(document)) == document


def test_times_of_any_zone_are_written_in_utc():
    assert iso_utc(datetime.fromisoformat("2026-03-01T21:00:00.123999+09:00")) == "2026-03-01T12:00:00.123Z"
    assert iso_utc(None) is None
