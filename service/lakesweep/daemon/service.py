"""The running service: every long task is named here, and how they end together.

    scheduler          which table is worked on next
    settings           SIGHUP or a changed file
    event loop lag     how late the loop is
    housekeeping       old runs and plans are deleted
    trash              files whose time in the trash is over
    notices            notify the webhook how runs ended
    replicas           whether another replica runs with other settings
    shutdown           the first signal, and the time that is left after it

They live in one TaskGroup: one that fails takes the service down with its reason, since half a service that looks
like a whole one is worse. The ports are open while they run. The state store outlives them all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path

import structlog

from lakesweep.admin.app import make_app, metrics_app
from lakesweep.admin.auth import Gatekeeper, check_listen, is_loopback
from lakesweep.admin.limits import Limits
from lakesweep.admin.server import serving
from lakesweep.daemon import housekeeping, notifier, trash_keeper
from lakesweep.daemon.admin_service import AdminService
from lakesweep.daemon.app import App
from lakesweep.daemon.health import Checkup
from lakesweep.daemon.known_tables import any_enabled
from lakesweep.daemon.reload import COMPARE_SECONDS, Reloader, Replicas
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.daemon.tenant_threads import TenantThreads
from lakesweep.model.errors import StateError, StorageError
from lakesweep.settings.schema import Settings
from lakesweep.telemetry import logs

log = structlog.get_logger()

LAG_SECONDS = 0.05
"""How often the event loop's lag is measured: half of what would be too long, so that nothing too long is missed."""

ORDERLY_SHARE = 0.7
"""Of the grace time: so long running batches may take to end by themselves. The rest is for giving back leases."""


