"""One cycle on a table with real adapters, a clock of the test and, if wanted, faults: the daemon in small."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.audits import ABOUT, KEY
from tests.builders.faults import Faults
from tests.builders.stores import StorageSpec
from tests.builders.surroundings import Alone, NoStoreRules

from lakesweep.audit.trail import ChainWriter, Trail
from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.delete_gate import GatedDeleter, TrashDeleter
from lakesweep.cleanup.restore import Restore
from lakesweep.cleanup.restore_finder import Finder, Taken
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats
from lakesweep.model.files import Reason
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, EngineChoice, ListingMode, Restored
from lakesweep.model.table import TableRef, TenantId
from lakesweep.model.trash import RunTrash, default_trash
from lakesweep.ports.state import StateStore
from lakesweep.ports.surroundings import Neighbours
from lakesweep.ports.table import Table
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.local.same_place import identify
from lakesweep.storage.registry import open_deleter, open_mover, open_storage, open_writer

CACHE_KEY = b"k" * 32

to_trash: ContextVar[bool] = ContextVar("to_trash", default=False)
"""Do the cycles of a test move files to the trash?"""


@dataclass
class SetClock:
    """A clock that stands where the test puts it."""

    at: datetime

    def now(self) -> datetime:
        return self.at


class AlwaysOurs:
    """A lease that nobody can take."""

    def __init__(self, token: int = 1) -> None:
        self.token = token

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
    listing: ListingMode = ListingMode.ALWAYS
    regular_wait: timedelta = timedelta(0)
    shared_files: Any = None
    """Tells which files other tables use, in place of the answer that there are none."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the run that is under way."""

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

    @property
    def mover(self) -> Any:
        """Moves one file at a time, so that a fault may come between any two."""
        return OneByOne(self.faults.storage(open_mover(StorageSpec())))

    def trash_of(self, run_id: str) -> RunTrash:
        root = Location.parse(str(self.root))
        return RunTrash(place=default_trash(root), root=root, run_id=run_id)

    def trail(self, label: str, run_id: str) -> Trail:
        return Trail(
            chain=ChainWriter(
                artifacts=Location.parse(str(self.scratch)),
                table=label,
                run_id=run_id,
                key=KEY,
                storage=self.faults.storage(open_storage(StorageSpec(attempts=1))),
                writer=self.writer,
                state=self.faults.state(self.store),
                clock=self.clock,
                sleep=lambda _: asyncio.sleep(0),
            ),
            about=ABOUT,
        )

    async def restore(self, document: Any) -> Restored:
        """Take one run back. Killed gets out of here, as it would end the process."""
        of, run_id, label = document["run_id"], uuid.uuid4().hex, document["table"]
        lease = await self.store.acquire_lease(label, "bench", timedelta(days=1))
        finder = Finder(
            taken=Taken(
                run_id=of,
                root=Location.parse(str(self.root)),
                plan=await self.store.get_plan(of),
                batches=await self.store.journal(of),
                trash=self.trash_of(of) if document["trash"] else None,
                markers={},
            ),
            patterns=(),
            storage=self.storage,
            artifacts=Artifacts(self.scratch),
        )

        async def note(_: Restored) -> None:
            return None

        tenant, dataset, name = label.split("/", 2)
        ref = TableRef(tenant=TenantId(tenant), dataset=dataset, name=name, format=document["format"])
        await self.store.start_run(
            CleanupRun(id=run_id, table=ref, location=None, started_at=self.clock.now(), restored=Restored(of=of))
        )
        restore = Restore(
            run_id=run_id,
            finder=finder,
            mover=self.mover,
            journal=self.faults.state(self.store),
            audit=self.trail(label, run_id),
            fence=AlwaysOurs(lease.token),
            stop=asyncio.Event(),
            note=note,
        )
        try:
            return await restore.run()
        finally:
            await self.store.release_lease(lease)

    async def run(
        self,
        table: Table,
        policy: CleanupPolicy,
        *,
        execute: bool = True,
        listing: ListingMode | None = None,
    ) -> CleanupRun:
        """One cycle. Killed gets out of here, as it would end the process."""
        run_id, self.stop = uuid.uuid4().hex, asyncio.Event()
        lease = await self.store.acquire_lease(table.ref.label, "bench", timedelta(days=1))
        engine = engines.open_inprocess(
            storage=self.storage,
            decoder=formats.decoder,
            data_dir=self.scratch,
            memory_limit="512MB",
            cache_key=CACHE_KEY,
        )

        trash = self.trash_of(run_id) if to_trash.get() else None
        ports = Ports(
            table=table,
            storage=self.storage,
            choose_engine=OneEngine(engine).choose,
            open_deleter=GatedDeleters(self, trash).open,
            state=self.faults.state(self.store),
            audit=self.trail(table.ref.label, run_id),
            clock=self.clock,
            artifacts=Artifacts(self.scratch),
            surroundings=BenchSurroundings(self),
            rules=NoStoreRules(),
        )
        context = RunContext(
            run_id=run_id,
            tenant_root=Location.parse(str(self.root)),
            policy=policy,
            execute=execute,
            fence=AlwaysOurs(lease.token),
            rows_path=str(self.scratch / "plans" / f"{run_id}.parquet"),
            inventory=self.inventory,
            listing=listing or self.listing,
            regular_wait=self.regular_wait,
            stop=self.stop,
        )
        context = replace(context, trash=trash)
        cycle = Cycle(ports, context)
        try:
            return await cycle.run()
        finally:
            await engine.aclose()
            await self.store.release_lease(lease)


