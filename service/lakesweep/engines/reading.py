"""The reference phase of the in-process engine: everything that names files, ready for the join.

What metadata names directly and what has to be decoded is spilled with its full addresses; cached sources are stood in
for by their fingerprints where that is enough (see `digests`). When something turns out not to be stored, the
sources concerned are read in full after all, so that it has a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import PLACED_SCHEMA, Role
from lakesweep.cleanup.ports import OrphanJob, References, ReferenceSource
from lakesweep.engines import steps
from lakesweep.engines.cache import DigestCache
from lakesweep.engines.detection import Detection
from lakesweep.engines.digests import STAND_IN_SCHEMA, Digests
from lakesweep.engines.sources import SourceReader, Use
from lakesweep.engines.spill import Spill
from lakesweep.model.errors import Indeterminate

T = TypeVar("T")

_LOOKED_UP_AT_ONCE = 256
"""Digests read in one go: a few milliseconds."""


@dataclass(kw_only=True)
class ReferencePhase:
    """Reads the references of one plan into the files of its detection."""

    job: OrphanJob
    references: References
    work: Detection
    reader: SourceReader
    cache: DigestCache | None
    threads: Executor
    skipped: int = field(init=False, default=0)
    """How much of the expired side had to be left out."""
    _place: Use[pa.RecordBatch] = field(init=False)

    def __post_init__(self) -> None:
        self._place = steps.placing(self.job.layout.match_by, self.job.roots)

    async def read(self) -> None:
        """Everything, in full or as fingerprints."""
        async with (
            Spill(self.work.refs, PLACED_SCHEMA, self.threads) as spill,
            Spill(self.work.stand_ins, STAND_IN_SCHEMA, self.threads) as standing,
        ):
            released = await self._named_directly(spill)
            if self.cache is None:
                await self._sources(spill, self.references.sources, self._place)
                return
            digests = await self._in_thread(partial(self._digests, self.cache, released))
            rest = await self._stand_in(standing, digests)
            await self._sources(spill, rest, partial(self._place_and_remember, digests))
            await self._in_thread(digests.flush)

    async def recall(self, numbers: Sequence[int]) -> None:
        """Read these sources in full, although their fingerprints were enough up to now."""
        async with Spill(self.work.recalled, PLACED_SCHEMA, self.threads) as spill:
            await self._sources(spill, [self.references.sources[number] for number in numbers], self._place)

    async def _named_directly(self, spill: Spill) -> pa.Array:
        """What metadata names. Returns the match keys of what it releases."""
        released = [pa.array([], pa.string())]
        match_by, roots = self.job.layout.match_by, self.job.roots
        for role, paths, tolerated in steps.named_directly(self.references):
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

    async def _stand_in(self, spill: Spill, digests: Digests) -> list[ReferenceSource]:
        """Fingerprints of the sources that have them. Returns the others."""
        numbered = list(enumerate(self.references.sources))
        rest: list[ReferenceSource] = []
        for first in range(0, len(numbered), _LOOKED_UP_AT_ONCE):
            chunk = numbered[first : first + _LOOKED_UP_AT_ONCE]
            rows, others = await self._in_thread(partial(digests.stand_ins, chunk))
            await spill.add(rows)
            rest += others
        return rest

    async def _sources(self, spill: Spill, sources: Sequence[ReferenceSource], use: Use[pa.RecordBatch]) -> None:
        async with aclosing(self.reader.read(sources, use)) as found:
            async for _, placed in found:
                if placed is None:
                    self.skipped += 1
                else:
                    await spill.add(placed)

    def _place_and_remember(self, digests: Digests, source: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
        placed = self._place(source, batch)
        digests.remember(source, placed)
        return placed

    def _digests(self, cache: DigestCache, released: pa.Array) -> Digests:
        return Digests(cache, match_by=self.job.layout.match_by, roots=self.job.roots, released=released)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)
