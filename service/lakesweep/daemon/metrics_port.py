"""What the metrics port answers: /metrics for Prometheus, /healthz and /readyz for whoever runs the container."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakesweep.admin.backend import Health
from lakesweep.admin.probes import METRICS_TYPE
from lakesweep.daemon.health import Checkup
from lakesweep.telemetry.metrics import Metrics


def make_app(metrics: Metrics, checkup: Checkup) -> Starlette:
    """The ASGI application."""

    async def scrape(_: Request) -> Response:
        # Many tables make a long text: it is put together beside the event loop.
        return Response(await asyncio.to_thread(metrics.exposition), media_type=METRICS_TYPE)

    async def healthz(_: Request) -> Response:
        return _answer(await checkup.alive())

    async def readyz(_: Request) -> Response:
        return _answer(await checkup.ready())

    return Starlette(
        routes=[Route("/metrics", scrape), Route("/healthz", healthz), Route("/readyz", readyz)],
    )


def _answer(health: Health) -> JSONResponse:
    document = {"status": "ok" if health.well else "failing", "checks": health.checks}
    return JSONResponse(document, 200 if health.well else 503)