def rows(run: CleanupRun, reason: Reason) -> dict[str, int]:
    """Files of a run's plan that go for one reason, and their sizes."""
    found = [row for batch in plan_file.read_batches(run.plan.rows_path) for row in batch]
    return {row.path: row.size_bytes for row in found if row.reason is reason}


@dataclass(frozen=True)
class OneByOne:
    """A mover that is asked for each file by itself."""

    inner: Any

    async def to_trash(self, moves: Any, conditions: Any = None) -> list[Any]:
        return [answer for move in moves for answer in await self.inner.to_trash([move], conditions)]

    async def back(self, moves: Any, conditions: Any = None) -> list[Any]:
        return [answer for move in moves for answer in await self.inner.back([move], conditions)]

    async def uncover(self, markers: Any, conditions: Any = None) -> list[Any]:
        return await self.inner.uncover(markers, conditions) if markers else []

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass(frozen=True)
class OneEngine:
    """The same engine for every table."""

    engine: Any

    async def choose(self, _: Any) -> tuple[Any, EngineChoice]:
        return self.engine, EngineChoice(kind="inprocess", why="test")


@dataclass(frozen=True)
class GatedDeleters:
    """Real deleters of a bench, behind the gate and its faults."""

    bench: Bench
    trash: RunTrash | None = None

    def open(self, state: Any) -> GatedDeleter:
        inner = self.bench.faults.storage(open_deleter(StorageSpec()))
        if self.trash is not None:
            inner = TrashDeleter(self.bench.mover, inner, self.trash)
        return GatedDeleter(inner, tenant_root=Location.parse(str(self.bench.root)), table_roots=state.roots)


class BenchSurroundings(Alone):
    """The neighbours that a test gives, and the real disk."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def neighbours(self) -> Neighbours:
        return Neighbours(places=self._bench.neighbours, problem=self._bench.neighbours_problem)

    async def shared_files(self, state: Any, *, own_later: bool = False) -> Any:
        del own_later
        paths = await self._bench.shared_files(state) if self._bench.shared_files else ()
        return {"acme/prod/neighbour": paths} if paths else {}

    async def identify(self, places: Any) -> Any:
        return await identify(places)
