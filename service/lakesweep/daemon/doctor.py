"""What is here and what answers, for `lakesweep doctor`. Reads only: makes no directory, no database, no commit.

Each thing that is looked at becomes one finding; one that does not answer never keeps the others back.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from lakesweep import __version__
from lakesweep.daemon import discovery
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import SystemClock
from lakesweep.engines import registry as engines
from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.settings import catalogs
from lakesweep.settings.schema import Settings
from lakesweep.settings.secrets import mask_text
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.state.registry import describe
from lakesweep.telemetry import compiled

_SECONDS = 30.0
_STATE_SECONDS = 10.0
"""One query: a database that takes longer would fail every run."""


class Health(StrEnum):
    """How a thing is."""

    OK = "ok"
    ABSENT = "absent"
    """Not here, and needed only by some."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    health: Health
    detail: str


def installed() -> Iterator[Finding]:
    """What this machine has. Starts nothing but `java -version`."""
    yield _ok("lakesweep", __version__)
    yield _ok("python", f"{platform.python_version()} ({platform.machine()})")
    yield from map(_part, compiled.PARTS)
    yield _spark()
    yield _java()
    for kind in ("rest", "sql", "hive", "glue", "bigquery"):
        given = {"type": kind, "uri": "postgresql://"}
        missing = [remark for remark in catalogs.remarks(given) if "not installed" in remark]
        name = f"catalog {kind}"
        yield _absent(name, missing[0]) if missing else _ok(name, "its client is installed")


async def answers(settings: Settings) -> AsyncIterator[Finding]:
    """What the configured stores and catalogs answer, with this process's credentials."""
    yield await _limited("state", describe(settings.state_url), _STATE_SECONDS)
    async with aclosing(Adapters(settings, SystemClock())) as adapters:
        for tenant in settings.tenants:
            if (found := await _limited(f"credentials {tenant.id}", _credentials(adapters, tenant))).detail:
                yield found
            yield await _limited(f"storage {tenant.id}", _store(adapters, tenant))
            for dataset in tenant.datasets:
                yield await _limited(f"dataset {tenant.id}/{dataset.id}", _dataset(adapters, tenant, dataset))


async def _limited(name: str, check: Awaitable[str], seconds: float = _SECONDS) -> Finding:
    try:
        async with asyncio.timeout(seconds):
            return _ok(name, await check)
    except TimeoutError:
        return Finding(name=name, health=Health.FAILED, detail=f"no answer in {seconds:g} s")
    except LakesweepError as exc:
        return Finding(name=name, health=Health.FAILED, detail=str(exc))
    except Exception as exc:  # noqa: BLE001 - one that does not answer never keeps the others back
        return Finding(name=name, health=Health.FAILED, detail=f"{type(exc).__name__}: {mask_text(str(exc))}")


async def _credentials(adapters: Adapters, tenant: TenantSettings) -> str:
    """Nothing, where the store needs none."""
    source = await adapters.credentials(tenant.id, Location.parse(tenant.root))
    return f"from {source}" if source else ""


async def _store(adapters: Adapters, tenant: TenantSettings) -> str:
    root = Location.parse(tenant.root)
    await discovery.refuse_missing_root(tenant, tenant.id)
    async with aclosing(adapters.storage(tenant.id).list(root.as_directory())) as pages:
        async for page in pages:
            if page.num_rows:
                return f"{tenant.root} can be listed"
    return f"{tenant.root} answers and is empty"


async def _dataset(adapters: Adapters, tenant: TenantSettings, dataset: DatasetSettings) -> str:
    await discovery.refuse_missing_directories(tenant, dataset)
    found = await adapters.format(tenant, dataset).tables()
    return f"{len(found)} table{'' if len(found) == 1 else 's'}"


def _part(name: str) -> Finding:
    short = f"compiled {name.rpartition('.')[2]}"
    if compiled.is_there(name):
        module = importlib.import_module(name)
        return _ok(short, os.path.basename(module.__file__ or "built in"))  # noqa: PTH119 - text only
    return _absent(short, f"{compiled.without(name)}: plain Python is used instead, which is slower")


def _spark() -> Finding:
    try:
        return _ok("spark", f"pyspark {importlib.metadata.version('pyspark')}")
    except importlib.metadata.PackageNotFoundError:
        return _absent("spark", "pyspark is not installed: tables are planned in-process")


def _java() -> Finding:
    why = engines.why_no_java()
    if why is None:
        return _ok("java", "can run Spark")
    return _absent("java", f"{why}. Needed only when Spark starts on this machine")


def _absent(name: str, detail: str) -> Finding:
    return Finding(name=name, health=Health.ABSENT, detail=detail)


def _ok(name: str, detail: str) -> Finding:
    return Finding(name=name, health=Health.OK, detail=detail)
