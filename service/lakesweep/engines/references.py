"""The reference phase of the in-process engine: everything that names files, ready for the join.

What metadata names directly is spilled with its full addresses. For sources their fingerprints are used where that is
enough (see `manifest_fingerprints`), and a source whose fingerprints are in the cache is not read. When a live file
turns out to be missing, its sources are read completely after all, so that the plan can name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

import pyarrow as pa

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import PLACED_SCHEMA, Role
from lakesweep.engines import common
from lakesweep.engines.duckdb_plan import Detection
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.manifest_fingerprints import STAND_IN_SCHEMA, Ready, SourceFingerprints
from lakesweep.engines.scratch import Spill
from lakesweep.engines.sources import SourceReader, Use
from lakesweep.model.errors import EngineFailed, Indeterminate
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import References, ReferenceSource

T = TypeVar("T")


@dataclass(kw_only=True)
class ReferencePhase:
    """Reads the references of one plan into the files of its detection."""

    job: OrphanJob
    references: References
    work: Detection
    reader: SourceReader
    cache: FingerprintCache | None
    threads: Executor
    skipped: int = field(init=False, default=0)
    """The number of expired sources that could not be read."""
    _place: Use[pa.RecordBatch] = field(init=False)
    _fingerprints: SourceFingerprints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._place = common.placing(self.job.layout.match_by, self.job.roots)

    async def read(self) -> None:
        async with (
            Spill(self.work.refs, PLACED_SCHEMA, self.threads) as spill,
            Spill(self.work.stand_ins, STAND_IN_SCHEMA, self.threads) as standing,
        ):
            released = await self._named_directly(spill)
            match_by, roots = self.job.layout.match_by, self.job.roots
            new = partial(SourceFingerprints, self.cache, self.references.sources, match_by=match_by, roots=roots)
            self._fingerprints = fingerprints = await self._in_thread(partial(new, released=released))
            try:
                await self._stored(standing, fingerprints)
                await self._rest(spill, standing, fingerprints)
            finally:
                await self._in_thread(fingerprints.save)

    async def recall(self, numbers: Sequence[int]) -> None:
        """Read these sources completely, although their fingerprints were enough so far."""
        async with Spill(self.work.recalled, PLACED_SCHEMA, self.threads) as spill:
            sources = [self.references.sources[number] for number in numbers]
            async with aclosing(self.reader.read(sources, self._place)) as found:
                async for _, placed in found:
                    if placed is not None:  # always true: fingerprints stand in for retained sources only
                        await spill.add(placed)

    async def invalidate_and_fail(self) -> NoReturn:
        """The references read again do not match their fingerprints, so this plan cannot be trusted."""
        if self._fingerprints is not None:
            await self._in_thread(self._fingerprints.forget)
        raise EngineFailed(
            "a manifest was modified in place; its cache entry was dropped and the next run reads everything again"
        )

    async def _named_directly(self, spill: Spill) -> pa.Array:
        """Add what metadata names directly. Returns the match keys of what it releases."""
        released = [pa.array([], pa.string())]
        match_by, roots = self.job.layout.match_by, self.job.roots
        for role, paths, tolerated in common.named_directly(self.references):
            try:
                placed = await self._in_thread(partial(addresses.place, paths, role, match_by, roots, tolerated))
            except Indeterminate:
                if role is Role.NAMED:
                    raise
                self.skipped += 1
                continue
            await spill.add(placed)
            if role is Role.RELEASED:
                released.append(addresses.placed_keys(placed))
        return pa.concat_arrays(released)

    async def _stored(self, standing: Spill, fingerprints: SourceFingerprints) -> None:
        packs = fingerprints.stored()
        while (rows := await self._in_thread(partial(next, packs, None))) is not None:
            await standing.add(rows)

    async def _rest(self, spill: Spill, standing: Spill, fingerprints: SourceFingerprints) -> None:
        def use(source: ReferenceSource, batch: pa.RecordBatch) -> Ready:
            return fingerprints.add(source, self._place(source, batch))

        # References go into the cache only where fingerprints are not enough.
        sources = self.reader.read(fingerprints.rest(), use, keep=lambda ready: ready.in_full is not None)
        async with aclosing(sources) as found:
            async for _, ready in found:
                if ready is None:
                    self.skipped += 1
                    continue
                if ready.in_full is not None:
                    await spill.add(ready.in_full)
                await standing.add(ready.stand_ins)
        await standing.add(await self._in_thread(fingerprints.flush))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)
