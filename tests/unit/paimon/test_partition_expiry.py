"""Which partitions go: typed values, never joined text; what cannot be read stays."""

# ruff: noqa: DTZ001 - partition values are wall-clock times without a zone

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from lakesweep.formats.paimon.binaryrow import Timestamp, encode_row
from lakesweep.formats.paimon.options import PartitionExpiry, read_options
from lakesweep.formats.paimon.partitions import Due, Partition, check_is_due, find_due
from lakesweep.formats.paimon.schema import Field, parse_type

NOW = datetime(2024, 3, 10, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    set_zone(monkeypatch, "UTC")


def set_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()


def options(**changes: str) -> PartitionExpiry:
    named = {f"partition.{name.replace('_', '-')}": value for name, value in changes.items()}
    return read_options({"partition.expiration-time": "7 d"} | named).partitions


def due(
    rows: list[tuple[Any, ...]], types: list[str], expiry: PartitionExpiry | None = None, **updated: datetime
) -> Due:
    keys = [Field(name=name, type=parse_type(text)) for name, text in zip(["dt", "hour", "x"], types, strict=False)]
    partitions = [
        Partition(
            raw=encode_row(row, [key.type for key in keys]),
            values=row,
            path="/".join(map(str, row)),
            updated=updated.get(str(row[0])),
            stored=NOW - timedelta(days=30),
        )
        for row in rows
    ]
    return find_due(partitions, keys, expiry or options(), NOW, timedelta(0))


def gone(found: Due) -> list[tuple[Any, ...]]:
    return [partition.values for partition in found.partitions]


def test_a_date_is_its_midnight_and_exactly_the_border_stays() -> None:
    rows = [("2024-03-03",), ("2024-03-04",), ("2024-03-03 12:00:00",), ("2024-03-03 11:59:59",)]
    assert gone(due(rows, ["STRING"])) == [("2024-03-03",), ("2024-03-03 11:59:59",)]


def test_what_cannot_be_read_never_expires() -> None:
    assert gone(due([("never",), (None,), ("",), ("20240101",)], ["STRING"])) == []


def test_date_and_timestamp_keys_are_times_by_their_type() -> None:
    assert gone(due([(date(2024, 3, 1),), (date(2024, 3, 9),), (None,)], ["DATE"])) == [(date(2024, 3, 1),)]
    old = Timestamp(int(datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1000))
    assert gone(due([(old,)], ["TIMESTAMP(6)"])) == [(old,)]


def test_a_moment_beyond_the_calendar_never_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_zone(monkeypatch, "XST+8")
    first = Timestamp(int(datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000))
    assert gone(due([(first,)], ["TIMESTAMP(3) WITH LOCAL TIME ZONE"])) == []
    assert gone(due([(first,)], ["TIMESTAMP(3)"])) == [(first,)]


def test_a_number_is_text_and_not_a_day() -> None:
    """What Java makes of a DATE key, and why it never expires there."""
    assert gone(due([(19723,)], ["INT"])) == []
    assert gone(due([(20240101,)], ["INT"], options(timestamp_formatter="yyyyMMdd"))) == [(20240101,)]


def test_a_pattern_takes_the_longest_key_name_and_only_the_keys_it_names() -> None:
    keys = ["STRING", "STRING", "STRING"]
    pattern = options(timestamp_pattern="$dt $hour:00:00", expiration_time="1 h")
    rows = [("2024-03-10", "09", None), ("2024-03-10", "09", ""), ("2024-03-10", "11", "x"), ("2024-03-10", None, "x")]
    assert gone(due(rows, keys, pattern)) == [("2024-03-10", "09", None), ("2024-03-10", "09", "")]


def test_values_with_the_separator_of_others_stay_apart() -> None:
    """Joined with commas and split again, ('2024-01-01', 'a,b') once dropped a neighbour."""
    rows = [("2024-01-01", "a,b"), ("2024-03-09", "a"), ("2024-01-01,a", "b")]
    assert gone(due(rows, ["STRING", "STRING"])) == [("2024-01-01", "a,b")]


def test_the_smallest_go_first_and_at_most_the_maximum() -> None:
    rows = [(f"2024-01-{day:02d}",) for day in range(28, 0, -1)]
    found = gone(due(rows, ["STRING"], options(expiration_max_num="3")))
    assert found == [("2024-01-01",), ("2024-01-02",), ("2024-01-03",)]


def test_update_time_goes_by_the_newest_file_and_unknown_stays() -> None:
    update = options(expiration_strategy="update-time")
    found = due([("a",), ("b",), ("c",)], ["STRING"], update, a=datetime(2024, 3, 1), b=datetime(2024, 3, 9))
    assert gone(found) == [("a",)]


def test_both_spellings_of_a_null_in_an_unused_key_go() -> None:
    keys = [Field(name="dt", type=parse_type("STRING")), Field(name="x", type=parse_type("TIMESTAMP(6)"))]
    rows = [Partition(raw=raw, values=("2024-01-01", None), path="p", updated=None) for raw in (b"java", b"python")]
    assert {partition.raw for partition in find_due(rows, keys, options(), NOW).partitions} == {b"java", b"python"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"timestamp_formatter": "dd MMM yyyy"}, "pattern"),
        ({"expiration_strategy": "custom"}, "strategy"),
        ({"timestamp_pattern": "nothing"}, "partition keys"),
    ],
)
def test_what_is_not_understood_is_said_and_drops_nothing(changes: dict[str, str], word: str) -> None:
    found = due([("2020-01-01",)], ["STRING"], options(**changes))
    assert found.partitions == ()
    assert word in (found.problem or "")


