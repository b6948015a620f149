"""What the dashboard needs beyond the lists: the caller, and the details of one run or table. Reads only."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse

from lakesweep.admin import documents
from lakesweep.admin.problems import documented
from lakesweep.admin.routes import Backend, Reader, RunId, check_sees, seen, tenants_of, visible_holds
from lakesweep.model import run_document
from lakesweep.model.errors import NoPlan
from lakesweep.model.files import Tally
from lakesweep.model.refusal import consequences, remedy

router = APIRouter(prefix="/api/v1", responses=documented(400, 401, 403, 408, 413, 422, 429, 503))

TableName = Annotated[str, Query(min_length=1, max_length=1000, description="tenant/dataset/table.")]


@router.get("/me", response_model=documents.Me)
async def me(principal: Reader) -> JSONResponse:
    """The caller, and what its token allows."""
    return JSONResponse(asdict(principal))


@router.get("/ghosts", response_model=documents.Ghosts)
async def ghosts(backend: Backend, principal: Reader) -> JSONResponse:
    """Directories of former tables that nobody claims, as they were last found; at most 200 of a tenant."""
    found = await backend.report(tenants_of(principal))
    return JSONResponse(documents.Ghosts(ghosts=found["ghosts"], looked_at=found["ghosts_looked_at"]))


@router.get("/runs/{run_id}/groups", response_model=documents.PlanGroups, responses=documented(404))
async def groups(backend: Backend, principal: Reader, run_id: RunId) -> JSONResponse:
    """What the plan of a run consists of."""
    await seen(backend, principal, run_id)
    found = await backend.plan_groups(run_id)
    if found is None:
        raise NoPlan(run_id)
    parts = {"by_reason": found.by_reason, "by_kind": found.by_kind, "by_directory": found.by_directory}
    return JSONResponse({part: _groups(tallies) for part, tallies in parts.items()})


@router.get("/runs/{run_id}/batches", response_model=documents.Batches, responses=documented(404))
async def batches(backend: Backend, principal: Reader, run_id: RunId) -> JSONResponse:
    """What a run has deleted so far, batch by batch."""
    await seen(backend, principal, run_id)
    found, shown = await backend.batches(run_id), documents.Batch.__annotations__
    return JSONResponse({"batches": [{name: getattr(one, name) for name in shown} for one in found]})


@router.get("/runs/{run_id}/actions", response_model=documents.RunActions, responses=documented(404))
async def actions(backend: Backend, principal: Reader, run_id: RunId) -> JSONResponse:
    """What a person can do about a run."""
    found = await seen(backend, principal, run_id)
    ended, code = found["outcome"] is not None, found["refused"]["code"] if found["refused"] else ""
    kept = found["retained_bytes"]
    answer = documents.RunActions(
        cancellable=not ended,
        approvable=ended and consequences(code).approvable,
        restorable=ended and bool(kept["trash"] or kept["versions"]),
        advice=remedy(code, run_id),
    )
    return JSONResponse(answer)


@router.get("/explain", response_model=run_document.Explanation, responses=documented(404, 409))
async def explain(
    backend: Backend,
    principal: Reader,
    table: TableName,
    path: Annotated[str, Query(min_length=1, max_length=5000, description="Full address of a file.")],
) -> JSONResponse:
    """Why one file of a table stays or is deleted."""
    check_sees(principal, table)
    return JSONResponse((await backend.explain(table, path)).document)


@router.get("/table", response_model=documents.TableDetail, responses=documented(404))
async def table(backend: Backend, principal: Reader, table: TableName) -> JSONResponse:
    """One table: its holds, its trend, and when its next cycle comes and why."""
    check_sees(principal, table)
    found = await backend.table_detail(table)
    return JSONResponse({**found, "holds": visible_holds(found["holds"], principal)})


@router.get("/snapshots", response_model=documents.Snapshots, responses=documented(404, 409))
async def snapshots(backend: Backend, principal: Reader, table: TableName) -> JSONResponse:
    """The newest snapshots of one table, and why each stays or expires. Reads the table's metadata."""
    check_sees(principal, table)
    return JSONResponse(await backend.snapshots(table))


@router.get("/settings", response_model=documents.TableSettings, responses=documented(404))
async def settings(backend: Backend, principal: Reader, table: TableName) -> JSONResponse:
    """The rules that apply to one table, and which level sets each."""
    check_sees(principal, table)
    return JSONResponse(documents.TableSettings(table=table, settings=await backend.settings_of(table)))


def _groups(found: dict[str, Tally]) -> list[documents.Group]:
    return [{"name": name, "count": tally.files, "bytes": tally.bytes} for name, tally in found.items()]
