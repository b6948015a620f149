"""The state store on SQL. Every method is one short transaction that contains its own query. Decisions about leases and
the journal are in `rules.py`; here rows are locked, read and written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakesweep.cleanup import report
from lakesweep.model import run_document
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun
from lakesweep.ports.state import Approval, BatchRecord, BatchState, PlanHeader, RunFigures
from lakesweep.state import rules
from lakesweep.state.database import transaction
from lakesweep.state.records import IN_PARTS, SqlRecords
from lakesweep.state.schema import approvals, batches, plans, runs


class SqlStateStore(SqlRecords):
    """The StateStore port on SQLite or PostgreSQL."""

    # Runs

    @transaction
    def start_run(self, connection: sa.Connection, run: CleanupRun) -> None:
        if not self.database.insert_new(connection, runs, _run_row(run)):
            raise StateError(f"run {run.id} is already recorded")

    @transaction
    def update_run(self, connection: sa.Connection, run: CleanupRun) -> None:
        result = connection.execute(_UPDATE_RUN, {"of_run": run.id, **_run_row(run)})
        if result.rowcount == 0:
            raise StateError(f"run {run.id} is not recorded")

    @transaction
    def get_run(self, connection: sa.Connection, run_id: str) -> run_document.Run | None:
        query = sa.select(runs.c.document).where(runs.c.id == run_id)
        found = connection.execute(query).scalar_one_or_none()
        return run_document.from_storage(found) if found is not None else None

    @transaction
    def list_runs(
        self,
        connection: sa.Connection,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[run_document.Run]:
        """Newest first. Nothing is older than an unknown run."""
        query = sa.select(runs.c.document).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(runs.c.table == table)
        if tenants is not None:
            query = query.where(_among(runs.c.tenant, tenants))
        if before is not None:
            seen = sa.select(runs.c.started_at, runs.c.id).where(runs.c.id == before)
            query = query.where(sa.tuple_(runs.c.started_at, runs.c.id) < seen.scalar_subquery())
        return [run_document.from_storage(row) for row in connection.execute(query).scalars()]

    @transaction
    def last_runs(self, connection: sa.Connection, tables: Collection[str]) -> dict[str, run_document.Run]:
        return _newest_of_each(connection, _RANKED.where(_among(runs.c.table, tables)))

    @transaction
    def last_planned(
        self, connection: sa.Connection, tenants: Collection[str] | None = None
    ) -> dict[str, run_document.Run]:
        # By the text: rows of earlier versions have no field that says so.
        reason = runs.c.document["reason"].as_string()
        whole = sa.or_(reason.is_(None), reason.not_like(f"{run_document.INTERRUPTED}%"))
        planned = _RANKED.join(plans, plans.c.run_id == runs.c.id)
        planned = planned.where(runs.c.outcome.is_not(None), whole, _was_listed())
        if tenants is not None:
            planned = planned.where(_among(runs.c.tenant, tenants))
        return _newest_of_each(connection, planned)

    @transaction
    def run_figures(
        self,
        connection: sa.Connection,
        since: datetime,
        tenants: Collection[str] | None = None,
        *,
        table: str | None = None,
    ) -> list[RunFigures]:
        """Only the numbers: the whole documents of many tables would be too large."""
        query = (
            sa.select(
                runs.c.table,
                runs.c.started_at,
                sa.and_(plans.c.run_id.is_not(None), _was_listed()).label("planned"),
                _number("orphans", "bytes").label("orphan_bytes"),
                _number("deleted", "bytes").label("deleted_bytes"),
                # Runs recorded before this field existed freed what they deleted.
                sa.func.coalesce(_number("freed_bytes"), _number("deleted", "bytes")).label("freed_bytes"),
                sa.func.coalesce(_number("restored", "bytes"), 0).label("restored_bytes"),
                sa.func.coalesce(_number("restored", "count"), 0).label("restored_files"),
                _number("deleted", "count").label("deleted_files"),
                sa.func.coalesce(_number("orphans", "by_reason", "expired", "bytes"), 0).label("expired_bytes"),
            )
            .outerjoin(plans, plans.c.run_id == runs.c.id)
            .where(runs.c.started_at >= since, runs.c.outcome.is_not(None))
            .order_by(runs.c.started_at, runs.c.id)
        )
        if tenants is not None:
            query = query.where(_among(runs.c.tenant, tenants))
        if table is not None:
            query = query.where(runs.c.table == table)
        return [RunFigures(**row) for row in connection.execute(query, execution_options=IN_PARTS).mappings()]

    @transaction
    def runs_beginning(self, connection: sa.Connection, prefix: str, limit: int = 10) -> list[run_document.Run]:
        query = sa.select(runs.c.document).where(runs.c.id.startswith(prefix, autoescape=True))
        newest_first = query.order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        return [run_document.from_storage(row) for row in connection.execute(newest_first).scalars()]

    @transaction
    def open_runs(self, connection: sa.Connection, table: str) -> list[run_document.Run]:
        rows = connection.execute(_OPEN_RUNS, {"of_table": table}).scalars()
        return [run_document.from_storage(row) for row in rows]

    @transaction
    def close_run(self, connection: sa.Connection, document: run_document.Run) -> bool:
        """Finish a run whose process is gone; a finished run stays as it is."""
        finished_at = document["finished_at"]
        closed = connection.execute(
            sa.update(runs)
            .where(runs.c.id == document["run_id"], runs.c.outcome.is_(None))
            .values(
                finished_at=datetime.fromisoformat(finished_at) if finished_at else None,
                phase=document["phase"],
                outcome=document["outcome"],
                document=document,
            )
        )
        return bool(closed.rowcount)

    @transaction
    def forget_runs(self, connection: sa.Connection, before: datetime, limit: int) -> tuple[int, list[str]]:
        old = sa.select(runs.c.id).where(runs.c.finished_at < before).order_by(runs.c.finished_at, runs.c.id)
        ids = list(connection.execute(old.limit(limit)).scalars())
        rows = connection.execute(sa.select(plans.c.rows_path).where(_among(plans.c.run_id, ids)))
        addresses = list(rows.scalars())
        for dependent in (approvals, batches, plans):
            connection.execute(sa.delete(dependent).where(_among(dependent.c.run_id, ids)))
        connection.execute(sa.delete(runs).where(_among(runs.c.id, ids)))
        return len(ids), addresses

    # Plans and the journal of their batches

    @transaction
    def save_plan(self, connection: sa.Connection, header: PlanHeader) -> None:
        """A run's plan never changes: its journal counts that plan's rows."""
        _table_of_run(connection, header.run_id)
        if self.database.insert_new(connection, plans, asdict(header)):
            return
        if _plan(connection, header.run_id) != header:
            raise StateError(f"run {header.run_id} already has another plan")

    @transaction
    def get_plan(self, connection: sa.Connection, run_id: str) -> PlanHeader | None:
        return _plan(connection, run_id)

    @transaction
    def begin_batch(self, connection: sa.Connection, record: BatchRecord) -> None:
        table = _table_of_run(connection, record.run_id)
        self._require_lease(connection, table, record.fencing_token)
        intent = asdict(replace(record, state=BatchState.INTENT))
        if not self.database.insert_new(connection, batches, intent):
            raise StateError(f"batch {record.number} of run {record.run_id} is already in the journal")

    @transaction
    def finish_batch(self, connection: sa.Connection, record: BatchRecord) -> None:
        this_batch = {"of_run": record.run_id, "of_number": record.number}
        row = connection.execute(_LOCKED_BATCH, this_batch).mappings().one_or_none()
        done = rules.finished_batch(_batch(row) if row else None, record)
        connection.execute(_CLOSE_BATCH, {**this_batch, **asdict(done)})

    @transaction
    def journal(self, connection: sa.Connection, run_id: str) -> list[BatchRecord]:
        query = sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.number)
        return [_batch(row) for row in connection.execute(query).mappings()]

    # Approvals

    @transaction
    def add_approval(self, connection: sa.Connection, approval: Approval) -> None:
        _table_of_run(connection, approval.run_id)
        self.database.upsert(connection, approvals, asdict(approval))

    @transaction
    def approvals(self, connection: sa.Connection, table: str) -> list[Approval]:
        query = sa.select(approvals).where(approvals.c.table == table)
        newest_first = query.order_by(approvals.c.approved_at.desc(), approvals.c.run_id.desc())
        return [Approval(**row) for row in connection.execute(newest_first).mappings()]

    @transaction
    def ping(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.literal(1)))

    async def aclose(self) -> None:
        await self.database.aclose()


def _among(column: sa.Column[str], values: Collection[str]) -> sa.ColumnElement[bool]:
    """Is the column one of these values? The type is given explicitly: to infer it from an empty list, SQLAlchemy would
    use its ORM, which another thread may be importing for a catalog at that moment."""
    return column.in_(sa.bindparam(None, list(values), column.type, expanding=True))


_RANKED = sa.select(
    runs.c.id,
    sa.func.row_number()
    .over(partition_by=runs.c.table, order_by=(runs.c.started_at.desc(), runs.c.id.desc()))
    .label("place"),
)
"""Runs with their place among those of their table, the newest first."""


def _newest_of_each(connection: sa.Connection, ranked: sa.Select[Any]) -> dict[str, run_document.Run]:
    """By table, with one query."""
    of_these = ranked.subquery()
    query = sa.select(runs.c.table, runs.c.document).join(of_these, of_these.c.id == runs.c.id)
    rows = connection.execute(query.where(of_these.c.place == 1), execution_options=IN_PARTS)
    return {row.table: run_document.from_storage(row.document) for row in rows}


def _was_listed() -> sa.ColumnElement[bool]:
    """Did the run list the whole table? Runs recorded before this field existed did."""
    listed = runs.c.document["listed"].as_boolean()
    return sa.or_(listed.is_(None), listed == sa.true())


def _number(*path: str) -> sa.ColumnElement[int]:
    """A number in a run's document. It may need 64 bits."""
    return sa.cast(runs.c.document[path].as_string(), sa.BigInteger)


