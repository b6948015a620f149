"""Run the command line's own cycle for a caller in Python: in its event loop, or in a thread with a loop of its own.

Nothing is printed: unless the caller has configured structlog, the log goes to the logger `lakesweep`. A plan without a
settings file keeps nothing: its state is in memory, its files are in a directory that is removed after the call.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from lakesweep.aio import StopRequest
from lakesweep.daemon import leftovers
from lakesweep.daemon.app import App
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import SettingsError
from lakesweep.model.run import CleanupRun
from lakesweep.python import results
from lakesweep.python.sources import Source, source_of
from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.load import load, settings_file
from lakesweep.settings.schema import Settings
from lakesweep.telemetry import logs

_T = TypeVar("_T")
INTERRUPTED = "interrupted by the caller; the next run continues"


def blocking(work: Callable[[StopRequest], Coroutine[Any, Any, _T]]) -> _T:
    """Do the work in its own thread, so that a running event loop is not in the way.

    Ctrl-C, or a notebook's stop button, stops the work, waits for its end and raises KeyboardInterrupt.
    """
    stop, interrupted, submitted = StopRequest(), threading.Event(), threading.Event()
    end = partial(stop.end, INTERRUPTED, by_user=True)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> _T:
        loops.append(asyncio.get_running_loop())
        if interrupted.is_set():
            end()
        return await work(stop)

    def run() -> _T:
        submitted.wait()  # until then the pool does not know its thread, and leaving it would not wait
        if interrupted.is_set():
            raise KeyboardInterrupt  # nothing has begun
        return asyncio.run(main())

    with ThreadPoolExecutor(1, thread_name_prefix="lakesweep") as thread:  # leaving it waits for the end
        try:
            ended = thread.submit(run)
            submitted.set()
            return ended.result()
        except KeyboardInterrupt:
            interrupted.set()
            submitted.set()
            if loops and not loops[0].is_closed():
                loops[0].call_soon_threadsafe(end)
            raise


async def runs(
    given: Sequence[Any],
    *,
    execute: bool,
    override: CleanupOverride,
    config: Path | None,
    format: str | None,
    root: str | None,
    stop: StopRequest | None,
) -> list[tuple[CleanupRun, pa.Table]]:
    """Each table's run and the rows of its plan, in order, each table once."""
    _check_switch("execute", execute)
    ended: list[tuple[CleanupRun, pa.Table]] = []
    seen: set[str] = set()
    with logs.as_library():
        base = load(config)
        for x in given:
            source = source_of(x, base, format=format, root=root)
            async with opened(source, override, keeps=execute or settings_file(config) is not None) as app:
                for work in await app.resolve(source.target, format=source.format, root=source.root):
                    if work.ref.label not in seen and not (stop and stop.by_user):
                        seen.add(work.ref.label)
                        ended.append(await _one(app, work, execute=execute, stop=stop))
                await app.notifier.deliver()
    return ended


def _check_switch(name: str, value: object) -> None:
    """Not by its truth: the text "no" is true, and so are numbers that stand for something else."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


async def _one(app: App, work: Work, *, execute: bool, stop: StopRequest | None) -> tuple[CleanupRun, pa.Table]:
    own_stop = StopRequest()  # for this run only: a sweep that fails sets it too
    watching = asyncio.create_task(_forward(stop, own_stop)) if stop else None
    try:
        run = await app.run(work, execute=execute, stop=own_stop)
    except SettingsError:
        raise
    except Exception as exc:  # noqa: BLE001 - a bug that one table meets must not keep the others back
        run = app.broken(work, exc)
    finally:
        if watching:
            watching.cancel()
    batches = [batch.select(results.ORPHANS.names) async for batch in app.plan_rows(run)]
    rows = pa.Table.from_batches(batches).cast(results.ORPHANS) if batches else results.ORPHANS.empty_table()
    return run, rows


async def _forward(stop: StopRequest, own_stop: StopRequest) -> None:
    await stop.wait()
    own_stop.end(stop.why, by_user=stop.by_user)


async def explanation(
    path: str, x: Any, *, override: CleanupOverride, config: Path | None, format: str | None, root: str | None
) -> results.Explanation:
    """Why one file stays or goes."""
    with logs.as_library():
        base = load(config)
        source = source_of(x, base, format=format, root=root) if x is not None else None
        keeps = settings_file(config) is not None
        async with opened(source or Source(settings=base, target=""), override, keeps=keeps) as app:
            if source is None:
                found = await app.explain(path)
            else:
                found = await app.explain(path, target=source.target, format=source.format, root=source.root)
    return results.explanation_of(found)


async def report(names: Sequence[str], *, fresh: bool, config: Path | None, stop: StopRequest | None) -> results.Report:
    """What all configured tables store, from the newest plan of each; with `fresh` each is planned first."""
    _check_switch("fresh", fresh)
    with logs.as_library():
        settings = load(config)
        if not settings.tenants:
            raise SettingsError("nothing to report: configure tenants, and give the file as config")
        async with App.open(settings) as app:
            works = await app.works(names)
            for work in works if fresh else ():
                if work.table is not None and not (stop and stop.is_set()):
                    await _one(app, work, execute=False, stop=stop)
            return results.Report(document=await leftovers.report(app, works, names, fresh=fresh, stop=stop))


@asynccontextmanager
async def opened(source: Source, override: CleanupOverride, *, keeps: bool) -> AsyncIterator[App]:
    """The application for one call. If it keeps no state, it leaves nothing behind."""
    if keeps or source.settings.state.url is not None:
        async with App.open(source.settings, override=override) as app:
            yield app
        return
    with tempfile.TemporaryDirectory(prefix="lakesweep-", ignore_cleanup_errors=True) as directory:
        async with App.open(_in_memory(source.settings, Path(directory)), override=override) as app:
            yield app


def _in_memory(settings: Settings, directory: Path) -> Settings:
    service = settings.service.model_copy(update={"data_dir": directory, "artifacts": None})
    state = settings.state.model_copy(update={"url": "memory://"})
    return settings.model_copy(update={"service": service, "state": state})
