"""List one S3 prefix with many concurrent requests, page by page, in bounded memory.

How the work is divided:
- One plain request first; most tables end there.
- A prefix with more than a page is fanned out by its `/` children, as long as there are few of them.
- A long flat prefix is split while it is being listed: whenever a request could run beside it, it requests the
  keys after a point ahead of itself (StartAfter). If there are any, a new shard continues from that page, and
  the old shard ends where it meets that page.

Meeting the page, rather than comparing keys, is what keeps a split exact: it holds for every store whose
StartAfter answers the rest of its own order, even one that does not sort by key. Points ahead are guessed from
key order, so a store that is seen to break it is not split any further.

A part of a prefix that was divided before (see `shards`) is listed in the same way, between its two borders.

An error in any shard ends the whole listing with that error: a partial listing never looks complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from os.path import commonprefix

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep import aio
from lakesweep.model.errors import OutOfOrder, StorageError
from lakesweep.ports.storage import Part
from lakesweep.storage.s3.keys import midpoint
from lakesweep.storage.s3.list_parser import Page

FetchPage = Callable[..., Awaitable[Page]]
"""One ListObjectsV2 request with these parameters."""

_CHILDREN_PER_PLACE = 4
"""With more children than this per concurrent request, listing each of them costs more than it gains."""
_DEEPEST_FAN_OUT = 6
_PAGES_PER_SPLIT = 3
"""A split reads up to one page twice, so a shard must have returned this many pages before the next split."""


async def pages_of(fetch: FetchPage, address: str, **parameters: str) -> AsyncGenerator[Page, None]:
    """All pages of one plain listing, one request after the other."""
    page = await fetch(**parameters)
    yield page
    while (token := page.next_token) is not None:
        page = await fetch(**parameters, ContinuationToken=token)
        check_token(address, page, token)
        yield page


def check_token(address: str, page: Page, token: str) -> None:
    if page.next_token == token:
        raise StorageError(address, f"the store repeats its continuation token {token!r}")


def pages_between(fetch: FetchPage, address: str, one: str, other: str) -> AsyncGenerator[Page, None]:
    """All pages that may contain one of two keys. For two neighbouring keys it is one page of a few keys: the prefix is
    their common beginning, and the listing starts right before the first of them."""
    alike = commonprefix([one, other])  # noqa: RUF071 - character by character, as S3 does it
    return pages_of(fetch, address, Prefix=alike, StartAfter=min(one, other)[:-1])


async def named_directories(fetch: FetchPage, prefix: str, names: Sequence[str], *, sorts: bool) -> set[str]:
    """Those of the names below which there is any key, a directory marker included, with as few requests as possible.

    A page with a delimiter shows keys and directories in key order. It answers for every name up to its last entry, and
    the last page for all names behind its start. A table's directory rarely holds anything between two of these names,
    so one or two pages answer for all. A name that no page answers for, or a store that is seen to list in another
    order, costs one request for each name."""
    found: set[str] = set()
    waiting = sorted(set(names))
    while sorts and len(waiting) > 1:
        after = prefix + waiting[0]
        page = await fetch(Prefix=prefix, Delimiter="/", StartAfter=after)
        if not _is_in_order(page, after):
            break
        found |= {name for name in waiting if f"{prefix}{name}/" in page.prefixes}
        if page.next_token is None:
            return found
        last = max([*page.keys[-1:].to_pylist(), *page.prefixes[-1:]], default="")
        left = [name for name in waiting if f"{prefix}{name}/" > last]
        if left == waiting:
            break
        waiting = left
    for name in waiting:
        page = await fetch(Prefix=f"{prefix}{name}/")
        if len(page.keys) or page.next_token is not None:
            found.add(name)
    return found


def _is_in_order(page: Page, after: str) -> bool:
    """A store that ignores StartAfter begins before it."""
    first = [*page.keys[:1].to_pylist(), *page.prefixes[:1]]
    ordered = all(one < other for one, other in zip(page.prefixes, page.prefixes[1:], strict=False))
    return ordered and page.is_ascending() and all(one > after for one in first)


class _Shard:
    """A flat listing in progress. Its rows end where `until`, its successor's first page, begins."""

    def __init__(
        self,
        prefix: str,
        *,
        bound: str | None = None,
        until: pa.StringArray | None = None,
        limit: str | None = None,
        last_key: str = "",
    ) -> None:
        self.prefix = prefix
        self.bound = bound
        """No key of this shard is known to lie beyond this; only a hint for the next split."""
        self.until = until
        self.limit = limit
        """A key beyond this one shows that the border of the part was missed."""
        self.last_key = last_key
        self.pages = 0
        """Pages since its beginning or its last split."""

    def cut(self, page: Page) -> tuple[Page, bool]:
        """The page up to the beginning of the successor, and whether that was reached."""
        if self.until is None:
            return page, False
        met = pc.index(pc.is_in(page.keys, self.until), True).as_py()
        return (page, False) if met < 0 else (page.head(met), True)


