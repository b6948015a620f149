"""Commits that the newest state is not replayed from, and whose files stay all the same. Reads only.

Those at or below the newest checkpoint: it leaves out removes that its writer considers expired, who may have read the
retention differently (deltalake reads `30 days` and `INTERVAL 4 WEEKS` as a week), or it was raised since. And those
that are not published yet: where a store could not create a file only if it is absent, a commit is written under a
temporary name, announced in a database, and only then copied into the log, perhaps much later. We do not ask the
database: every temporary file that the log has not left behind may be such a commit. It was complete before it was
announced, so one that cannot be read does not count. For one that is gone, the commits are read that have come into the
log since: it may be one of them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.aio import gather_bounded
from lakesweep.formats.delta import files
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import LogFile, LogListing
from lakesweep.model.errors import Unreadable

_SKEW_MS = 24 * 60 * 60 * 1000
"""By how much a commit's file may look older than its removes say. Beyond that they are not read, and a file whose
remove the checkpoint has left out goes earlier, by as much as the difference exceeds this. A store's clock does not run
days behind. Where a writer's is days ahead, the remove is older than it says, so nothing goes too early. And a
copied log keeps its files' times, or gets later ones."""


_TEMPORARY = re.compile(r"\.tmp/(?P<version>\d{20})\.json\.[^/]+|_commit_[^/]+\.json\.tmp")
"""How Java names them, and how deltalake does, without a version."""
_LONGEST_COMMIT_MS = 24 * 60 * 60 * 1000
"""A writer that meets other commits tries again with the same temporary file, but not for so long."""


class CutShort(Unreadable):
    """The store gave another length than it listed: what was read says nothing about the file."""


class Vanished(Unreadable):
    """The file was listed, and is not there any more."""


class OtherCommits:
    """Those of one table. Commits never change, so what was found in one is kept."""

    def __init__(
        self, read: Callable[[LogFile], Awaitable[Actions]], list_log: Callable[[], Awaitable[LogListing]]
    ) -> None:
        self._read, self._list_log = read, list_log
        self._known: dict[tuple[LogFile, int], pa.Table] = {}
        self._odd: dict[LogFile, pa.Table] = {}
        """Of each commit that was read: its actions on files with none of Delta's endings."""

    async def removed_since(self, listing: LogListing, version: int, since_ms: int) -> pa.Table:
        """Removes of this time and later in commits up to this version. Raises Unreadable if one cannot be read."""
        newest_ms, wanted = 0, []
        for number, file in sorted(listing.commits.items()):
            newest_ms = max(newest_ms, file.modified_ms or 0)  # a commit is no older than those before it
            if number <= version and (file.modified_ms is None or newest_ms + _SKEW_MS >= since_ms):
                wanted.append(file)

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

    async def unpublished(self, listing: LogListing) -> frozenset[str]:
        """Addresses below the root that commits name which may still be added to the log, or were just now."""

        async def look(file: LogFile) -> set[str] | None:
            try:
                return _named((await self._read(file)).files)
            except CutShort:
                raise  # the file itself may be whole, and count
            except Vanished:
                return None
            except Unreadable:
                return set()

        pending = [file for file in listing.files if _may_count(file, listing)]
        found = await gather_bounded(pending, look)
        if None in found:
            found.append(await self._published_since(listing))
        return frozenset[str]().union(*filter(None, found))

    async def _published_since(self, listing: LogListing) -> set[str]:
        """What newer commits than those of the listing name. Raises Unreadable if one cannot be read."""
        commits = (await self._list_log()).commits
        newer = [file for version, file in commits.items() if version > listing.latest_version]
        return set[str]().union(*[_named((await self._read(file)).files) for file in newer])


def _may_count(file: LogFile, listing: LogListing) -> bool:
    """Not if a later commit is in the log: it could only be made after this one was copied."""
    found = _TEMPORARY.fullmatch(file.relative)
    if found is None:
        return False
    if found["version"]:
        return int(found["version"]) > listing.latest_version
    newest = listing.commits[listing.latest_version].modified_ms
    return file.modified_ms is None or newest is None or file.modified_ms + _LONGEST_COMMIT_MS > newest


def _named(actions: pa.Table) -> set[str]:
    return {*files.addresses(actions).to_pylist(), *files.aliases(actions).to_pylist()}


def _oddly_named(actions: pa.Table) -> pa.Table:
    """Those on a data file below the root whose name Delta's own writers would not give."""
    names = actions.column("address")
    usual = pc.or_(pc.ends_with(names, ".parquet"), pc.ends_with(names, ".bin"))
    return actions.filter(pc.fill_null(pc.invert(usual), False))
