"""Complete checkpoints, gaps and the earliest version that can be rebuilt."""

from __future__ import annotations

import pytest

from lakesweep.formats.delta import log
from lakesweep.formats.delta.log import LogFile, LogListing


def _listing(*relatives: str) -> LogListing:
    return log.arrange(LogFile(name, name, log.parse_name(name), 1, 1) for name in relatives)


def _commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


CHECKPOINT_3 = f"{3:020d}.checkpoint.parquet"


@pytest.mark.parametrize(
    ("files", "earliest"),
    [
        ((), None),
        (_commits(0, 1, 2), 0),
        ((*_commits(0, 1, 3, 4), CHECKPOINT_3), 3),
        ((*_commits(3, 4), CHECKPOINT_3), 3),
        ((*_commits(4, 5), CHECKPOINT_3), None),
        ((*_commits(3, 5), CHECKPOINT_3), None),
        (_commits(1, 2), None),
        ((*_commits(2, 3, 4), CHECKPOINT_3), 3),
        ((*_commits(3, 4), f"{3:020d}.checkpoint.0000000001.0000000002.parquet"), None),
    ],
)
def test_the_earliest_reliable_version(files, earliest):
    assert log.earliest_reliable(_listing(*files)) == earliest


def test_parts_of_two_attempts_do_not_make_one_checkpoint():
    listing = _listing(
        f"{3:020d}.checkpoint.0000000001.0000000002.parquet",
        f"{3:020d}.checkpoint.0000000002.0000000003.parquet",
        f"{3:020d}.checkpoint.0000000003.0000000003.parquet",
    )
    assert [one.complete for one in listing.checkpoints] == [False, False]


def test_the_first_gap_is_found():
    listing = _listing(*_commits(0, 1, 3))
    assert log.first_gap(listing.commits, 0, 3) == 2
    assert log.first_gap(listing.commits, 0, 1) is None
