"""Check candidates once more before they are deleted: are they still the objects that were judged? Reads, decides
nothing.

A plan made from an inventory judges objects by a list that is hours old. One that was rewritten since may belong to a
writer that has not committed yet, and nothing references it either. Only an object of the same size, the same time and,
where both are known, the same etag is the one that was judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from lakesweep import aio
from lakesweep.model.errors import NotFound
from lakesweep.model.files import Candidate, StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage

_AT_ONCE = 32
"""Requests in flight for one batch."""
_PRECISION = timedelta(seconds=1)
"""Stores and inventories round times to seconds. An object replaced within its own second is as old as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Candidates by what storage says of them now, each in the order requested."""

    changed: tuple[Candidate, ...]
    gone: tuple[Candidate, ...]


class VerifyUnchanged:
    """Callable: the current state of candidates. Raises what storage raises, because then nothing is known."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def __call__(self, rows: Sequence[Candidate]) -> Standing:
        """Read each of them again."""

        async def look(row: Candidate) -> StoredObject | None:
            try:
                return await self._storage.stat(Location.parse(row.path))
            except NotFound:
                return None

        found = list(zip(rows, await aio.gather_bounded(rows, look, limit=_AT_ONCE), strict=True))
        return Standing(
            changed=tuple(row for row, stored in found if stored is not None and not unchanged(row, stored)),
            gone=tuple(row for row, stored in found if stored is None),
        )


def unchanged(row: Candidate, stored: StoredObject) -> bool:
    if row.modified_at is None or stored.modified_at is None:
        return False
    same_etag = row.etag is None or stored.etag is None or row.etag == stored.etag
    same_time = abs(row.modified_at - stored.modified_at) < _PRECISION
    return row.size_bytes == stored.size_bytes and same_etag and same_time
