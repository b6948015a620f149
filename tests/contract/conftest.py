"""Servers, stores and back ends that the contract suites share. Servers start once per test process."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders.stores import StorageSpec
from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.s3_stub import s3_stub
from tests.sim.ports import Process, SimState
from tests.sim.state import DictStateStore
from tests.sim.world import World

from lakesweep.model.location import Location
from lakesweep.ports.state import StateStore
from lakesweep.state.memory import MemoryStateStore
from lakesweep.state.registry import open_state
from lakesweep.storage import memory
from lakesweep.storage.s3.settings import S3Options


@pytest.fixture(scope="session")
def postgres_server():
    with running_postgres() as server:
        yield server


@dataclass(kw_only=True)
class StorePlace:
    """A place of a test's own in one store. The simulator's store has no address: its suites open it themselves."""

    kind: str
    spec: StorageSpec
    scheme: str
    authority: str
    prefix: str = ""

    def at(self, path: str) -> Location:
        return Location(self.scheme, self.authority, self.prefix + path)


@pytest.fixture(params=["memory", "local", "seaweedfs", "s3-stub", "simulated"])
async def store_place(request, tmp_path, s3_credentials):
    name = f"lake-{uuid.uuid4().hex[:12]}"
    place = StorePlace(kind=request.param, spec=StorageSpec(), scheme="s3", authority=name)
    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                place.scheme = "memory"
                stack.callback(memory.forget, name)
            case "local":
                place.scheme, place.authority, place.prefix = "file", "", f"{tmp_path}/"
            case "seaweedfs":
                server = request.getfixturevalue("seaweedfs")
                server.create_bucket("contract")
                place.authority, place.prefix = "contract", f"{name}/"
                place.spec = StorageSpec(s3=S3Options(endpoint_url=server.endpoint_url, path_style=True))
            case "s3-stub":
                server = await stack.enter_async_context(s3_stub(name))
                place.spec = StorageSpec(s3=S3Options(endpoint_url=server.endpoint_url, path_style=True))
        yield place


class HandClock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


class StateBackend:
    """One empty store behind a URL, and power over its clock."""

    durable = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = HandClock()

    async def open(self) -> StateStore:
        return await open_state(self.url, self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.moment += timedelta(seconds=seconds)


class MemoryBackend(StateBackend):
    """All openings are the same store, as there is nothing behind it."""

    durable = False

    def __init__(self) -> None:
        super().__init__("memory://")
        self._store = MemoryStateStore(self.clock)

    async def open(self) -> StateStore:
        return self._store


class PostgresBackend(StateBackend):
    """The server's clock cannot be moved, so leases and holds are moved into the past instead."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        super().__init__(server.url(database))
        self.server = server
        self.database = database

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)  # of this machine
        await self.execute(f"UPDATE lakesweep_holds SET ends_at = ends_at - interval '{seconds} seconds'")
        await self.execute(f"UPDATE lakesweep_leases SET expires_at = expires_at - interval '{seconds} seconds'")

    async def execute(self, statement: str) -> None:
        await self.server.execute(statement, database=self.database)


class SimulatedBackend(StateBackend):
    """The simulator's own store as its processes reach it, with nobody who interrupts."""

    durable = False

    def __init__(self) -> None:
        super().__init__("simulated://")
        self._store = DictStateStore(self.clock)

    async def open(self) -> StateStore:
        return SimState(self._store, Process(World()))


@pytest.fixture
def memory_backend():
    return MemoryBackend()


@pytest.fixture
def simulated_backend():
    return SimulatedBackend()


@pytest.fixture
def sqlite_backend(tmp_path):
    return StateBackend(f"sqlite:///{tmp_path / 'made on opening' / 'state.db'}")


@pytest.fixture
async def postgres_backend(postgres_server):
    return PostgresBackend(postgres_server, await postgres_server.create_database())


@pytest.fixture(params=["memory", "simulated", "sqlite", "postgres"])
def state_backend(request):
    return request.getfixturevalue(f"{request.param}_backend")


@pytest.fixture(params=["sqlite", "postgres"])
def durable_backend(request):
    return request.getfixturevalue(f"{request.param}_backend")


@pytest.fixture
async def open_store(state_backend):
    """Open the back end as often as a test likes; all is closed at its end."""
    async with AsyncExitStack() as stack:

        async def open_one() -> StateStore:
            store = await state_backend.open()
            stack.push_async_callback(store.aclose)
            return store

        yield open_one


@pytest.fixture
async def store(open_store):
    return await open_store()
