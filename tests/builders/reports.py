"""Tables as a report knows them, and the report of some."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.unit.cli import examples

from lakesweep.cleanup import lake_report
from lakesweep.cleanup.lake_report import KnownTable, Price
from lakesweep.cleanup.report import run_document
from lakesweep.model.files import Reason, Tally
from lakesweep.model.table import FormatName
from lakesweep.ports.state import RunFigures

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
FREE = Price(per_gb_month=0, currency="USD")
GB = 10**9


def known(label="acme/prod/orders", run=None, **given) -> KnownTable:
    document = run_document(run) if run else None
    usual = {"enabled": True, "dry_run": False, "planned": document, "last": document}
    return KnownTable(label=label, format=FormatName.DELTA, **{**usual, **given})


def planned(unreferenced=0, expired=0, *, files=2, **given):
    going = Tally(files=files, bytes=unreferenced + expired)
    half = files // 2
    reasons = {
        Reason.UNREFERENCED: Tally(files=files - half, bytes=unreferenced),
        Reason.EXPIRED: Tally(files=half, bytes=expired),
    }
    return examples.planned(plan=replace(examples.plan(), candidates=going, by_reason=reasons), **given)


def report(*tables, runs=(), price=FREE):
    return lake_report.report(tables, runs, now=NOW, price=price)


def figures(day, waste=0, freed=0, *, kept=0, table="acme/prod/orders", made_plan=True):
    return RunFigures(
        table=table,
        started_at=NOW - timedelta(days=day),
        planned=made_plan,
        orphan_bytes=waste,
        deleted_bytes=freed + kept,
        freed_bytes=freed,
    )
