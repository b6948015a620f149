"""The product's ports on the simulated world. Before each effect, and between each effect and its answer, the world's
adversary has its say: see `World.before` and `World.after`.

A process that was killed gets no further: whatever it calls afterwards raises Killed, also from its clean-up code.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.sim.world import START, Call, Fault, Killed, Stored, World

from lakesweep.model.errors import (
    AlreadyThere,
    Denied,
    NotFound,
    SettingsError,
    StateError,
    StorageError,
    TooLarge,
    Unavailable,
)
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.deleter import ANOTHER_OBJECT, Conditions, Deleted, DeleteStatus, not_sent
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.storage.s3.errors import Throttled

SCHEMES = ("s3", "memory")
_TIME = LISTING_SCHEMA.field("modified_at").type


@dataclass
class Process:
    """One running process of the product: its name, whether it lives, and how wrong its clock is."""

    world: World
    name: str = "lakesweep"
    alive: bool = True
    clock_error: timedelta = timedelta(0)
    drift: float = 0.0
    """How much faster its clock goes than the world's."""
    page_rows: int = 1000
    """Objects in one page of a listing."""
    request_keys: int = 1000
    """Objects in one delete request."""
    deleted: list[str] = field(default_factory=list)
    """What really went by its requests."""
    took: dict[str, Stored] = field(default_factory=dict)
    """The same with what each of them was."""
    lost_answers: int = 0
    """Deletes that had their effect and were answered as failed."""
    last_words: int = 0
    """Requests between their last question and their effect: see `SimDeleter`."""

    def now(self) -> datetime:
        """The Clock port."""
        now = self.world.now + self.clock_error
        return now + (self.world.now - START) * self.drift if self.drift else now

    async def enter(self, port: str, operation: str, target: str = "") -> Call:
        """Before the effect."""
        if not self.alive:
            raise Killed(self.name)
        world = self.world
        world.calls += 1
        call = Call(self.name, port, operation, target, world.calls)
        world.last, world.call = world.call, call
        waiting = world.adversary.before(call)
        if waiting is not None:
            await waiting
        if not self.alive:
            raise Killed(self.name)
        return call

    async def leave(self, call: Call, *answer: object) -> None:
        """Between the effect and the answer. The words of the answer are put together only if somebody reads them."""
        world = self.world
        world.effected = call.number
        if world.tracing:
            world.say(call.process, str(call), " ".join(map(str, answer)))
        waiting = world.adversary.after(call)
        if waiting is not None:
            await waiting
        if not self.alive:
            raise Killed(self.name)


def _storage_error(fault: Fault, address: str) -> StorageError:
    if fault.kind == "denied":
        return Denied(address, "403")
    return (Throttled if fault.kind == "throttled" else Unavailable)(address, f"injected: {fault.kind}")


def _check_scheme(location: Location) -> None:
    if location.scheme not in SCHEMES:
        supported = "supported: file://, s3://, memory://"
        raise SettingsError(f"{location}: {location.scheme}:// is not supported; {supported}")


