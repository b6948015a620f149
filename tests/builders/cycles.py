"""One cycle on a table with real adapters, a clock of the test and, if wanted, faults: the daemon in small."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.audits import ABOUT, KEY
from tests.builders.faults import Faults
from tests.builders.stores import StorageSpec

from lakesweep.audit.chain_writer import ChainWriter
from lakesweep.audit.trail import Trail
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, EngineChoice
from lakesweep.ports.state import StateStore
from lakesweep.ports.surroundings import Alone, Neighbours
from lakesweep.ports.table import Table
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.local.same_place import identify
from lakesweep.storage.registry import open_deleter, open_storage, open_writer

CACHE_KEY = b"k" * 32


@dataclass
class SetClock:
    """A clock that stands where the test puts it."""

    at: datetime

    def now(self) -> datetime:
        return self.at


class AlwaysOurs:
    """A lease that nobody can take."""

    async def check(self) -> None:
        return None

    def check_time(self) -> None:
        return None


@dataclass(kw_only=True)
class Bench:
    """Adapters for cycles over tables below one root."""

    root: Path
    clock: SetClock
    scratch: Path
    faults: Faults = field(default_factory=Faults)
    store: StateStore | None = None
    neighbours: Mapping[Any, Any] = field(default_factory=dict)
    neighbours_problem: str | None = None
    inventory: Location | None = None
    lent: Any = None
    """Tells which files other tables use, in place of the answer that there are none."""

    def __post_init__(self) -> None:
        self.store = self.store or MemoryStateStore(self.clock)

    @property
    def storage(self) -> Any:
        async def now() -> datetime:
            return self.clock.now()

        return self.faults.storage(open_storage(StorageSpec(attempts=1)), now=now)

    @property
    def writer(self) -> Any:
        return self.faults.storage(open_writer(StorageSpec(attempts=1)))

    async def run(self, table: Table, policy: CleanupPolicy, *, execute: bool = True) -> CleanupRun:
        """One cycle. Killed gets out of here, as it would end the process."""
        run_id = uuid.uuid4().hex
        lease = await self.store.acquire_lease(table.ref.label, "bench", timedelta(days=1))
        engine = engines.open_inprocess(
            storage=self.storage,
            decoder=formats.decoder,
            data_dir=self.scratch,
            memory_limit="512MB",
            cache_key=CACHE_KEY,
        )

        ports = Ports(
            table=table,
            storage=self.storage,
            engines=OneEngine(engine),
            deleters=GatedDeleters(self),
            state=self.faults.state(self.store),
            audit=Trail(
                chain=ChainWriter(
                    artifacts=Location.parse(str(self.scratch)),
                    table=table.ref.label,
                    run_id=run_id,
                    key=KEY,
                    storage=self.faults.storage(open_storage(StorageSpec(attempts=1))),
                    writer=self.writer,
                    state=self.faults.state(self.store),
                    clock=self.clock,
                    sleep=lambda _: asyncio.sleep(0),
                ),
                about=ABOUT,
            ),
            clock=self.clock,
            artifacts=Artifacts(self.scratch),
            surroundings=BenchSurroundings(self),
        )
        context = RunContext(
            run_id=run_id,
            tenant_root=Location.parse(str(self.root)),
            policy=policy,
            execute=execute,
            fence=AlwaysOurs(),
            fencing_token=lease.token,
            rows_path=str(self.scratch / "plans" / f"{run_id}.parquet"),
            inventory=self.inventory,
        )
        cycle = Cycle(ports, context)
        try:
            return await cycle.run()
        finally:
            await engine.aclose()
            await self.store.release_lease(lease)


@dataclass(frozen=True)
class OneEngine:
    """The same engine for every table."""

    engine: Any

    def choose(self, _: Any) -> tuple[Any, EngineChoice]:
        return self.engine, EngineChoice(kind="inprocess", why="test")


@dataclass(frozen=True)
class GatedDeleters:
    """Real deleters of a bench, behind the gate and its faults."""

    bench: Bench

    def open(self, state: Any) -> GatedDeleter:
        inner = self.bench.faults.storage(open_deleter(StorageSpec()))
        return GatedDeleter(inner, tenant_root=Location.parse(str(self.bench.root)), table_roots=state.roots)


class BenchSurroundings(Alone):
    """The neighbours that a test gives, and the real disk."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def neighbours(self) -> Neighbours:
        return Neighbours(places=self._bench.neighbours, problem=self._bench.neighbours_problem)

    async def shared_files(self, state: Any) -> Any:
        paths = await self._bench.lent(state) if self._bench.lent else ()
        return {"acme/prod/neighbour": paths} if paths else {}

    async def identify(self, places: Any) -> Any:
        return await identify(places)
