"""Replicas of the service in a simulated world: the product's composition root, scheduler and leases run unchanged.

Seams are the adapters (stores, engine, catalogs), the state store, the clocks, chance (random ids and jitter), the
memory of the process, and how often an idle scheduler looks around. All replicas share one event loop; what a frozen
one was about to do is held back until it wakes up, as if its process stood still.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import structlog
from tests.builders.surroundings import NoStoreRules
from tests.sim.engine import PlainEngine
from tests.sim.loop import VirtualLoop
from tests.sim.ports import Process, SimDeleter, SimState, SimStorage, SimWriter
from tests.sim.world import Killed, Lost, Stored, World

from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.daemon import adapters, app, lease, scheduler
from lakesweep.daemon.app import App
from lakesweep.daemon.clock import Uptime
from lakesweep.daemon.memory import MemoryWatch
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.daemon.unpublished_files import GatedUnpublishedRemover
from lakesweep.formats import registry as formats
from lakesweep.model.run import EngineChoice
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.settings.schema import Settings
from lakesweep.state.memory import MemoryStateStore
from lakesweep.telemetry.metrics import Metrics

REPLICA: contextvars.ContextVar[str] = contextvars.ContextVar("replica", default="")
"""Whose code runs: every task of a replica inherits it."""

IDLE_SECONDS = 8 * 3600.0
"""How often an idle scheduler looks around, instead of every 2 s: else a simulated day costs seconds."""

OWN = "s3://own/"
"""Where the service keeps plans, ledgers and its audit trail."""

pa.set_cpu_count(1)
pa.set_io_thread_count(1)

_METRICS = Metrics(table_labels=False)


class ServiceLoop(VirtualLoop):
    """Holds back what frozen replicas would do."""

    def __init__(self, on_time: Callable[[float], None] | None = None) -> None:
        super().__init__(on_time)
        self.frozen: set[str] = set()
        self._held: dict[str, list[tuple[list[asyncio.Handle], Callable[..., Any], tuple[Any, ...], Any]]] = {}

    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        return self._remembered(super()._call_soon, callback, args, context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        def make(wrapped: Any, wrapped_args: Any, _: None) -> asyncio.Handle:
            return super(ServiceLoop, self).call_at(when, wrapped, *wrapped_args)

        return self._remembered(make, callback, args, context)

    def _remembered(self, make: Callable[..., asyncio.Handle], callback: Any, args: Any, context: Any) -> Any:
        context = contextvars.copy_context() if context is None else context
        cell: list[asyncio.Handle] = []
        handle = make(self._run_if_awake, (cell, callback, args, context), None)
        cell.append(handle)
        return handle

    def _run_if_awake(self, cell: list[asyncio.Handle], callback: Any, args: Any, context: Any) -> None:
        replica = context.get(REPLICA, "")
        if replica in self.frozen:
            self._held.setdefault(replica, []).append((cell, callback, args, context))
        elif not cell or not cell[0].cancelled():
            context.run(callback, *args)

    def wake(self, replica: str) -> None:
        """It goes on with what it was about to do, and with the timers that ran out meanwhile."""
        self.frozen.discard(replica)
        for held in self._held.pop(replica, []):
            super()._call_soon(self._run_if_awake, held, None)


class Machine(Process):
    """A process with a clock that may be set, and one that may not."""

    boot = ""
    """The machine that it runs on; a process by itself is a machine of its own."""
    was_right = False
    """Has it planned while its clock was right? Nothing tells of a clock that was wrong from the beginning."""

    def uptime(self) -> Uptime:
        """See daemon.clock."""
        return Uptime(boot=f"boot of {self.boot or self.name}", seconds=asyncio.get_running_loop().time())


class LocalStorage(SimStorage):
    """A store without a clock of its own: it tells the time of the machine that asks, as a local disk does."""

    async def now(self) -> datetime:
        await super().now()
        return self._process.now()


class SimAdapters(adapters.Adapters):
    """Everything that would reach out of the process leads into the world. The clock is the process."""

    def __init__(self, settings: Settings, clock: Machine) -> None:
        super().__init__(settings, clock)
        self.process = self._process = clock

    def _opened_storage(self, spec: Any, cache: Any = None) -> Any:
        return (LocalStorage if self._process.world.local_clock else SimStorage)(self._process)

    def _opened_writer(self, spec: Any) -> Any:
        return SimWriter(self._process)

    def _remover(self, tenant: str, tenant_root: Any) -> GatedUnpublishedRemover:
        return GatedUnpublishedRemover(lambda: SimDeleter(self._process), tenant_root)

    async def remove_own(self, paths: Any) -> None:
        place = self._settings.artifacts
        await GatedUnpublishedRemover(lambda: SimDeleter(self._process), place, (place,)).remove_unpublished(paths)

    def deleter(
        self, tenant: str, tenant_root: Any, state: Any, concurrency: int, count: Any, *, trash: Any = None
    ) -> GatedDeleter:
        assert trash is None, "no simulated service has a trash"
        inner = SimDeleter(self._process)
        return GatedDeleter(inner, tenant_root=tenant_root, table_roots=state.roots, count=count)

    def inprocess(self, tenant: str, root: Any = None) -> PlainEngine:
        return PlainEngine(storage=self.storage(tenant, root), decoder=formats.decoder)

    def rules(self, tenant: str) -> StoreRulesReader:
        """No simulated store keeps what was deleted from it, and nobody may ask a real one."""
        return NoStoreRules()

    def choose_engine(self, tenant: str, state: Any, runs: Any, root: Any = None) -> Any:
        return self.inprocess(tenant, root), EngineChoice(kind="inprocess", why="simulated")

    def format(self, tenant: Any, dataset: Any) -> Any:
        key = (tenant.id, dataset.id)
        if key not in self._formats:
            open_format = self._process.world.open_format
            self._formats[key] = open_format(self, dataset) if open_format else super().format(tenant, dataset)
        return self._formats[key]


class _NoMemory(MemoryWatch):
    """What this real process takes must decide nothing in a story: no run is ended for it."""

    @asynccontextmanager
    async def watching(self, label: str, run_id: str, stop: asyncio.Event) -> AsyncIterator[None]:
        yield


class SimWorld(World):
    """A world with a state store that all replicas share."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.local_clock = False
        self.open_format: Callable[[SimAdapters, Any], Any] | None = None
        self.frozen: Callable[[], set[str]] = set
        """Replicas that stand still now."""
        self.caller = ""
        """Whose call the state store answers."""
        self.state = MemoryStateStore(SimpleNamespace(now=lambda: self.now))
        self.removed: Stored
        """The object that was deleted last."""
        self.end_all: Callable[[], None] = lambda: None
        """Ends every replica: the product would never come to rest by itself."""
        self.failure: Lost | None = None
        """The first thing that went wrong inside of a call of the product, which may have caught it."""

    def remove(self, address: str) -> Stored | None:
        stored = super().remove(address)
        if stored is not None:
            self.removed = stored
        return stored

    def changed(self, address: str, process: str) -> None:
        """The service's own files are nobody's business."""
        if address.startswith(OWN):
            return
        try:
            super().changed(address, process)
        except Lost as exc:
            self.failure = self.failure or exc


