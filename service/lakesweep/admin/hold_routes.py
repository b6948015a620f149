"""Pause, stop and resume, and the list of holds. A caller reaches and sees only the scopes of its own tenants."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fastapi import APIRouter
from starlette.responses import JSONResponse

from lakesweep.admin import documents
from lakesweep.admin.backend import AdminBackend
from lakesweep.admin.problems import documented
from lakesweep.admin.routes import Backend, Operator, Reader
from lakesweep.model import run_document
from lakesweep.model.access import EVERY_TENANT, Principal
from lakesweep.model.errors import UnknownTable

router = APIRouter(prefix="/api/v1", responses=documented(400, 401, 403, 408, 413, 422, 429, 503))


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
    answer: documents.Holds = {
        "holds": visible_holds(await backend.holds(), principal),
        "ended": visible_holds(await backend.ended_holds(), principal),
    }
    return JSONResponse(answer)


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
    answer: documents.Pauses = {"paused": [*visible_holds(await backend.holds(), principal)]}
    return JSONResponse(answer)


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