def _run_row(run: CleanupRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "table": run.table.label,
        "tenant": run.table.tenant,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "phase": run.phase,
        "outcome": run.outcome,
        "document": report.run_document(run),
    }


# Used in every cycle or several times for every batch, so these are built once.

_UPDATE_RUN = sa.update(runs).where(runs.c.id == sa.bindparam("of_run"))
_OPEN_RUNS = (
    sa.select(runs.c.document)
    .where(runs.c.table == sa.bindparam("of_table"), runs.c.outcome.is_(None))
    .order_by(runs.c.started_at.desc(), runs.c.id.desc())
)
_TABLE_OF_RUN = sa.select(runs.c.table).where(runs.c.id == sa.bindparam("of_run"))
_THIS_BATCH = sa.and_(batches.c.run_id == sa.bindparam("of_run"), batches.c.number == sa.bindparam("of_number"))
_LOCKED_BATCH = sa.select(batches).where(_THIS_BATCH).with_for_update()
_CLOSE_BATCH = sa.update(batches).where(_THIS_BATCH)


def _table_of_run(connection: sa.Connection, run_id: str) -> str:
    table = connection.execute(_TABLE_OF_RUN, {"of_run": run_id}).scalar_one_or_none()
    if table is None:
        raise StateError(f"run {run_id} is not recorded")
    return str(table)


def _plan(connection: sa.Connection, run_id: str) -> PlanHeader | None:
    row = connection.execute(sa.select(plans).where(plans.c.run_id == run_id)).mappings().one_or_none()
    return PlanHeader(**row) if row else None


def _batch(row: sa.RowMapping) -> BatchRecord:
    return BatchRecord(**{**row, "state": BatchState(row["state"])})
