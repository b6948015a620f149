"""Fetch and decode reference sources: cached ones first, the others with bounded concurrency and memory.

Failing to read a retained source raises Unreadable, since what it names must be kept. Failing to read one that
only expiring snapshots use yields None for it and shrinks the work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa
import structlog

from lakesweep.engines.common import naming
from lakesweep.engines.manifest_cache import FingerprintCache, cacheable
from lakesweep.model.errors import Indeterminate, StorageError, Unreadable
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.telemetry import requests

_log = structlog.get_logger(__name__)

T = TypeVar("T")
Use = Callable[[ReferenceSource, pa.RecordBatch], T]
"""A function that processes a decoded source, off the event loop."""
LookedUp = tuple[list[tuple[ReferenceSource, T | None]], list[ReferenceSource]]
"""Sources in the cache with their processed references, and sources that are not in it."""

_CACHE_CHUNK = 64
"""Sources looked up in one thread call: a hit costs less than the call."""
_CHUNKS_AHEAD = 2
_IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Source bytes being fetched or decoded at a time; a larger source is read alone."""
_UNKNOWN_SIZE = 8 * 1024 * 1024
"""The assumed size of a source without a recorded length: the usual target size of a manifest."""


@dataclass(frozen=True, kw_only=True)
class SourceReader:
    """Reads sources for one engine."""

    storage: Storage
    decoder: Callable[[FormatName], Decode]
    cache: FingerprintCache | None
    concurrency: int
    threads: Executor

    async def read(
        self, sources: Sequence[ReferenceSource], use: Use[T], *, keep: Callable[[T], bool] = lambda _: True
    ) -> AsyncGenerator[tuple[ReferenceSource, T | None]]:
        """Each source with the result of `use`, in no particular order; None for a skipped one. Fetched sources go into
        the cache if `keep` accepts the result."""
        waiting = deque(sources)
        if self.cache is not None:
            waiting.clear()
            async with aclosing(self._look_up_all(self.cache, sources, use)) as chunks:
                async for hits, misses in chunks:
                    waiting.extend(misses)
                    for hit in hits:
                        yield hit
        running: dict[asyncio.Task[T | None], ReferenceSource] = {}
        try:
            while waiting or running:
                self._start(waiting, running, partial(self._decode, use, keep))
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield running.pop(task), task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        """The rows of some sources that keep or free files, unchanged. Skipped sources are left out."""
        async with aclosing(self.read(sources, naming)) as found:
            async for source, batch in found:
                if batch is not None:
                    yield source, batch

    def _start(
        self,
        waiting: deque[ReferenceSource],
        running: dict[asyncio.Task[T | None], ReferenceSource],
        decode: Callable[[ReferenceSource, bytes], T | None],
    ) -> None:
        """Start as many reads as concurrency and memory allow, and at least one."""
        in_flight = sum(_weight(source) for source in running.values())
        while waiting and len(running) < self.concurrency:
            in_flight += _weight(waiting[0])
            if running and in_flight > _IN_FLIGHT_BYTES:
                return
            source = waiting.popleft()
            running[asyncio.create_task(self._fetch(source, decode), name=f"read {source.location}")] = source

    async def _fetch(self, source: ReferenceSource, decode: Callable[[ReferenceSource, bytes], T | None]) -> T | None:
        try:
            # If the number of entries is recorded too, a wrong length may be the writer's mistake: the decoder decides.
            most = source.size_bytes if source.entries is None else None
            with requests.watching() as reads:
                data = await self.storage.read(source.location, most)
        except StorageError as exc:
            _check_skippable(source, exc)
            return None
        if self.cache is not None and cacheable(source) and reads.so_far.get:
            requests.read_once(len(data))
        return await self._in_thread(decode, source, data)

    def _decode(self, use: Use[T], keep: Callable[[T], bool], source: ReferenceSource, data: bytes) -> T | None:
        try:
            batch = self.decoder(source.format)(source, data)
            made = use(source, batch)
        except Indeterminate as exc:
            _check_skippable(source, exc)
            return None
        if self.cache is not None and keep(made):
            self.cache.store(source, batch)
        return made

    async def _look_up_all(
        self, cache: FingerprintCache, sources: Sequence[ReferenceSource], use: Use[T]
    ) -> AsyncGenerator[LookedUp[T], None]:
        """All sources chunk by chunk, some chunks ahead of the consumer."""
        ahead: deque[asyncio.Future[LookedUp[T]]] = deque()
        try:
            for first in range(0, len(sources), _CACHE_CHUNK):
                chunk = sources[first : first + _CACHE_CHUNK]
                ahead.append(asyncio.ensure_future(self._in_thread(self._look_up, cache, chunk, use)))
                if len(ahead) > _CHUNKS_AHEAD:
                    yield await ahead.popleft()
            while ahead:
                yield await ahead.popleft()
        finally:
            for future in ahead:
                future.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    def _look_up(self, cache: FingerprintCache, sources: Sequence[ReferenceSource], use: Use[T]) -> LookedUp[T]:
        hits: list[tuple[ReferenceSource, T | None]] = []
        misses = []
        for source in sources:
            batch = cache.load(source)
            if batch is None:
                misses.append(source)
                continue
            try:
                hits.append((source, use(source, batch)))
            except Indeterminate as exc:
                _check_skippable(source, exc)
                hits.append((source, None))
        return hits, misses

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)


def _weight(source: ReferenceSource) -> int:
    return source.size_bytes if source.size_bytes is not None else _UNKNOWN_SIZE


def _check_skippable(source: ReferenceSource, error: StorageError | Indeterminate) -> None:
    """Raise if anything retained needs the source."""
    if source.retained:
        if isinstance(error, Unreadable) and error.address == source.location.raw:
            raise error
        raise Unreadable(source.location.raw, str(error)) from error
    _log.warning("expired_source_skipped", source=source.location.raw, why=str(error))
