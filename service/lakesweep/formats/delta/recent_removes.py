"""Files that commits at or below the newest checkpoint removed recently: they stay for the retention as well.

A checkpoint leaves out removes that its writer considers expired. That writer may have read the retention differently
(deltalake reads `30 days` and `INTERVAL 4 WEEKS` as a week), or the retention was raised since. The commits have them
all; only those are read that are young enough to matter. Reads only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.aio import gather_bounded
from lakesweep.formats.delta import files
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import LogFile, LogListing
from lakesweep.model.errors import Unreadable

_SKEW_MS = 24 * 60 * 60 * 1000
"""How far the clock of a writer may be ahead of the store's."""


class RemovedBelow:
    """Of one table. Commits never change, so what was found in one is kept."""

    def __init__(self, read: Callable[[LogFile], Awaitable[Actions]]) -> None:
        self._read = read
        self._known: dict[tuple[LogFile, int], pa.Table] = {}
        self._odd: dict[LogFile, pa.Table] = {}
        """Of each commit that was read: its actions on files with none of Delta's endings."""

    async def since(self, listing: LogListing, version: int, since_ms: int) -> pa.Table:
        """Removes of this time and later in commits up to this version. Raises Unreadable if one cannot be read: it is
        unknown what it removed."""
        wanted = [
            file
            for number, file in sorted(listing.commits.items())
            if number <= version and (file.modified_ms is None or file.modified_ms + _SKEW_MS >= since_ms)
        ]

        async def look(file: LogFile) -> pa.Table:
            key = (file, since_ms)
            if key not in self._known:
                named = (await self._read(file)).files
                self._known[key] = named.filter(pc.greater_equal(named.column("removed_ms"), since_ms))
                self._odd[file] = _oddly_named(named)
            return self._known[key]

        return pa.concat_tables([files.none(), *await gather_bounded(wanted, look)])

    async def oddly_named(self, listing: LogListing, tail: pa.Table, before_ms: int) -> frozenset[str]:
        """Addresses with none of Delta's endings that commits have removed before this time: the log alone proves that
        such a file is one of the table's. Only where a recent commit has such a name are the older ones read; one of
        those that cannot be read frees nothing."""
        recent = [_oddly_named(tail), *self._odd.values()]
        if not any(map(len, recent)):
            return frozenset()

        async def look(file: LogFile) -> pa.Table:
            if file not in self._odd:
                try:
                    self._odd[file] = _oddly_named((await self._read(file)).files)
                except Unreadable:
                    return files.none()
            return self._odd[file]

        found = pa.concat_tables([*recent, *await gather_bounded(listing.commits.values(), look)])
        expired = found.filter(pc.less(found.column("removed_ms"), before_ms))
        return frozenset(expired.column("address").to_pylist())


def _oddly_named(actions: pa.Table) -> pa.Table:
    """Those on a data file below the root whose name Delta's own writers would not give."""
    names = actions.column("address")
    usual = pc.or_(pc.ends_with(names, ".parquet"), pc.ends_with(names, ".bin"))
    return actions.filter(pc.fill_null(pc.invert(usual), False))
