"""What commits at or below the newest checkpoint have removed lately: their files stay for the retention as well.

A checkpoint leaves out the removes that its writer takes for expired. That writer may have read the retention in
another way (deltalake takes `30 days` and `INTERVAL 4 WEEKS` for a week), or the retention was raised since. The
commits have them all; only those are read that are young enough to matter. Reads only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.bounded import gather_bounded
from lakesweep.formats.delta import files
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import LogFile, LogListing

_SKEW_MS = 24 * 60 * 60 * 1000
"""How far the clock of a writer may be ahead of the store's."""


class RemovedBelow:
    """Of one table. Commits never change, so what was found in one is kept."""

    def __init__(self, read: Callable[[LogFile], Awaitable[Actions]]) -> None:
        self._read = read
        self._known: dict[tuple[LogFile, int], pa.Table] = {}

    async def since(self, listing: LogListing, version: int, since_ms: int) -> pa.Table:
        """Removes of this time and later in commits up to this version. Raises Unreadable if one cannot be read: nobody
        knows what it removed."""
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
            return self._known[key]

        return pa.concat_tables([files.none(), *await gather_bounded(wanted, look)])
