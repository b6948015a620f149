"""Commits that may be valid although the log does not have them yet: what they name stays. Reads only.

Where a store could not create a file only if it is absent, writers agree through a database: a commit is written under
a temporary name, announced in the database, and only then copied into the log. From the announcement on it counts, and
its writer was informed. If the copy fails, the next client that opens the table through that database makes the copy,
perhaps much later. We do not ask the database: every temporary file that the log has not left behind may be such a
commit. It was complete before it was announced, so one that cannot be read does not count; one that is gone is in the
log by now.
"""

from __future__ import annotations

import re

from lakesweep.aio import gather_bounded
from lakesweep.formats.delta import files
from lakesweep.formats.delta.load import CutShort, LogReader
from lakesweep.formats.delta.log import LogFile, LogListing
from lakesweep.model.errors import Unreadable

_TEMPORARY = re.compile(r"\.tmp/(?P<version>\d{20})\.json\.[^/]+|_commit_[^/]+\.json\.tmp")
"""How Java names them, and how deltalake does, without a version."""
_LONGEST_COMMIT_MS = 24 * 60 * 60 * 1000
"""A writer that meets other commits tries again with the same temporary file, but not for so long."""


async def named(reader: LogReader, listing: LogListing) -> frozenset[str]:
    """Addresses below the root that such commits name."""
    pending = [file for file in listing.files if _may_count(file, listing)]
    return frozenset[str]().union(*await gather_bounded(pending, lambda file: _named_by(reader, file)))


def _may_count(file: LogFile, listing: LogListing) -> bool:
    """Not if a later commit is in the log: it could only be made after this one was copied."""
    found = _TEMPORARY.fullmatch(file.relative)
    if found is None:
        return False
    if found["version"]:
        return int(found["version"]) > listing.latest_version
    newest = listing.commits[listing.latest_version].modified_ms
    return file.modified_ms is None or newest is None or file.modified_ms + _LONGEST_COMMIT_MS > newest


async def _named_by(reader: LogReader, file: LogFile) -> frozenset[str]:
    try:
        commit = await reader.commit(file, keep=False)
    except CutShort:
        raise  # the file itself may be whole, and count
    except Unreadable:
        return frozenset()
    return frozenset(files.addresses(commit.files).to_pylist() + files.aliases(commit.files).to_pylist())