class Listing:
    """One listing of one prefix. `pages()` may be called once."""

    def __init__(self, fetch: FetchPage, address: str, part: Part, *, concurrency: int, may_split: bool) -> None:
        self._fetch = fetch
        self._address = address
        self._part = part
        self._concurrency = concurrency
        self._may_split = may_split
        self._open = 0
        """Shards that run or wait for a slot."""
        self._places = asyncio.Semaphore(concurrency)
        self._room = asyncio.Semaphore(concurrency)
        """Pages that may be queued for the consumer."""
        self._ready: asyncio.Queue[Page | None] = asyncio.Queue()
        self._tasks: asyncio.TaskGroup
        self.splits = 0

    async def pages(self) -> AsyncGenerator[Page, None]:
        """Pages as they arrive, in no order. The shards wait if the consumer is slow."""
        producer = asyncio.create_task(self._produce(), name=f"list {self._address}")
        producer.add_done_callback(lambda _: self._ready.put_nowait(None))
        try:
            while (page := await self._ready.get()) is not None:
                self._room.release()
                yield page
            await producer
        finally:
            producer.cancel()
            await asyncio.wait({producer})

    async def _produce(self) -> None:
        async with aio.task_group() as self._tasks:
            self._begin(self._part)

    def _begin(self, part: Part) -> None:
        if part.flat:
            self._spawn(self._level, part.prefix)
        elif part.first or part.until:
            self.splits = 1  # set when the prefix was divided: from here on key order matters
            self._spawn(self._range, part)
        else:
            self._spawn(self._walk, part.prefix, 0)

    def _spawn(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        self._open += 1
        self._tasks.create_task(self._in_place(work, *arguments), name=f"list shard of {self._address}")

    async def _in_place(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        try:
            async with self._places:
                await work(*arguments)
        finally:
            self._open -= 1

    @property
    def _idle(self) -> bool:
        """Could another request run now?"""
        return self._open < self._concurrency

    async def _put(self, page: Page) -> None:
        if len(page.keys):
            await self._room.acquire()
            self._ready.put_nowait(page)

    async def _walk(self, prefix: str, depth: int) -> None:
        """List a prefix: in one page, by its children, or as one flat shard."""
        page = await self._fetch(Prefix=prefix)
        if page.next_token and depth < _DEEPEST_FAN_OUT and self._idle:
            level = await self._fetch(Prefix=prefix, Delimiter="/")
            if not level.next_token and 0 < len(level.prefixes) <= _CHILDREN_PER_PLACE * self._concurrency:
                # The page that was read is dropped: its keys come again with the children.
                await self._put(level)
                for child in level.prefixes:
                    self._spawn(self._walk, child, depth + 1)
                return
        await self._flat(_Shard(prefix), page)

    async def _level(self, prefix: str) -> None:
        """List what is directly there and nothing deeper."""
        async with aclosing(pages_of(self._fetch, self._address, Prefix=prefix, Delimiter="/")) as pages:
            async for page in pages:
                await self._put(page)

    async def _range(self, part: Part) -> None:
        page = await self._fetch(Prefix=part.prefix, **({} if part.after is None else {"StartAfter": part.after}))
        if part.first:
            met = pc.index(pc.is_in(page.keys, pa.array(part.first, pa.string())), True).as_py()
            if met < 0:
                raise OutOfOrder(self._address, "the boundary between two listing shards has disappeared")
            page = page.tail(met)
        until = pa.array(part.until, pa.string()) if part.until else None
        bound, limit = (part.until[0], part.until[-1]) if part.until else (None, None)
        shard = _Shard(part.prefix, bound=bound, until=until, limit=limit, last_key=part.after or "")
        await self._flat(shard, page)

    async def _flat(self, shard: _Shard, page: Page) -> None:
        """List from a page to the end of the shard, and split off what lies ahead while there is room."""
        while True:
            page, met = shard.cut(page)
            self._follow(shard, page)
            await self._put(page)
            if met or page.next_token is None:
                return
            decided = self._split(shard)
            token = page.next_token
            page = await self._fetch(Prefix=shard.prefix, ContinuationToken=token)
            check_token(self._address, page, token)
            await decided.wait()  # before that it is unknown how much of the page belongs to this shard

    def _follow(self, shard: _Shard, page: Page) -> None:
        """Remember how far the shard has come, and whether the store keeps key order."""
        if not len(page.keys):
            return
        if shard.limit is not None and page.keys[-1].as_py() > shard.limit:
            raise OutOfOrder(self._address, "the boundary between two listing shards was not reached")
        shard.pages += 1
        in_order = shard.last_key < page.keys[0].as_py() and page.is_ascending()
        shard.last_key = page.keys[-1].as_py()
        if in_order:
            return
        self._may_split = False
        if self.splits:
            raise OutOfOrder(
                self._address,
                "the store does not list in key order, so listing shards may overlap: "
                "set storage.s3.listing_concurrency = 1",
            )

    def _split(self, shard: _Shard) -> asyncio.Event:
        """Start a look ahead if there is room for it. The event is set once its result is known."""
        decided = asyncio.Event()
        wanted = self._may_split and self._idle and shard.pages >= min(_PAGES_PER_SPLIT, self.splits)
        point = midpoint(shard.last_key, shard.bound, shard.prefix) if wanted else None
        if point is None:
            decided.set()
        else:
            self._spawn(self._branch, shard, point, decided)
        return decided

    async def _branch(self, shard: _Shard, point: str, decided: asyncio.Event) -> None:
        """Look at the keys after the point; if any belong to no other shard, become their shard."""
        page = await self._fetch(Prefix=shard.prefix, StartAfter=point)
        if len(page.keys) and page.keys[0].as_py() <= point:
            self._may_split = False  # another order, or a store that ignores StartAfter and started from the beginning
            decided.set()
            return
        mine, _ = shard.cut(page)
        if not len(mine.keys):
            shard.bound = point
            decided.set()
            return
        ahead = _Shard(shard.prefix, bound=shard.bound, until=shard.until, limit=shard.limit)
        shard.bound, shard.until, shard.pages = point, page.keys, 0
        self.splits += 1
        decided.set()
        await self._flat(ahead, page)