class SimStorage:
    """The Storage port."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All objects below `root` in key order, page by page: each page shows the store as it is at its time."""
        _check_scheme(root)
        place = root.as_directory().raw
        after, page = "", None
        while True:
            target = root.raw if not after else f"{root.raw} after {after}"
            try:
                call = await self._process.enter("storage", "list", target)
            except Fault as fault:
                if fault.kind == "short":
                    page, after = self._short(place, after)
                    if page is not None:
                        yield page
                    continue
                if fault.kind != "repeat" or page is None:
                    raise _storage_error(fault, target) from fault
                self._world.seen["a page of a listing came twice"] += 1
                yield page
                continue
            page, more, last = self._page(place, after)
            rows = 0 if page is None else page.num_rows
            await self._leave(call, rows, "objects, more to come" if more else "objects")
            if page is not None:
                yield page
                after = last
            if not more:
                return

    def _short(self, place: str, after: str) -> tuple[pa.RecordBatch | None, str]:
        """A page that ends early, with a token for the rest, as stores may give it; it may have no object at all. One
        that claims to be the last is no such page: that store would lie."""
        page, _, _ = self._page(place, after)
        rows = 0 if page is None else page.num_rows // 2
        self._world.seen["a page of a listing ended early"] += 1
        self._world.say(self._process.name, f"storage.list {place} after {after}", f"{rows} objects, more to come")
        if page is None or not rows:
            return None, after
        page = page.slice(0, rows)
        return page, page.column("path")[-1].as_py()

    def _page(self, place: str, after: str) -> tuple[pa.RecordBatch | None, bool, str]:
        """The next page, whether more come, and its last key."""
        size = self._process.page_rows
        known = self._world.pages.get((place, after, size))
        if known is not None:
            return known  # type: ignore[no-any-return]
        page: list[tuple[str, Stored]] = []
        more = False
        for key, stored in self._world.below(place, after):
            if key[-1] == "/" or key in self._world.unlisted:
                continue
            if len(page) == size:
                more = True
                break
            page.append((key, stored))
        found = (_batch(page), more, page[-1][0]) if page else (None, False, after)
        self._world.pages[place, after, size] = found
        return found

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Ranges of keys with about as many objects each."""
        prefix = root.as_directory().path
        keys = [key for key, _ in self._world.below(root.as_directory().raw)]
        cuts = sorted({keys[at * len(keys) // wanted] for at in range(1, wanted)}) if keys else []
        return [
            Part(root=root, prefix=prefix, first=() if begin is None else (begin,), until=() if end is None else (end,))
            for begin, end in pairwise([None, *cuts, None])
        ]

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """Those of the root's objects that are in the range."""
        async with aclosing(self.list(part.root)) as pages:
            async for page in pages:
                paths = page.column("path")
                inside = pa.repeat(pa.scalar(True), len(paths))
                inside = pc.and_(inside, pc.greater_equal(paths, part.first[0])) if part.first else inside
                inside = pc.and_(inside, pc.less(paths, part.until[0])) if part.until else inside
                if pc.any(inside).as_py():
                    yield page.filter(inside)

    async def directories(self, root: Location) -> Sequence[str]:
        """What keys share up to the next slash."""
        call = await self._enter("directories", root.raw)
        place = root.as_directory().raw
        below = (key[len(place) :].partition("/") for key, _ in self._world.below(place))
        found = sorted({name for name, slash, _ in below if name and slash})
        await self._leave(call, found)
        return found

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        """As the store lists them."""
        return [name for name in await self.directories(root) if name in names]

    async def irregular(self, root: Location) -> Sequence[str]:
        """An object store has no links."""
        return ()

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object."""
        _check_scheme(location)
        address = location.raw
        try:
            call = await self._process.enter("storage", "read", address)
        except Fault as fault:
            if fault.kind != "cut" or address not in self._world.objects:
                raise _storage_error(fault, address) from fault
            return self._cut(address)
        stored = self._world.objects.get(address)
        await (self._leave(call, "not there") if stored is None else self._leave(call, len(stored.data), "bytes"))
        if stored is None:
            raise NotFound(address, "no such object")
        if limit is not None and len(stored.data) > limit:
            raise TooLarge(address, limit)
        return stored.data

    async def stat(self, location: Location) -> StoredObject:
        """Size, time and etag."""
        _check_scheme(location)
        call = await self._enter("stat", location.raw)
        stored = self._world.objects.get(location.raw)
        await self._leave(call, "not there" if stored is None else "there")
        if stored is None:
            raise NotFound(location.raw, "no such object")
        modified_at = None if stored.modified_ms is None else stored.modified_at
        return StoredObject(location=location, size_bytes=len(stored.data), modified_at=modified_at, etag=stored.etag)

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        """Two objects at one moment."""
        _check_scheme(one)
        call = await self._enter("stat_together", one.raw)
        seen = [self._world.objects.get(place.raw) for place in (one, other)]
        ours, others = ("not there" if stored is None else "there" for stored in seen)
        await self._leave(call, ours, "and", others)
        first, second = (
            stored
            and StoredObject(
                location=place, size_bytes=len(stored.data), modified_at=stored.modified_at, etag=stored.etag
            )
            for place, stored in zip((one, other), seen, strict=True)
        )
        return first, second

    async def now(self) -> datetime:
        """The store's own clock, which is right."""
        call = await self._enter("now", "")
        now = self._world.now
        await self._leave(call)
        return now

    async def aclose(self) -> None:
        """Nothing to give back."""

    def _cut(self, address: str) -> bytes:
        """The beginning of an object, often up to where a block or a line ends, so that it looks whole."""
        data = self._world.objects[address].data
        ends = [found.end() for found in re.finditer(re.escape(data[-16:]), data[:-16])]
        ends += [found.end() for found in re.finditer(b"\n", data[:-1])]
        cut = data[: self._world.random.choice(ends or [len(data) // 2])]
        self._world.say(self._process.name, f"storage.read {address}", f"only {len(cut)} of {len(data)} bytes")
        return cut

    async def _enter(self, operation: str, target: str) -> Call:
        try:
            return await self._process.enter("storage", operation, target)
        except Fault as fault:
            raise _storage_error(fault, target) from fault

    async def _leave(self, call: Call, *answer: object) -> None:
        try:
            await self._process.leave(call, *answer)
        except Fault as fault:
            raise _storage_error(fault, call.target) from fault


class SimWriter:
    """The Writer port."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write, or AlreadyThere."""
        _check_scheme(location)
        world, address = self._process.world, location.raw
        try:
            call = await self._process.enter("storage", "put", address)
            taken = create_only and address in world.objects
            if not taken:
                world.put(address, bytes(data), self._process.name)
                world.changed(address, self._process.name)
            await self._process.leave(call, *(("taken",) if taken else (len(data), "bytes")))
        except Fault as fault:
            raise _storage_error(fault, address) from fault
        if taken:
            raise AlreadyThere(address, "the object exists")

    async def aclose(self) -> None:
        """Nothing to give back."""


class SimDeleter:
    """The Deleter port, in requests of `request_keys`.

    Each request asks its conditions as the last thing. What happens between that question and the effect cannot be
    helped by anybody, so nothing but faults does: `Process.last_words` tells the adversary that it is such a moment."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """One answer per path, in the order asked."""
        for path in paths:
            _check_scheme(Location.parse(path))
        answers: list[Deleted] = []
        size = self._process.request_keys
        for start in range(0, len(paths), size):
            answers += await self._request(paths[start : start + size], conditions)
        return answers

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """There are no directories here."""
        return 0

    async def aclose(self) -> None:
        """Nothing to give back."""

    async def _request(self, paths: Sequence[str], conditions: Conditions | None) -> list[Deleted]:
        process = self._process
        target = f"{len(paths)} objects from {paths[0]}"
        process.world.asked.update(paths)
        try:
            call = await process.enter("storage", "delete", target)
        except Fault as fault:
            if fault.kind != "partial":
                return [Deleted(path=path, status=DeleteStatus.FAILED, why=fault.kind) for path in paths]
            call = Call(process.name, "storage", "delete", target)
            half = self._now(paths[: len(paths) // 2], await self._kept(paths, conditions), conditions)
            return [
                *half,
                *(Deleted(path=path, status=DeleteStatus.FAILED, why="partial") for path in paths[len(half) :]),
            ]
        answers = self._now(paths, await self._kept(paths, conditions), conditions)
        try:
            await process.leave(call, _Statuses(answers))
        except Fault as fault:
            process.lost_answers += sum(one.status is DeleteStatus.DELETED for one in answers)
            gone = (DeleteStatus.DELETED, DeleteStatus.ALREADY_GONE)
            return [
                Deleted(path=one.path, status=DeleteStatus.FAILED, why=fault.kind) if one.status in gone else one
                for one in answers
            ]
        return answers

    async def _kept(self, paths: Sequence[str], conditions: Conditions | None) -> dict[str, Deleted]:
        if conditions is None:
            return {}
        self._process.last_words += 1
        try:
            return dict(await conditions.withheld(paths))
        finally:
            self._process.last_words -= 1

    def _now(self, paths: Sequence[str], kept: dict[str, Deleted], conditions: Conditions | None) -> list[Deleted]:
        if not self._process.alive:
            raise Killed(self._process.name)
        if conditions is not None and (why := conditions.ended()):
            return [kept.get(path) or not_sent(path, why) for path in paths]
        return [kept.get(path) or self._delete(path, conditions) for path in paths]

    def _delete(self, path: str, conditions: Conditions | None) -> Deleted:
        world = self._process.world
        judged = conditions.etags.get(path) if conditions else None
        stored = world.objects.get(path)
        if stored is None:
            return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
        if judged is not None and stored.etag != judged:
            return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
        world.remove(path)
        self._process.deleted.append(path)
        self._process.took[path] = stored
        world.changed(path, self._process.name)
        return Deleted(path=path, status=DeleteStatus.DELETED)


class SimState:
    """Any StateStore, with the adversary around each of its calls."""

    def __init__(self, inner: Any, process: Process) -> None:
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if not callable(member) or name == "aclose":
            return member
        process = self._process

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                tracing = process.world.tracing
                entered = await process.enter("state", name, _words((*args, *kwargs.values())) if tracing else "")
                answer = await member(*args, **kwargs)
                await process.leave(entered, _words((answer,)) if tracing else "")
            except Fault as fault:
                raise StateError(f"injected: {fault.kind}") from fault
            return answer

        self.__dict__[name] = call
        return call


_MOST_WORDS = 60


def _words(those: Sequence[Any]) -> str:
    """What is asked of a state store, or what it answers, in a few words: texts and numbers as they are, a record by
    what names it, of several how many they are."""
    found = []
    for one in those:
        if isinstance(one, list | tuple | dict | set | frozenset):
            found.append(f"{len(one)} of them")
        elif one is not None:
            name = one if isinstance(one, str | int | float | datetime | timedelta) else _name(one)
            text = " ".join(str(name).split())
            found.append(text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}…")
    return ", ".join(found)


def _name(record: Any) -> object:
    names = (getattr(record, name, None) for name in ("id", "run_id", "table", "token", "head", "digest"))
    found = next((name for name in names if name is not None), type(record).__name__)
    return getattr(found, "label", found)


@dataclass(frozen=True, slots=True)
class _Statuses:
    """What became of each file, for the trace."""

    answers: Sequence[Deleted]

    def __str__(self) -> str:
        return ", ".join(f"{Location.parse(one.path).name} {one.status}" for one in self.answers)


def _batch(page: Sequence[tuple[str, Stored]]) -> pa.RecordBatch:
    paths, objects = zip(*page, strict=True)
    times = [one.modified_ms for one in objects]  # None: the store does not say
    columns = [
        _texts(paths),
        _numbers([len(one.data) for one in objects], pa.int64()),
        pa.array(times, pa.int64()).view(_TIME) if None in times else _numbers(times, _TIME),
        _texts([one.etag for one in objects]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)


def _texts(those: Sequence[str]) -> pa.Array:
    """As `pa.array` makes them, which takes longer for a few."""
    encoded = [one.encode() for one in those]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))], null_count=0
    )


def _numbers(those: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(those), [None, pa.py_buffer(array("q", those))], null_count=0)
