"""The API, put together: routes, limits, errors, and the dashboard's static files."""

from __future__ import annotations

import time
from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response

from lakesweep import __version__
from lakesweep.admin import detail_routes, hold_routes, probes, problems, routes
from lakesweep.admin.auth import Gatekeeper
from lakesweep.admin.backend import AdminBackend
from lakesweep.admin.limits import PAGES, Guarded, Limits

_PAGES = {path: path[1:] or "dashboard.html" for path in PAGES}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


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
    app.include_router(probes.router)
    app.include_router(routes.router)
    app.include_router(hold_routes.router)
    app.include_router(detail_routes.router)
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
