"""The routes of the API. Every answer is limited to the tenants of the caller.

Another tenant's table or run and one that does not exist get the same answer; an insufficient role is reported before
anything is looked up, so that it reveals nothing either. A caller reaches and sees only the holds of its own tenants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Annotated, cast

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request
from starlette.responses import JSONResponse

from lakesweep.admin import documents, report_page
from lakesweep.admin.auth import Unauthorized
from lakesweep.admin.backend import AdminBackend
from lakesweep.admin.limits import PRINCIPAL
from lakesweep.admin.problems import documented
from lakesweep.audit.chain import tenant_of
from lakesweep.cleanup import report
from lakesweep.model import run_document, trash_document
from lakesweep.model.access import EVERY_TENANT, Principal
from lakesweep.model.errors import NoPlan, UnknownRun, UnknownTable

router = APIRouter(prefix="/api/v1", responses=documented(400, 401, 403, 408, 413, 422, 429, 503))

_bearer = HTTPBearer(auto_error=False, description="A token created by `lakesweep token new`.")


def _backend(request: Request) -> AdminBackend:
    return cast("AdminBackend", request.app.state.backend)


async def reader(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
) -> Principal:
    """The caller that the limits let in. The scheme is declared only for the OpenAPI document."""
    principal = request.scope.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Unauthorized
    return principal


async def operator(principal: Annotated[Principal, Depends(reader)]) -> Principal:
    if not principal.operates:
        raise HTTPException(403, "this needs a token with the role operate")
    return principal


Backend = Annotated[AdminBackend, Depends(_backend)]
Reader = Annotated[Principal, Depends(reader)]
Operator = Annotated[Principal, Depends(operator)]
RunId = Annotated[documents.RunId, Path()]
PageSize = Annotated[int, Query(ge=1, le=200, description="Maximum number to return.")]


@router.get("/tables", response_model=documents.Tables)
async def tables(
    backend: Backend,
    principal: Reader,
    after: Annotated[str | None, Query(max_length=1000, description="Only tables after this name.")] = None,
    limit: PageSize = 100,
) -> JSONResponse:
    """The known tables by name, with the last run of each."""
    found = await backend.tables(tenants_of(principal), after=after, limit=limit + 1)
    page = found[:limit]
    return JSONResponse(documents.Tables(tables=page, next=page[-1]["table"] if len(found) > limit else None))


@router.get("/report", response_model=documents.ReportPage)
async def report_of_all(
    backend: Backend, principal: Reader, wanted: Annotated[report_page.Wanted, Query()]
) -> JSONResponse:
    """What all tables store, what could be deleted, and what stands in the way."""
    return JSONResponse(report_page.of(await backend.report(tenants_of(principal)), wanted))


@router.post("/runs", status_code=202, response_model=documents.Started, responses=documented(404, 409))
async def start_run(backend: Backend, principal: Operator, wanted: documents.RunRequest) -> JSONResponse:
    """Start a run of one table. `execute` overrides the global dry_run, never a tenant's or table's own."""
    check_sees(principal, wanted.target)
    run_id = await backend.start_run(wanted.target, execute=wanted.execute, who=principal.name)
    return JSONResponse(documents.Started(run_id=run_id), 202, headers={"Location": f"/api/v1/runs/{run_id}"})


@router.post("/hints", status_code=202, response_model=documents.Hinted, responses=documented(404))
async def hint(backend: Backend, principal: Operator, reported: documents.HintRequest) -> JSONResponse:
    """Report that something happened to a table: its next regular cycle comes earlier. Changes no rule."""
    check_sees(principal, reported.table)
    due = await backend.hint(reported.table, event=reported.event, who=principal.name)
    return JSONResponse(documents.Hinted(table=reported.table, next_due=report.iso_utc(due)), 202)


@router.get("/runs", response_model=documents.Runs)
async def runs(
    backend: Backend,
    principal: Reader,
    table: Annotated[str | None, Query(max_length=1000, description="Only this table's.")] = None,
    before: Annotated[documents.RunId | None, Query(description="Only those older than this run.")] = None,
    limit: PageSize = 50,
) -> JSONResponse:
    """Runs, newest first."""
    found = await backend.runs(tenants=tenants_of(principal), table=table, before=before, limit=limit + 1)
    page = found[:limit]
    return JSONResponse(documents.Runs(runs=page, next=page[-1]["run_id"] if len(found) > limit else None))


@router.get("/runs/{run_id}", response_model=run_document.Run, responses=documented(404))
async def run(backend: Backend, principal: Reader, run_id: RunId) -> JSONResponse:
    """One run."""
    return JSONResponse(await seen(backend, principal, run_id))


@router.get("/runs/{run_id}/plan", response_model=documents.Plan, responses=documented(404))
async def plan(
    backend: Backend,
    principal: Reader,
    run_id: RunId,
    *,
    offset: Annotated[int, Query(ge=0, le=10**12, description="Number of files to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of files to return.")] = 100,
    q: Annotated[str, Query(max_length=200, description="Only files whose path contains this, ignoring case.")] = "",
) -> JSONResponse:
    """The files that a run planned to delete, in the order of deletion."""
    await seen(backend, principal, run_id)
    page = await backend.plan(run_id, offset=offset, limit=limit, text=q)
    if page is None:
        raise NoPlan(run_id)
    header, shown = page.header, offset + len(page.files)
    answer: documents.Plan = {
        "run_id": run_id,
        "table": header.table,
        "head": header.head,
        "digest": header.digest,
        "created_at": report.iso_utc(header.created_at),
        "orphans": {
            "count": header.candidates,
            "bytes": header.bytes,
            "files": [report.orphan_document(row) for row in page.files],
        },
        "matching": page.matching,
        "next": shown if page.files and shown < page.matching else None,
    }
    return JSONResponse(answer)


@router.post("/runs/{run_id}/approve", response_model=documents.Approved, responses=documented(404, 409))
async def approve(
    backend: Backend, principal: Operator, run_id: RunId, wanted: documents.ApprovalRequest | None = None
) -> JSONResponse:
    """Approve a plan above its ceilings, or a ghost's plan. The table's next cycle still checks everything else again;
    a ghost is deleted only with `lakesweep run --ghosts --execute`."""
    await seen(backend, principal, run_id)
    approval = await backend.approve(run_id, digest=wanted.digest if wanted else None, who=principal.name)
    times = {name: report.iso_utc(getattr(approval, name)) for name in ("approved_at", "expires_at")}
    return JSONResponse({**asdict(approval), **times, "remark": backend.approval_remark(approval.table)})


@router.post("/runs/{run_id}/restore", response_model=trash_document.Restoration, responses=documented(404, 409))
async def restore(
    backend: Backend, principal: Operator, run_id: RunId, wanted: documents.RestoreRequest | None = None
) -> JSONResponse:
    """Restore the files that a run deleted, from the trash or by removing its delete markers. Its table is paused."""
    await seen(backend, principal, run_id)
    options = wanted or documents.RestoreRequest()
    restored = await backend.restore(
        run_id, paths=options.paths, dry_run=options.dry_run, who=principal.name, admin=principal.sees_all
    )
    return JSONResponse(restored)


@router.post("/runs/{run_id}/cancel", status_code=202, response_model=documents.Started, responses=documented(404, 409))
async def cancel(backend: Backend, principal: Operator, run_id: RunId) -> JSONResponse:
    """End a run after its running batches."""
    await seen(backend, principal, run_id)
    await backend.cancel(run_id, who=principal.name)
    return JSONResponse(documents.Started(run_id=run_id), 202)


def tenants_of(principal: Principal) -> Collection[str] | None:
    return None if principal.sees_all else principal.tenants


def check_sees(principal: Principal, table: str) -> None:
    if not principal.sees(tenant_of(table)):
        raise UnknownTable(table)


async def seen(backend: AdminBackend, principal: Principal, run_id: str) -> run_document.Run:
    """A run that the principal may see."""
    found = await backend.run(run_id)
    if found is None or not principal.sees(tenant_of(found["table"])):
        raise UnknownRun(run_id)
    return found


@router.post("/pause", response_model=documents.Pauses, responses=documented(404, 409))
async def pause(backend: Backend, principal: Operator, wanted: documents.PauseRequest | None = None) -> JSONResponse:
    """Start nothing more, in the whole service or in a part of it. A run that deletes ends before its next request."""
    options = wanted or documents.PauseRequest()
    for scope in _scopes(principal, options):
        await backend.pause(
            scope,
            who=principal.name,
            reason=options.reason,
            admin=principal.sees_all,
            force=options.force,
            ends_at=options.ends_at,
        )
    return await _pauses(backend, principal)


@router.get("/holds", response_model=documents.Holds)
async def holds(backend: Backend, principal: Reader) -> JSONResponse:
    """What is paused, since when, until when, by whom and why."""
    found, ended = await backend.holds(), await backend.ended_holds()
    return JSONResponse({"holds": visible_holds(found, principal), "ended": visible_holds(ended, principal)})


@router.post("/stop", response_model=documents.Pauses, responses=documented(404))
async def stop(backend: Backend, principal: Operator, wanted: documents.ScopeRequest | None = None) -> JSONResponse:
    """Emergency stop: end what runs, on all replicas, before its next request, and start nothing more until resumed."""
    reason = wanted.reason if wanted else None
    for scope in _scopes(principal, wanted):
        await backend.stop(scope, who=principal.name, reason=reason, admin=principal.sees_all)
    return await _pauses(backend, principal)


@router.post("/resume", response_model=documents.Pauses, responses=documented(404, 409))
async def resume(backend: Backend, principal: Operator, wanted: documents.ScopeRequest | None = None) -> JSONResponse:
    """Resume what was paused or stopped."""
    for scope in _scopes(principal, wanted):
        await backend.resume(scope, who=principal.name, admin=principal.sees_all)
    return await _pauses(backend, principal)


def _scopes(principal: Principal, wanted: documents.ScopeRequest | None) -> Collection[str]:
    """The scopes that a request means. One of another tenant is unknown."""
    if wanted is None or wanted.scope is None:
        return [EVERY_TENANT] if principal.sees_all else principal.tenants
    if not principal.sees(wanted.scope.partition("/")[0]):
        raise UnknownTable(wanted.scope)
    return [wanted.scope]


async def _pauses(backend: AdminBackend, principal: Principal) -> JSONResponse:
    return JSONResponse({"paused": visible_holds(await backend.holds(), principal)})


def visible_holds(holds: Iterable[run_document.Hold], principal: Principal) -> list[run_document.Hold]:
    """Those that concern the caller. A hold on everything concerns everybody; who said it and why may name another
    tenant, so a tenant does not see that."""
    shown: list[run_document.Hold] = []
    for hold in holds:
        if principal.sees(hold["scope"].partition("/")[0]):
            shown.append(hold)
        elif hold["scope"] == EVERY_TENANT:
            shown.append({**hold, "by": None, "reason": None})
    return shown
