"""What every format asks of storage when it reads metadata: listings, single objects, errors that stop a table. A
listing holds regular files. A link in a directory of commits or snapshots is read by every writer and reader, and is
not in it: the newest state would be invisible to us, and its files would look like orphans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TypeVar

import pyarrow as pa

from lakesweep.aio import gather_bounded
from lakesweep.model.errors import Indeterminate, NotFound, StorageError, Unreadable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import KnownContents, Storage, stat_or_none

T = TypeVar("T")


async def collect(storage: Storage, place: Location, rows: Callable[[pa.RecordBatch], Iterable[T]]) -> list[T]:
    """What `rows` makes of every page of a listing."""
    found: list[T] = []
    async with aclosing(storage.list(place)) as pages:
        async for page in pages:
            found += rows(page)
    return found


def paths(suffixes: tuple[str, ...]) -> Callable[[pa.RecordBatch], list[str]]:
    """For `collect`: the paths that end so."""
    return lambda page: [path for path in page.column("path").to_pylist() if path.endswith(suffixes)]


async def any_page(storage: Storage, place: Location, holds: Callable[[pa.RecordBatch], bool] = lambda _: True) -> bool:
    """Does this hold for a page of a listing? Lists no further than the first such page."""
    async with aclosing(storage.list(place)) as pages:
        async for page in pages:
            if holds(page):
                return True
    return False


async def is_there(storage: Storage, place: Location) -> bool:
    """Is there such an object, listed or not?"""
    return await stat_or_none(storage, place) is not None


async def read_listed(storage: Storage, contents: KnownContents | None, stored: StoredObject) -> bytes:
    """An object that was just listed like this. It is not fetched if what was read of it before is proven to be the
    same."""
    known = await contents.load(stored) if contents else None
    if known is not None:
        return known
    data = await storage.read(stored.location)
    if contents and len(data) == stored.size_bytes:
        await contents.store(stored, data)
    return data


async def those_that(holds: Callable[[T], Awaitable[bool]], items: Sequence[T]) -> list[T]:
    """The items for which an awaited answer is true, in order."""
    answers = await gather_bounded(items, holds)
    return [item for item, answer in zip(items, answers, strict=True) if answer]


async def read_or_none(storage: Storage, place: Location, trouble: str) -> bytes | None:
    """An object that may be gone: then None. A store that does not answer leaves the table Unreadable."""
    try:
        with must_answer(place.raw, trouble, may_be_missing=True):
            return await storage.read(place)
    except NotFound:
        return None


@contextmanager
def must_answer(address: str, trouble: str = "", *, may_be_missing: bool = False) -> Iterator[None]:
    """A store that fails says nothing about what must be kept, so the table is Unreadable. With `may_be_missing`
    NotFound passes through."""
    try:
        yield
    except StorageError as exc:
        if may_be_missing and isinstance(exc, NotFound):
            raise
        raise Unreadable(address, f"{trouble}{exc.why}") from exc


@contextmanager
def or_stop(address: str) -> Iterator[None]:
    """Like `must_answer`, for callers that try another object after an Unreadable one. An object that the store does
    not return may be whole, so nothing else is tried: raises Indeterminate. NotFound passes through."""
    try:
        yield
    except NotFound:
        raise
    except StorageError as exc:
        raise Indeterminate(f"cannot read {address}: {exc.why}") from exc


async def refuse_irregular(storage: Storage, *places: Location) -> None:
    """Raises Indeterminate if anything in one of these metadata directories is not a regular file."""
    for place in places:
        found = await storage.irregular(place)
        if found:
            raise Indeterminate(
                f"{found[0]} is a link or another kind of file that listings leave out (there are {len(found)} in "
                f"{place}), so the listing is incomplete: replace it with the real files"
            )
