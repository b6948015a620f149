"""Errors as `application/problem+json` (RFC 9457). Internal details are logged, never sent."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakesweep.admin.auth import NotLocal, Unauthorized
from lakesweep.model.errors import LakesweepError, NoPlan, NotYet, Refused, SettingsError, UnknownRun, UnknownTable
from lakesweep.model.refusal import RefusalCode

MEDIA_TYPE = "application/problem+json"

log = structlog.get_logger()


class Problem(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    type: str = Field("about:blank", description="Always about:blank: the status says what kind of problem it is.")
    title: str = Field(description="The status as text.")
    status: int = Field(description="The HTTP status.", ge=400, le=599)
    detail: str = Field(description="A sentence for people.")
    code: str | None = Field(None, description="A stable code for programs, if the service refused something.")


def response(
    status: int, detail: str, *, code: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, code=code)
    return JSONResponse(problem.model_dump(), status, headers=headers, media_type=MEDIA_TYPE)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route can answer, for its OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def install(app: FastAPI) -> None:
    """Answer every error of an app as a problem, and document what that is."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        document["components"]["schemas"].setdefault("Problem", Problem.model_json_schema())
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to add to the document
    for kind in (Unauthorized, NotLocal, HTTPException, LakesweepError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


async def answer(request: Request, exc: Exception) -> Response:
    """Also for a request that is refused before it reaches a route."""
    if isinstance(exc, Unauthorized):
        return response(401, "a valid bearer token is required", headers={"WWW-Authenticate": "Bearer"})
    if isinstance(exc, NotLocal):
        how = "create one with `lakesweep token new`"
        return response(403, f"without tokens this API answers only local requests: {how}")
    if isinstance(exc, HTTPException):
        headers = dict(exc.headers or {})
        if exc.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response(exc.status_code, exc.detail, headers=headers)
    return _ours(request, exc)


def _ours(request: Request, exc: Exception) -> Response:
    if isinstance(exc, UnknownTable | UnknownRun):
        # The same message whether it does not exist or belongs to another tenant.
        return response(404, "no plan of this run is kept" if isinstance(exc, NoPlan) else "no such table or run")
    if isinstance(exc, NotYet):
        return response(503, str(exc), code=RefusalCode.NOT_DISCOVERED, headers={"Retry-After": str(exc.seconds)})
    if isinstance(exc, Refused) and exc.code == RefusalCode.TOO_MANY_REQUESTS:
        return response(429, exc.reason, code=exc.code, headers={"Retry-After": "60"})
    if isinstance(exc, Refused):
        return response(409, exc.reason, code=exc.code)
    if isinstance(exc, SettingsError):
        return response(409, str(exc), code="settings")
    log.warning("request_failed", path=request.url.path, reason=str(exc))
    return response(503, "a dependency does not respond; see the service's log")


async def _invalid(_: Request, exc: Exception) -> Response:
    faults = exc.errors() if isinstance(exc, RequestValidationError) else ()
    detail = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:10])
    return response(422, detail or "the request is malformed")


def _methods(request: Request) -> set[str]:
    """Every method of this path. Starlette reports those of one route only."""
    app: FastAPI = request.app
    paths: dict[str, dict[str, Any]] = app.openapi()["paths"]
    requested = request.url.path.split("/")
    return {method.upper() for path, item in paths.items() if _spells(path.split("/"), requested) for method in item}


def _spells(template: list[str], requested: list[str]) -> bool:
    return len(template) == len(requested) and all(
        part == given or part.startswith("{") for part, given in zip(template, requested, strict=True)
    )


async def _unexpected(request: Request, exc: Exception) -> Response:
    log.error("request_crashed", path=request.url.path, exc_info=exc)
    return response(500, "unexpected error; see the service's log")
