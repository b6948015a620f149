"""What the service exposes: every series with its labels, from the registry the service itself fills."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from tests.deploy.tools import REPOSITORY

from lakesweep.model.files import DeletionReport, FailedDelete, OrphanPlan, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome, Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.telemetry.metrics import Metrics

TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod"})
"""Added by whoever scrapes."""
_REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="orders", format=FormatName.ICEBERG)
_NOW = datetime(2026, 3, 1, tzinfo=UTC)


@cache
def series(*, table_labels: bool = True) -> dict[str, frozenset[str]]:
    """Labels by series, after something of every kind has happened."""
    metrics = Metrics(table_labels=table_labels)
    for number, run in enumerate(_runs()):
        metrics.count_run(replace(run, id=str(number)))
    metrics.count_skip(_REF, "busy")
    metrics.count_panic(_REF)
    metrics.count_batch(_REF, 100)
    for gauge in (metrics.tables_known, metrics.tables_due, metrics.tables_running):
        gauge.labels("acme").set(1)
    metrics.settings_reloads.labels("done").inc()
    return {sample.name: frozenset(sample.labels) for family in metrics.registry.collect() for sample in family.samples}


@cache
def words() -> frozenset[str]:
    """Every text in the source code: reasons and states that a label can hold are among them."""
    return frozenset(_texts())


def _runs() -> Iterator[CleanupRun]:
    plan = OrphanPlan(
        head="h",
        cutoff=_NOW,
        verdicts={Verdict.ORPHAN: Tally(files=1, bytes=1)},
        candidates=Tally(files=1, bytes=1),
        by_kind={},
        by_reason={},
        missing=(),
        missing_count=0,
        references=1,
        matched=1,
        rows_path="p",
        digest="d",
        engine="inprocess",
    )
    deletion = DeletionReport(failed=(FailedDelete(path="p", why="AccessDenied"),))
    for outcome in Outcome:
        refusal = Refusal(code="overlap", reason="…") if outcome is Outcome.REFUSED else None
        yield CleanupRun(
            id="?",
            table=_REF,
            location="s3://lake/orders",
            started_at=_NOW,
            finished_at=_NOW,
            outcome=outcome,
            refusal=refusal,
            plan=plan,
            deletion=deletion,
        )


def _texts() -> Iterator[str]:
    for path in (REPOSITORY / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
