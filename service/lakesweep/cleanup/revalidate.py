"""Check again, before each batch and each request, what is referenced now. Only what is new since the plan is read.

Sources are immutable, so one that was already read as retained needs no second look. One that was read only
for an expiring snapshot does: a concurrent tag or a lost commit may have kept that snapshot alive.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import Role
from lakesweep.cleanup.mark import unless_overtaken
from lakesweep.model.errors import CommitConflict, Refused, Unreadable
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.engine import Engine, Marked
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.table import DetectsOtherCommits, Table

_LOOKS = 8
"""A table that is committed to faster than its new references can be read is left to the next cycle."""


class Revalidator:
    """Callable: the match keys of everything referenced since the plan, and bare names where every object of that name
    is meant. Cheap while the head does not move.

    `planned` and `expiring` are what the plan was made for; `committed` is the expiry that was really committed. A
    snapshot that was to expire and did not is retained, so its files are read and spared even if nobody else committed.
    """

    def __init__(
        self, *, table: Table, engine: Engine, planned: Marked, expiring: ExpiryPlan, committed: ExpiryPlan
    ) -> None:
        self._table = table
        self._engine = engine
        self._planned = planned
        self._committed = committed
        # If something expires, the plan's own head may be one on which it did not: that has to be read.
        expires = expiring.expire or committed.expire
        self._head = None if expires else planned.state.head
        self._read = _retained_sources(planned.references)
        self._named = frozenset(planned.references.kept)
        self._released = frozenset(self._keys(planned.references.released))
        self._referenced: frozenset[str] = frozenset()

    async def __call__(self) -> frozenset[str]:
        """Read the head; while it moves, add what its new sources name. Nothing is read after the last look at it. The
        caller waits for the answer before it calls again."""
        return await self._read_references()

    async def _read_references(self) -> frozenset[str]:
        for _ in range(_LOOKS):
            if await self._is_unchanged():
                return self._referenced
            if await unless_overtaken(self._look) and await self._table.head() == self._head:
                return self._referenced
        if await self._is_unchanged():
            return self._referenced
        raise CommitConflict(
            f"{self._table.ref} receives commits faster than its new references can be read; the next cycle tries again"
        )

    async def _is_unchanged(self) -> bool:
        """True if nothing was committed since the last look. One of the two checks sees whatever was committed before
        this call. The head is read last, because reading it is quick and listing a directory may not be."""
        if self._head is None:
            return False
        if isinstance(self._table, DetectsOtherCommits) and await self._table.has_other_commits():
            return False
        return await self._table.head() == self._head

    async def _look(self) -> bool:
        """Read what is new. True if other commits were looked for last, so that only the head is left to ask for."""
        state = await self._table.load()
        if state.table_uuid != self._planned.state.table_uuid:
            raise Refused(RefusalCode.TABLE_CHANGED, "the table was dropped and created again since the plan was made")
        planned = self._planned.state
        if state.minimum_age > planned.minimum_age or (state.stream and not planned.stream):
            raise Refused(
                RefusalCode.TABLE_CHANGED, "the table keeps unreferenced files longer than when the plan was made"
            )
        references = await state.references(self._committed)
        try:
            self._referenced |= await self._new_keys(references)
        except Unreadable as exc:
            if await self._table.head() == state.head:
                raise
            raise CommitConflict(f"{self._table.ref} received a commit while its new references were read") from exc
        has_read_more = bool(self._fresh(references))
        self._read |= _retained_sources(references)
        self._head = state.head
        table = self._table
        return not has_read_more and isinstance(table, DetectsOtherCommits) and table.looked_for_other_commits_last()

    async def _new_keys(self, references: References) -> frozenset[str]:
        direct = [path for path in references.kept if path not in self._named]
        keys = self._kept_by(pa.array(direct, pa.string()), Role.NAMED)
        released = self._keys(references.released) - keys
        # What the log had released at the plan's head or later, and no longer releases, is live again. The sources that
        # name it were read before and are not read a second time.
        keys |= self._released - released
        self._released |= released
        async for _, batch in self._engine.read_references(self._fresh(references)):
            keys |= self._kept_by(batch.column("path"), Role.READ) - released
        return frozenset(keys)

    def _fresh(self, references: References) -> list[ReferenceSource]:
        """Retained sources that were not read before."""
        return [source for source in references.sources if source.retained and source.cache_key not in self._read]

    def _keys(self, paths: Sequence[str]) -> set[str]:
        return set(addresses.match_key_list(paths, self._planned.state.layout.match_by))

    def _kept_by(self, paths: pa.Array, role: Role) -> set[str]:
        """Match keys, and the names that are guarded: as in a plan, a reference that storage cannot confirm where we
        look keeps every object of its name."""
        state = self._planned.state
        placed = addresses.place(paths, role, state.layout.match_by, state.roots)
        return {*addresses.placed_keys(placed).to_pylist(), *placed.column("guarded_name").drop_null().to_pylist()}


def _retained_sources(references: References) -> frozenset[str]:
    return frozenset(source.cache_key for source in references.sources if source.retained)