class _Told:
    """The state store, which hears who is asking: see `SimWorld.caller`."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self._world, self._name = world, name

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._world.caller = self._name
            return getattr(self._world.state, name)(*args, **kwargs)

        return call


@dataclass(kw_only=True)
class Replica:
    """One replica, from its start to its end."""

    machine: Machine
    settings: Settings
    app: App = field(init=False)
    scheduler: Scheduler | None = None
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.machine.name

    async def opened(self) -> App:
        """Put together; nothing runs yet."""
        self.app = App(self.settings, self.machine, _METRICS)
        self.app.owner = f"{self.name}:{self.app.owner.rpartition(':')[2]}"
        await self.app.__aenter__()
        return self.app

    def start(self, chance: random.Random) -> None:
        """As the service does it: open, then schedule until it is told to stop."""
        context = contextvars.copy_context()
        context.run(REPLICA.set, self.name)
        self.task = asyncio.get_running_loop().create_task(self._run(chance), name=self.name, context=context)

    async def _run(self, chance: random.Random) -> None:
        ended = False
        while not ended:
            try:
                await self.opened()
                self.scheduler = Scheduler(self.app, jitter=chance.random)
                await self.scheduler.run()
                ended = True
            except Killed:
                return
            except BaseExceptionGroup as group:
                if group.subgroup(Killed):
                    return
                raise
            except Exception:
                if not self.machine.alive:
                    return
                if self.scheduler is not None:
                    raise
                await asyncio.sleep(30)  # its state store did not answer: whoever runs it starts it again

    def kill(self) -> None:
        """The process is gone: not one more call of it has an effect."""
        self.machine.alive = False
        if self.task is not None:
            self.task.cancel()


@contextmanager
def seams(world: SimWorld, seed: int) -> Iterator[Path]:
    """Put the world in the place of what the product reaches out to, as long as one story lasts."""
    chance = random.Random(f"ids {seed}")

    async def open_state(_: str, clock: Any) -> SimState:
        return SimState(_Told(world, clock.name), clock)

    def steady(_: object) -> float:
        return asyncio.get_running_loop().time()

    def panicked(_: object) -> None:
        trouble = sys.exception()
        world.failure = world.failure or Lost(f"the product met a bug: {trouble!r}")
        world.failure.__cause__ = trouble

    before = (app.Adapters, app.open_state, app.os, app.socket, lease.time, scheduler.STEP_SECONDS, uuid.uuid4)
    chances, watch = random.getstate(), app.MemoryWatch
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        app.Adapters, app.open_state = SimAdapters, open_state
        # Reports name the process that made them: not this very process, or no two stories would be the same.
        app.os, app.socket = SimpleNamespace(getpid=lambda: 1), SimpleNamespace(gethostname=lambda: "replica")
        lease.time = SimpleNamespace(clock_gettime=steady)
        scheduler.STEP_SECONDS = IDLE_SECONDS
        app.MemoryWatch = _NoMemory
        _METRICS.count_panic = panicked  # type: ignore[method-assign]
        uuid.uuid4 = lambda: uuid.UUID(int=chance.getrandbits(128), version=4)
        random.seed(seed)
        try:
            yield Path(place)
        finally:
            app.Adapters, app.open_state, app.os, app.socket, lease.time, scheduler.STEP_SECONDS, uuid.uuid4 = before
            app.MemoryWatch = watch
            random.setstate(chances)


def settings_of(place: Path, dataset: Mapping[str, Any], cleanup: Mapping[str, Any], **daemon: Any) -> Settings:
    """The settings of one replica."""
    return Settings.model_validate(
        {
            "service": {"data_dir": str(place), "artifacts": f"{OWN}lakesweep", "installation_key": "k" * 40},
            "state": {"url": "memory://"},
            "daemon": daemon,
            "orphan_cleanup": {"enabled": True, "dry_run": False, **cleanup},
            "tenants": [{"id": "acme", "root": "s3://lake/", "datasets": [{"id": "prod", **dataset}]}],
        }
    )
