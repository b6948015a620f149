"""The API, put together: routes, limits, errors, the dashboard's static files, probes and metrics.

Probes need no token and reveal no name. They and the metrics are served twice: with the API, and on the port for
metrics, which is for machines alone and needs no token.
"""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakesweep import __version__
from lakesweep.admin import detail_routes, documents, problems, routes
from lakesweep.admin.auth import Gatekeeper
from lakesweep.admin.backend import AdminBackend, Health
from lakesweep.admin.limits import PAGES, Guarded, Limits
from lakesweep.admin.problems import documented
from lakesweep.admin.routes import Backend, reader
from lakesweep.model.access import Principal

_PAGES = {path: path[1:] or "dashboard.html" for path in PAGES}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAILING: dict[int | str, dict[str, object]] = {503: {"model": documents.Health, "description": "It is not."}}

router = APIRouter()


def make_app(backend: AdminBackend, gatekeeper: Gatekeeper, limits: Limits | None = None) -> FastAPI:
    """The ASGI application. Nothing of it is shared between two calls."""
    app = FastAPI(
        title="Lakesweep",
        summary="Keeps lakehouse tables clean.",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its pages load scripts from other sites
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.backend = backend
    for part in (router, routes.router, detail_routes.router):
        app.include_router(part)
    for path, name in _PAGES.items():
        _serve_page(app, path, name)
    problems.install(app)
    app.add_middleware(Guarded, limits=limits or Limits(), gatekeeper=gatekeeper, now=time.monotonic)
    return app


def _serve_page(app: FastAPI, path: str, name: str) -> None:
    content = files("lakesweep.admin").joinpath("pages", name).read_bytes()
    media_type = _TYPES[name.rpartition(".")[2]]

    async def page() -> Response:
        return Response(content, media_type=media_type)

    app.add_api_route(path, page, include_in_schema=False)


@router.get("/healthz", response_model=documents.Health, responses=_FAILING)
async def healthz(backend: Backend) -> JSONResponse:
    """Whether this process should be left running."""
    return _answer(await backend.alive())


@router.get("/readyz", response_model=documents.Health, responses=_FAILING)
async def readyz(backend: Backend) -> JSONResponse:
    """Whether it can work now."""
    return _answer(await backend.ready())


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format.", "content": {METRICS_TYPE: {"schema": {"type": "string"}}}},
        **documented(401, 403, 413, 429),
    },
)
async def metrics(backend: Backend, principal: Annotated[Principal, Depends(reader)]) -> Response:
    """What the service counts. Series name tenants, so this needs a token for all of them."""
    if not principal.sees_all:
        raise HTTPException(403, "this needs a token for all tenants")
    return await _scrape(backend)


def metrics_app(service: AdminBackend) -> Starlette:
    """The same three on a port of their own."""

    async def scrape(_: Request) -> Response:
        return await _scrape(service)

    async def alive(_: Request) -> Response:
        return _answer(await service.alive())

    async def ready(_: Request) -> Response:
        return _answer(await service.ready())

    return Starlette(routes=[Route("/metrics", scrape), Route("/healthz", alive), Route("/readyz", ready)])


async def _scrape(service: AdminBackend) -> Response:
    # Many tables make a long text: it is put together beside the event loop.
    return Response(await asyncio.to_thread(service.metrics), media_type=METRICS_TYPE)


def _answer(health: Health) -> JSONResponse:
    document: documents.Health = {"status": "ok" if health.well else "failing", "checks": health.checks}
    return JSONResponse(document, 200 if health.well else 503)
