"""Open stores for every supported address: by scheme, on first use, wrapped in a fixed order.

Storage: confine( retry( limit( deadline( store )))). Writer: confine( retry( store )). A deleter repeats and limits
itself, key by key, and has its own gate. Stores count their own requests, see `telemetry.requests`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib import import_module
from typing import Generic, Protocol, TypeVar, cast

from lakesweep.model.errors import Refused, SettingsError
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.store_rules import LeftoverPage, StoreRules
from lakesweep.ports.deleter import Conditions, Deleted, Deleter, Marker, Move, Mover
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.retry import Backoff
from lakesweep.storage import wrappers
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.kinds import KINDS
from lakesweep.storage.read_cache import CachedReads, ReadCache
from lakesweep.storage.spec import StorageSpec
from lakesweep.telemetry import activity


class Backend(Protocol):
    """How to open each port of one store: the functions of the module `StoreKind.backend`."""

    def storage(self, spec: StorageSpec) -> Storage: ...
    def deleter(self, spec: StorageSpec, gate: Gate | None) -> Deleter: ...
    def mover(self, spec: StorageSpec, gate: Gate | None) -> Mover: ...
    def rules(self, spec: StorageSpec) -> StoreRulesReader: ...
    def writer(self, spec: StorageSpec) -> Writer: ...
    async def credentials(self, spec: StorageSpec) -> str | None: ...


def _backend(place: Location) -> Backend:
    """Import the module on first use: a store's client may take a third of a second to import."""
    kind = next((kind for kind in KINDS if kind.scheme == place.scheme), None)
    if kind is None:
        known = ", ".join(f"{kind.scheme}://" for kind in KINDS)
        raise SettingsError(f"{place.raw}: no store for the scheme {place.scheme}:// (supported: {known})")
    return cast("Backend", import_module(kind.backend))


def open_storage(spec: StorageSpec, cache: ReadCache | None = None) -> Storage:
    router = _RoutedStorage(spec, lambda store, spec: store.storage(spec))
    timed = wrappers.DeadlineStorage(router, spec.call_timeout_seconds)
    retrying = wrappers.RetryingStorage(wrappers.LimitedStorage(timed, spec.max_in_flight), Backoff(spec.attempts))
    return wrappers.ConfinedStorage(CachedReads(retrying, cache), spec.confine, spec.max_bytes)


def open_deleter(spec: StorageSpec, gate: Gate | None = None) -> Deleter:
    """A deleter for every supported address. Nothing is connected yet. Deleters with one gate share their limits on
    S3."""
    return _RoutedDeleter(spec, lambda store, spec: store.deleter(spec, gate))


def open_mover(spec: StorageSpec, gate: Gate | None = None) -> Mover:
    return _RoutedMover(spec, lambda store, spec: store.mover(spec, gate))


def open_writer(spec: StorageSpec) -> Writer:
    router = _RoutedWriter(spec, lambda store, spec: store.writer(spec))
    writer = wrappers.RetryingWriter(router, Backoff(spec.attempts))
    return wrappers.ConfinedWriter(writer, spec.confine) if spec.confine else writer


def open_rules(spec: StorageSpec) -> StoreRulesReader:
    return _RoutedRules(spec, lambda store, spec: store.rules(spec))


async def credentials(spec: StorageSpec, place: Location) -> str | None:
    """Where the credentials for a place come from, as text; None if the store needs none."""
    return await _backend(place).credentials(spec)


class _Closes(Protocol):
    async def aclose(self) -> None: ...


Side = TypeVar("Side", bound=_Closes)


class _Open(Generic[Side]):
    """One port of every store, opened when its scheme is first used."""

    def __init__(self, spec: StorageSpec, opener: Callable[[Backend, StorageSpec], Side]) -> None:
        self._spec = spec
        self._opener = opener
        self._opened: dict[str, Side] = {}

    def _at(self, place: Location) -> Side:
        if place.scheme not in self._opened:
            self._opened[place.scheme] = self._opener(_backend(place), self._spec)
        return self._opened[place.scheme]

    async def aclose(self) -> None:
        """Close all of them, even if closing one fails."""
        async with AsyncExitStack() as stack:
            for store in self._opened.values():
                stack.push_async_callback(store.aclose)
            self._opened = {}


class _RoutedStorage(_Open[Storage], wrappers.PassingStorage):
    async def now(self) -> datetime:
        """The earliest clock of the stores in use: an early clock judges files younger, which keeps them."""
        clocks = [await store.now() for store in self._opened.values()]
        return min(clocks, default=datetime.now(UTC))


def _one_store(paths: Sequence[str]) -> Location | None:
    """A location in the store that contains all paths, if their spelling alone proves that there is one."""
    first = Location.parse(paths[0]) if paths else None
    if first is None:
        return None
    store = first.store
    return first if all(path.startswith(store) for path in paths) else None


async def _answered(call: Awaitable[list[Deleted]]) -> list[Deleted]:
    """Record activity for the liveness probe: a long sweep does little else than wait for such answers."""
    answers = await call
    activity.touch()
    return answers


class _RoutedDeleter(_Open[Deleter]):
    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """Each store gets its own paths; results come back in the original order."""
        if one := _one_store(paths):
            return await _answered(self._at(one).delete(paths, conditions))
        by_scheme: dict[str, list[int]] = {}
        places = [Location.parse(path) for path in paths]
        for index, place in enumerate(places):
            self._at(place)  # an unknown scheme fails the batch before anything is deleted
            by_scheme.setdefault(place.scheme, []).append(index)
        answers: dict[int, Deleted] = {}
        for indexes in by_scheme.values():
            theirs = [paths[index] for index in indexes]
            results = await _answered(self._at(places[indexes[0]]).delete(theirs, conditions))
            answers.update(zip(indexes, results, strict=True))
        return [answers[index] for index in range(len(paths))]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        return await self._at(root).remove_empty_directories(root, directories)


class _RoutedRules(_Open[StoreRulesReader]):
    async def rules(self, place: Location) -> StoreRules:
        return await self._at(place).rules(place)

    def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:
        return self._at(place).leftovers(place)


class _RoutedMover(_Open[Mover]):
    """A batch is in one store: a table's roots and its trash are in the store of the tenant's root."""

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        return await _answered(self._of(moves).to_trash(moves, conditions)) if moves else []

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        return await _answered(self._of(moves).back(moves, conditions)) if moves else []

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:
        if not markers:
            return []
        return await _answered(self._one([marker.path for marker in markers]).uncover(markers, conditions))

    def _of(self, moves: Sequence[Move]) -> Mover:
        return self._one([address for move in moves for address in (move.source, move.target)])

    def _one(self, addresses: Sequence[str]) -> Mover:
        places = [Location.parse(address) for address in addresses]
        if len({place.scheme for place in places}) > 1:
            raise Refused(
                RefusalCode.TRASH_PLACE, "files are moved inside one store only; set orphan_cleanup.trash accordingly"
            )
        return self._at(places[0])


class _RoutedWriter(_Open[Writer]):
    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        await self._at(location).put(location, data, create_only=create_only)
