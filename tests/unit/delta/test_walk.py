"""The log-cleanup walk. The vectors are the published ones: one checkpoint per version, with these times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.delta import log, retention
from lakesweep.formats.delta.log import LogFile, LogListing
from lakesweep.formats.delta.retention import Inspected

EVERYTHING = 100


def _file(relative: str, time: int | None, size: int = 10) -> LogFile:
    return LogFile(f"file:///t/_delta_log/{relative}", relative, log.parse_name(relative), size, time)


def _listing(*files: tuple[str, int | None] | tuple[str, int | None, int]) -> LogListing:
    return log.arrange(_file(*file) for file in files)


def _checkpoints(times: list[int]) -> LogListing:
    return _listing(*((f"{version:020d}.checkpoint.parquet", time) for version, time in enumerate(times)))


def _boundary(listing: LogListing, cutoff: int = EVERYTHING, max_version: int = EVERYTHING) -> int | None:
    """The last that the walk reaches."""
    reached = retention.boundaries(listing, cutoff_ms=cutoff, max_version=max_version)
    return reached[-1].version if reached else None


VECTORS = [
    # times, cutoff, max version, how many of the first versions go
    ([], 100, 100, 0),
    ([10, 11], 100, 100, 1),
    ([10, 15, 25, 26], 100, 100, 3),
    ([5, 10, 8, 12], 7, 100, 1),
    ([5, 10, 8, 12], 10, 100, 1),
    ([5, 10, 8, 12], 11, 100, 3),
    ([5, 10, 8, 12, 13], 12, 100, 4),
    ([5, 10, 8], 10, 100, 1),
    ([5, 10, 8, 12], 100, 0, 1),
    ([5, 10, 8, 12], 100, 1, 1),
    ([5, 10, 8, 12], 100, 2, 3),
    ([5, 10, 8, 12, 13], 100, 3, 4),
    ([5, 10, 8], 100, 1, 1),
    *(([5, 10, 8, 11, 14], cutoff, 100, 1) for cutoff in (9, 10, 11)),
    ([5, 10, 8, 11, 14], 12, 100, 4),
    *(([5, 10, 8, 11, 14], 100, version, 1) for version in (0, 1, 2)),
    ([5, 10, 8, 11, 14], 100, 3, 4),
    *(([5, 10, 8, 9], cutoff, 100, 1) for cutoff in (9, 10, 11)),
    ([5, 10, 8, 9, 13], 12, 100, 4),
    *(([5, 10, 8, 9], 100, version, 1) for version in (0, 1, 2)),
    ([5, 10, 8, 9, 13], 100, 3, 4),
    *(([10, 8, 9], cutoff, 100, 0) for cutoff in (9, 10, 11)),
    ([10, 8, 9, 13], 12, 100, 3),
    *(([10, 8, 9], 100, version, 0) for version in (0, 1)),
    ([10, 8, 9, 13], 100, 2, 3),
    ([5, 10, 8, 9, 12, 15, 14, 14], 12, 100, 1),
    *(([5, 10, 8, 9, 12, 15, 14, 14], cutoff, 100, 5) for cutoff in (13, 14, 15, 16)),
    ([5, 10, 8, 9, 12, 15, 14, 14, 18], 17, 100, 8),
]


@pytest.mark.parametrize(("times", "cutoff", "max_version", "going"), VECTORS)
def test_the_published_vectors(times, cutoff, max_version, going):
    assert (_boundary(_checkpoints(times), cutoff, max_version) or 0) == going


def _commit(version: int, time: int | None) -> tuple[str, int | None]:
    return (f"{version:020d}.json", time)


def test_without_a_checkpoint_nothing_goes():
    assert _boundary(_listing(*(_commit(version, version) for version in range(10)))) is None


def test_the_checkpoint_that_young_versions_need_stays():
    listing = _listing(
        *(_commit(version, version) for version in range(10)),
        (f"{4:020d}.checkpoint.parquet", 4),
        (f"{8:020d}.checkpoint.parquet", 50),
    )
    assert _boundary(listing, cutoff=6) == 4
    assert _boundary(listing, cutoff=7) == 8


def test_version_zero_is_not_special():
    listing = _listing(
        (f"{0:020d}.checkpoint.parquet", 1),
        (f"{0:020d}.crc", 1),
        _commit(0, 1),
        _commit(1, 2),
        (f"{1:020d}.checkpoint.parquet", 3),
    )
    assert _boundary(listing) == 1


def test_an_incomplete_checkpoint_is_no_boundary():
    part = f"{2:020d}.checkpoint.0000000001.0000000002.parquet"
    listing = _listing(*(_commit(version, version) for version in range(4)), (part, 2))
    assert _boundary(listing) is None


def test_one_part_under_two_names_is_no_complete_checkpoint():
    parts = [(f"{2:020d}.checkpoint.{part}.{count}.parquet", 2) for part, count in (("1", "2"), ("01", "02"))]
    assert _boundary(_listing(*(_commit(version, version) for version in range(4)), *parts)) is None


def test_a_complete_checkpoint_in_parts_is_a_boundary():
    parts = [(f"{2:020d}.checkpoint.{part:010d}.0000000002.parquet", 2) for part in (1, 2)]
    assert _boundary(_listing(*(_commit(version, version) for version in range(4)), *parts)) == 2


@pytest.mark.parametrize("name", ["{:020d}.checkpoint.parquet", "{:020d}.checkpoint.0000000001.0000000001.parquet"])
def test_an_empty_checkpoint_is_no_boundary(name):
    listing = _listing(*(_commit(version, version) for version in range(4)), (name.format(2), 2, 0))
    assert _boundary(listing) is None


def test_every_boundary_on_the_way_is_reported_oldest_first():
    listing = _checkpoints([1, 2, 3, 4])
    assert [one.version for one in retention.boundaries(listing, cutoff_ms=3, max_version=EVERYTHING)] == [1, 2, 3]


def test_an_in_commit_timestamp_younger_than_the_cutoff_keeps_its_version():
    young = Inspected(usable=True, newest_released_ms=51)
    assert not young.allows(50)
    assert young.allows(51)


def test_a_file_of_unknown_age_ends_the_walk():
    listing = _listing(_commit(0, 1), _commit(1, None), _commit(2, 3), (f"{2:020d}.checkpoint.parquet", 3))
    assert _boundary(listing) is None


@pytest.mark.parametrize("beside", ["checkpoint.parquet", "crc"])
def test_a_young_commit_stays_also_if_the_next_one_looks_old(beside):
    """What lies beside the next commit takes over the time, and the next commit itself does not."""
    listing = _listing(
        _commit(0, 1),
        _commit(1, 50),
        (f"{2:020d}.{beside}", 20),
        _commit(2, 20),
        _commit(3, 21),
        (f"{3:020d}.checkpoint.parquet", 60),
    )
    assert _boundary(listing, cutoff=49) is None
    assert _boundary(listing, cutoff=50) == 3


def test_gaps_in_the_middle_do_not_stop_the_walk():
    listing = _listing(_commit(0, 1), _commit(5, 2), (f"{7:020d}.checkpoint.parquet", 3), _commit(7, 3))
    assert _boundary(listing) == 7


def _released(listing: LogListing, version: int, cutoff: int = EVERYTHING) -> set[str]:
    boundary = next(one for one in listing.checkpoints if one.version == version)
    return {file.relative for file in retention.released(listing, boundary, cutoff)}


def test_everything_of_the_boundarys_own_version_stays():
    at_three = [f"{3:020d}.{end}" for end in ("checkpoint.parquet", "checkpoint.x.json", "crc", "json")]
    below = [f"{2:020d}.{end}" for end in ("checkpoint.parquet", "checkpoint.x.json", "crc", "json")]
    listing = _listing(*((name, 1) for name in (*below, *at_three)))
    assert _released(listing, 3) == set(below)


def test_leftovers_below_the_boundary_go_and_unknown_names_never():
    old_part = f"{1:020d}.checkpoint.0000000001.0000000002.parquet"
    young_part = f"{2:020d}.checkpoint.0000000001.0000000002.parquet"
    listing = _listing(
        (old_part, 1),
        (young_part, 99),
        (f"{0:020d}.{2:020d}.compacted.json", 1),
        (f"{2:020d}.{3:020d}.compacted.json", 1),
        (f"_staged_commits/{1:020d}.x.json", 1),
        (f"_staged_commits/{2:020d}.x.json", 1),
        (f"_staged_commits/{3:020d}.x.json", 1),
        _commit(1, 1),
        (f".{1:020d}.json.crc", 1),
        (f".{3:020d}.json.crc", 1),
        (f"{3:020d}.checkpoint.parquet", 1),
        _commit(3, 1),
        ("_last_checkpoint", 1),
        ("_last_vacuum_info", 1),
        ("0.json", 1),
        (f"{1:020d}.json.bak", 1),
        ("_sidecars/x.parquet", 1),
    )
    assert _released(listing, 3, cutoff=50) == {
        old_part,
        f"{0:020d}.{2:020d}.compacted.json",
        f"_staged_commits/{1:020d}.x.json",
        f"{1:020d}.json",
        f".{1:020d}.json.crc",
    }


def test_the_cutoff_is_midnight_in_utc():
    now = datetime(2026, 3, 15, 12, 30, tzinfo=UTC)
    assert retention.cutoff_ms(now, timedelta(days=1)) == retention.millis(datetime(2026, 3, 14, tzinfo=UTC))
    assert retention.cutoff_ms(now, timedelta(hours=1)) == retention.millis(datetime(2026, 3, 15, tzinfo=UTC))


def test_sidecars_of_the_last_day_never_go():
    now = datetime(2026, 3, 15, 12, 30, tzinfo=UTC)
    assert retention.sidecar_cutoff_ms(now, timedelta(0)) == retention.millis(datetime(2026, 3, 14, tzinfo=UTC))
    assert retention.sidecar_cutoff_ms(now, timedelta(days=3)) == retention.millis(datetime(2026, 3, 12, tzinfo=UTC))


_ENDS = st.sampled_from(["json", "crc", "checkpoint.parquet", "checkpoint.x.json"])


@given(
    st.lists(st.tuples(st.integers(0, 12), _ENDS, st.integers(0, 40), st.sampled_from([0, 10]))),
    st.integers(0, 40),
    st.integers(0, 12),
)
def test_what_stays_always_begins_with_a_complete_checkpoint(files, cutoff, max_version):
    listing = _listing(
        *{f"{version:020d}.{end}": (f"{version:020d}.{end}", time, size) for version, end, time, size in files}.values()
    )
    boundary = _boundary(listing, cutoff, max_version)
    if boundary is None:
        return
    stays = {file.relative for file in listing.files} - _released(listing, boundary, cutoff)
    rest = log.arrange(file for file in listing.files if file.relative in stays)
    assert min(file.version for file in rest.files) == boundary
    assert any(one.complete and one.version == boundary for one in rest.checkpoints)
    assert all(int(name[:20]) <= max_version for name in _released(listing, boundary, cutoff))
