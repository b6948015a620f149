"""How a run ends for the outside: one that could not even start, and the one line that every run leaves behind."""

from __future__ import annotations

from datetime import datetime

import structlog

from lakesweep.cleanup import report
from lakesweep.model.errors import LakesweepError, Refused
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal
from lakesweep.model.table import TableRef

log = structlog.get_logger()


def not_started(run_id: str, table: TableRef, exc: LakesweepError, now: datetime) -> CleanupRun:
    refusal = Refusal(code=exc.code, reason=exc.reason) if isinstance(exc, Refused) else None
    return CleanupRun(
        id=run_id,
        table=table,
        location=None,
        started_at=now,
        finished_at=now,
        phase=Phase.FINISHED,
        outcome=Outcome.REFUSED if refusal else Outcome.FAILED,
        refusal=refusal,
        reason=refusal.reason if refusal else str(exc),
    )


def unexpected(exc: Exception) -> LakesweepError:
    """A bug of ours as the sentence that people read; the log has the rest."""
    log.error("unexpected_error", exc_info=exc)
    return LakesweepError(f"unexpected {type(exc).__name__}: {exc}; this is a bug in Lakesweep: please report it")


def log_result(run: CleanupRun) -> None:
    level = log.info if run.outcome in (Outcome.DONE, Outcome.DRY_RUN) else log.warning
    level("run_finished", **report.log_fields(report.run_document(run)))