class Shutdown:
    """How the service ends: the first signal requests it, the second ends it at once, and time ends it in any case.

    Whatever is cut off is safe: nothing is deleted without a journal entry, and the next start goes on from there.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.drained = False
        """Set once all work has ended and every lease is given back: what is left may be cut off."""
        self._grace_seconds = 0.0

    @contextmanager
    def listening(self, grace_seconds: float) -> Iterator[None]:
        self._grace_seconds = grace_seconds
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def request(self) -> None:
        """Begin to end. A thread sees to it that this takes no longer than the grace time."""
        if self.requested.is_set():
            return
        self.requested.set()
        log.info("shutdown_begun", grace_seconds=self._grace_seconds)
        timer = threading.Timer(self._grace_seconds, self._out_of_time)
        timer.daemon = True
        timer.start()

    @property
    def orderly_seconds(self) -> float:
        """How long to wait for running batches before they are cut off."""
        return self._grace_seconds * ORDERLY_SHARE

    def _on_signal(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            log.warning("shutdown_forced", signal=number.name)
            os._exit(128 + number)
        self.request()

    def _out_of_time(self) -> None:
        # Not the event loop's business: it may be what hangs.
        os._exit(0 if self.drained else 1)


class Service:
    """One replica. `run` may be called once."""

    def __init__(
        self,
        app: App,
        *,
        file: Path | None,
        load: Callable[[], Settings],
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`announce` gets the dashboard's address once it answers."""
        self._announce = announce
        self.scheduler = Scheduler(app)
        self.shutdown = Shutdown()
        self.threads = TenantThreads()
        self.reloader = Reloader(file=file, load=load, current=app.settings, apply=self._apply, metrics=app.metrics)
        self.replicas = Replicas(current=lambda: self.app)
        self.checkup = Checkup(self)

    @property
    def app(self) -> App:
        return self.scheduler.app

    async def run(self) -> None:
        """Serve until a signal ends it. Raises whatever a task failed with."""
        daemon = self.app.settings.daemon
        asyncio.get_running_loop().set_default_executor(self.threads)
        with self.shutdown.listening(daemon.shutdown_grace_seconds), self.reloader.listening():
            async with AsyncExitStack() as ports:
                ports.push_async_callback(self.scheduler.close)
                await self._catch_up()
                await self._open_ports(ports)
                _warn_if_idle(self.app.settings)
                await self._run_tasks()
        log.info("service_ended")

    async def _catch_up(self) -> None:
        """Before the first request: a restored database must not revive a token or forget a hold."""
        try:
            await self.app.events.catch_up()
        except StorageError as exc:
            log.warning("events_not_read", reason=str(exc))

    async def _open_ports(self, ports: AsyncExitStack) -> None:
        probed = AdminService(self.scheduler, self.checkup)
        metrics = await ports.enter_async_context(
            serving(metrics_app(probed), self.app.settings.metrics.listen, setting="metrics.listen")
        )
        admin = await ports.enter_async_context(await self._api(probed))
        log.info("service_started", metrics=metrics, admin=admin, dashboard=f"http://{admin}/")
        self._announce(f"http://{admin}/")

    async def _api(self, backend: AdminService) -> AbstractAsyncContextManager[str]:
        """SettingsError if it would be open to other machines without any token."""
        app, own = self.app, self.app.settings.admin
        await check_listen(own.listen, app.state)
        gatekeeper = Gatekeeper(app.state, app.clock, loopback=is_loopback(own.listen))
        limits = Limits(per_second=own.requests_per_second, burst=own.requests_per_second * 5)
        return serving(make_app(backend, gatekeeper, limits), own.listen)

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(self.scheduler.run(), name="scheduler")
            housekeeper = _every(housekeeping.EVERY_SECONDS, self._run_housekeeping, "housekeeping_put_off")
            notify = _every(notifier.EVERY_SECONDS, self._notify, "notices_put_off")
            compare = _every(COMPARE_SECONDS, self.replicas.compare, "replicas_not_compared")
            sides = [
                tasks.create_task(self.reloader.run(), name="settings"),
                tasks.create_task(self._measure_lag(), name="event loop lag"),
                tasks.create_task(housekeeper, name="housekeeping"),
                tasks.create_task(trash_keeper.run(lambda: self.app), name="trash"),
                tasks.create_task(notify, name="notices"),
                tasks.create_task(compare, name="replicas"),
                tasks.create_task(self._end_in_time(work), name="shutdown"),
            ]
            await asyncio.wait([work])
            self.shutdown.drained = work.cancelled() or work.exception() is None
            for side in sides:
                side.cancel()

    async def _end_in_time(self, work: asyncio.Task[None]) -> None:
        await self.shutdown.requested.wait()
        self.scheduler.stop()
        _, late = await asyncio.wait([work], timeout=self.shutdown.orderly_seconds)
        if late:
            log.warning("work_cut_off", tables=len(self.scheduler.running))
            work.cancel()

    async def _run_housekeeping(self) -> None:
        await housekeeping.run_once(self.app)
        await housekeeping.look_for_ghosts(self.app)

    async def _notify(self) -> None:
        await self.app.notifier.deliver()

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asleep = loop.time()
            await asyncio.sleep(LAG_SECONDS)
            self.app.metrics.loop_lag.observe(max(0.0, loop.time() - asleep - LAG_SECONDS))

    def _apply(self, settings: Settings) -> None:
        logs.configure(settings.logging)
        self.scheduler.adopt(self.app.successor(settings))
        _warn_if_idle(settings)


async def _every(seconds: float, work: Callable[[], Awaitable[object]], put_off: str) -> None:
    """Again and again. While the state store is away it is put off, and that is logged."""
    while True:
        try:
            await work()
        except StateError as exc:
            log.warning(put_off, reason=str(exc))
        await asyncio.sleep(seconds)


def _warn_if_idle(settings: Settings) -> None:
    """A service that does nothing on purpose looks the same as a broken one."""
    datasets = [(tenant, dataset) for tenant in settings.tenants for dataset in tenant.datasets]
    if not datasets:
        log.warning("nothing_configured", hint="name a file with tenants and datasets, by --config or LAKESWEEP_CONFIG")
    elif not any(any_enabled(settings, *names) for names in datasets):
        log.warning("nothing_enabled", hint="set orphan_cleanup.enabled = true here, or for a tenant, dataset or table")
