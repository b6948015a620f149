"""Probes and metrics: is it alive, is it ready, what does it count. The first two need no token and reveal no name.

They are served twice: with the API, and on the port for metrics, which is for machines alone and needs no token.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakesweep.admin import documents
from lakesweep.admin.backend import AdminBackend, Health
from lakesweep.admin.problems import documented
from lakesweep.admin.routes import Backend, reader
from lakesweep.model.access import Principal

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter()


_FAILING: dict[int | str, dict[str, object]] = {503: {"model": documents.Health, "description": "It is not."}}


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
