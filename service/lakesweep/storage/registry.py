"""Open stores: by scheme, on first use, wrapped in a fixed order.

Storage: confine( retry( limit( deadline( meter( store ))))). Writer: confine( retry( meter( store ))). Deleter:
meter( store ); it repeats and limits itself, key by key, and has its own gate.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from importlib import import_module
from typing import Generic, NoReturn, Protocol, TypeVar, cast

import pyarrow as pa

from lakesweep.model.errors import SettingsError
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Conditions, Deleted, Deleter
from lakesweep.ports.storage import Part, Storage, Writer
from lakesweep.retry import Backoff
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.kinds import KINDS, StoreKind
from lakesweep.storage.spec import StorageSpec
from lakesweep.storage.wrappers.confine import ConfinedStorage, ConfinedWriter
from lakesweep.storage.wrappers.deadline import DeadlineStorage
from lakesweep.storage.wrappers.limit import LimitedStorage
from lakesweep.storage.wrappers.meter import MeteredDeleter, MeteredStorage, MeteredWriter, Stats
from lakesweep.storage.wrappers.retry import RetryingStorage, RetryingWriter


class Backend(Protocol):
    """How to open the three sides of one store: what the module `StoreKind.backend` has."""

    def storage(self, spec: StorageSpec) -> Storage: ...  # noqa: D102 - said by the ports
    def deleter(self, spec: StorageSpec, gate: Gate | None) -> Deleter: ...  # noqa: D102 - likewise
    def writer(self, spec: StorageSpec) -> Writer: ...  # noqa: D102 - likewise


def _backend(kind: StoreKind) -> Backend:
    """Imported on first use: a store's client may take a third of a second to import."""
    return cast("Backend", import_module(kind.backend))


def open_storage(spec: StorageSpec, stats: Stats | None = None) -> Storage:
    """Everything that can be read, by address. Nothing is connected yet."""
    router = _RoutedStorage(_Open(spec, lambda store, spec: store.storage(spec)))
    metered = MeteredStorage(router, stats or Stats())
    timed = DeadlineStorage(metered, spec.call_timeout_seconds)
    retrying = RetryingStorage(LimitedStorage(timed, spec.max_in_flight), Backoff(spec.attempts))
    return ConfinedStorage(retrying, spec.confine, spec.max_bytes)


def open_deleter(spec: StorageSpec, stats: Stats | None = None, gate: Gate | None = None) -> Deleter:
    """The power to delete, by address. Nothing is connected yet. Deleters with one gate share their pace on S3."""
    router = _RoutedDeleter(_Open(spec, lambda store, spec: store.deleter(spec, gate)))
    return MeteredDeleter(router, stats or Stats())


def open_writer(spec: StorageSpec, stats: Stats | None = None) -> Writer:
    """The power to write, by address. Nothing is connected yet."""
    router = _RoutedWriter(_Open(spec, lambda store, spec: store.writer(spec)))
    writer = RetryingWriter(MeteredWriter(router, stats or Stats()), Backoff(spec.attempts))
    return ConfinedWriter(writer, spec.confine) if spec.confine else writer


class _Closes(Protocol):
    async def aclose(self) -> None: ...


Side = TypeVar("Side", bound=_Closes)


class _Open(Generic[Side]):
    """One side of every store, opened when its scheme is first asked for."""

    def __init__(self, spec: StorageSpec, opener: Callable[[Backend, StorageSpec], Side]) -> None:
        self._spec = spec
        self._opener = opener
        self.opened: dict[str, Side] = {}

    def at(self, location: Location) -> Side:
        """The store that holds this location."""
        scheme = location.scheme
        if scheme not in self.opened:
            kind = next((kind for kind in KINDS if kind.scheme == scheme), None) or _unknown(location)
            self.opened[scheme] = self._opener(_backend(kind), self._spec)
        return self.opened[scheme]

    async def aclose(self) -> None:
        """Close all, even if one of them fails to."""
        async with AsyncExitStack() as stack:
            for store in self.opened.values():
                stack.push_async_callback(store.aclose)
            self.opened = {}


def _unknown(location: Location) -> NoReturn:
    known = ", ".join(f"{kind.scheme}://" for kind in KINDS)
    raise SettingsError(f"{location.raw}: no store for the scheme {location.scheme}:// (supported: {known})")


class _RoutedStorage:
    def __init__(self, stores: _Open[Storage]) -> None:
        self._stores = stores

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(self._stores.at(root).list(root)) as batches:
            async for batch in batches:
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        return await self._stores.at(root).parts(root, wanted)

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(self._stores.at(part.root).list_part(part)) as batches:
            async for batch in batches:
                yield batch

    async def directories(self, root: Location) -> Sequence[str]:
        return await self._stores.at(root).directories(root)

    async def irregular(self, root: Location) -> Sequence[str]:
        return await self._stores.at(root).irregular(root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        return await self._stores.at(location).read(location, limit)

    async def stat(self, location: Location) -> StoredObject:
        return await self._stores.at(location).stat(location)

    async def now(self) -> datetime:
        """The earliest clock of the stores in use: an early clock judges files younger, which keeps them."""
        clocks = [await store.now() for store in self._stores.opened.values()]
        return min(clocks, default=datetime.now(UTC))

    async def aclose(self) -> None:
        await self._stores.aclose()


def _one_store(paths: Sequence[str]) -> Location | None:
    """A place in the store that all paths are in, if their spelling alone shows that there is one."""
    first = Location.parse(paths[0]) if paths else None
    if first is None:
        return None
    store = first.store
    return first if all(path.startswith(store) for path in paths) else None


class _RoutedDeleter:
    def __init__(self, stores: _Open[Deleter]) -> None:
        self._stores = stores

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """Each store gets its own paths; the answers come back in the order asked."""
        if one := _one_store(paths):
            return await self._stores.at(one).delete(paths, conditions)
        by_scheme: dict[str, list[int]] = {}
        places = [Location.parse(path) for path in paths]
        for index, place in enumerate(places):
            self._stores.at(place)  # an unknown scheme stops the batch before anything is deleted
            by_scheme.setdefault(place.scheme, []).append(index)
        answers: dict[int, Deleted] = {}
        for indexes in by_scheme.values():
            theirs = [paths[index] for index in indexes]
            fates = await self._stores.at(places[indexes[0]]).delete(theirs, conditions)
            answers.update(zip(indexes, fates, strict=True))
        return [answers[index] for index in range(len(paths))]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        return await self._stores.at(root).remove_empty_directories(root, directories)

    async def aclose(self) -> None:
        await self._stores.aclose()


class _RoutedWriter:
    def __init__(self, stores: _Open[Writer]) -> None:
        self._stores = stores

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        await self._stores.at(location).put(location, data, create_only=create_only)

    async def aclose(self) -> None:
        await self._stores.aclose()
