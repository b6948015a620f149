"""Which commits below the newest checkpoint are read for removes that it has left out."""

from __future__ import annotations

from lakesweep.formats.delta import files, log
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import LogFile, LogListing
from lakesweep.formats.delta.other_commits import OtherCommits

HOUR = 60 * 60 * 1000
SINCE = 1000 * HOUR


async def read_for(*written: int | None) -> list[int]:
    """Versions of the commits that are read, given when each was written."""
    seen: list[int] = []

    async def read(file: LogFile) -> Actions:
        seen.append(file.version)
        return Actions(files=files.none())

    names = [log.commit_name(version) for version in range(len(written))]
    listing = log.arrange(
        LogFile(path=f"/t/_delta_log/{name}", relative=name, name=log.parse_name(name), size_bytes=1, modified_ms=at)
        for name, at in zip(names, written, strict=True)
    )

    async def list_log() -> LogListing:
        return listing

    await OtherCommits(read, list_log).removed_since(listing, len(written) - 1, SINCE)
    return sorted(seen)


async def test_a_clock_may_be_a_day_ahead_and_no_more():
    assert await read_for(SINCE - 25 * HOUR, SINCE - 24 * HOUR, SINCE) == [1, 2]


async def test_a_commit_is_no_older_than_those_before_it():
    """Its file looks days older than it is, and so does the next one."""
    assert await read_for(SINCE - 90 * HOUR, SINCE, SINCE - 80 * HOUR, SINCE - 70 * HOUR) == [1, 2, 3]


async def test_a_commit_of_unknown_age_is_read():
    assert await read_for(SINCE - 90 * HOUR, None, SINCE - 80 * HOUR) == [1]