def test_partitions_in_a_metastore_are_left_to_it() -> None:
    expiry = read_options({"partition.expiration-time": "1 d", "metastore.partitioned-table": "true"}).partitions
    found = due([("2020-01-01",)], ["STRING"], expiry)
    assert found.partitions == ()
    assert "metastore" in (found.problem or "")


def test_without_an_expiration_time_or_keys_nothing_is_due() -> None:
    assert due([("2020-01-01",)], ["STRING"], read_options({}).partitions) == Due()
    assert find_due([], [], options(), NOW) == Due()


def test_wall_clocks_are_compared_in_the_zone_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    row, expiry = [("2024-03-10 09:00:00",)], options(expiration_time="1 h")
    assert gone(due(row, ["STRING"], expiry)) == row
    set_zone(monkeypatch, "America/Los_Angeles")  # 05:00 there
    assert gone(due(row, ["STRING"], expiry)) == []
    local = Timestamp(int(NOW.timestamp() * 1000) - 2 * 3_600_000)
    assert gone(due([(local,)], ["TIMESTAMP_LTZ(3)"], expiry)) == [(local,)]
    set_zone(monkeypatch, "UTC")


def test_the_check_interval_is_kept() -> None:
    hour = timedelta(hours=1)
    assert check_is_due(None, hour, NOW)
    assert not check_is_due(NOW - timedelta(minutes=59), hour, NOW)
    assert check_is_due(NOW - hour, hour, NOW)
    assert check_is_due(NOW, timedelta(0), NOW)


# Zones: 12:00 in UTC, partitions live for an hour


def hourly(text: str, *, stored: datetime | None, writers: timedelta | None) -> bool:
    keys = [Field(name="dt", type=parse_type("STRING"))]
    one = Partition(raw=b"", values=(text,), path="", updated=None, stored=stored)
    return bool(find_due([one], keys, options(expiration_time="1 h"), NOW, writers).partitions)


OLD, FRESH, WEST = NOW - timedelta(hours=2), NOW - timedelta(seconds=5), timedelta(hours=-8)


def test_a_partition_that_is_seconds_old_for_writers_in_the_west_stays() -> None:
    assert not hourly("2024-03-10 04:00:00", stored=FRESH, writers=WEST)


@pytest.mark.parametrize(
    ("stored", "writers"),
    [(None, timedelta(0)), (FRESH, timedelta(0)), (OLD, None), (OLD, WEST)],
)
def test_what_has_expired_only_here_waits_for_storage_and_the_writers_clock(
    stored: datetime | None, writers: timedelta | None
) -> None:
    assert not hourly("2024-03-10 10:00:00", stored=stored, writers=writers)
    assert hourly("2024-03-10 10:00:00", stored=OLD, writers=timedelta(0))


def test_what_has_expired_in_every_zone_needs_no_witness() -> None:
    assert hourly("2024-03-09 22:59:59", stored=None, writers=None)
    assert not hourly("2024-03-09 23:00:00", stored=None, writers=None)


def test_a_partition_written_ahead_of_its_time_in_the_west_stays() -> None:
    """There it is four, and the partition of six was filled hours ago."""
    assert not hourly("2024-03-10 06:00:00", stored=OLD, writers=WEST)
    assert hourly("2024-03-10 02:00:00", stored=OLD, writers=WEST)


@pytest.mark.parametrize("hours", [-13, 15, 24 * 365 * 9000])
def test_an_offset_that_no_zone_has_is_no_witness(hours: int) -> None:
    """A clock that is wrong, or a file that was made long before its commit, says nothing of a zone."""
    assert not hourly("2024-03-10 10:00:00", stored=OLD, writers=timedelta(hours=hours))
