"""Table options that decide about cleaning, with Paimon's names, units and defaults. Pure. An option that is set but
cannot be understood refuses the table: guessing a retention loses data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from lakesweep.model.errors import Refused
from lakesweep.model.refusal import RefusalCode

INT32_MAX = 2**31 - 1
MEGABYTE = 1024 * 1024

T = TypeVar("T")

_NUMBER_AND_UNIT = re.compile(r"^\s*(\d+)\s*([a-zµ]*)\s*$", re.IGNORECASE)
_MILLISECONDS = {
    "ns": 1e-6, "nano": 1e-6, "nanos": 1e-6, "nanosecond": 1e-6, "nanoseconds": 1e-6,
    "µs": 1e-3, "micro": 1e-3, "micros": 1e-3, "microsecond": 1e-3, "microseconds": 1e-3,
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_BYTES = {
    "": 1, "b": 1, "byte": 1, "bytes": 1,
    "k": 1024, "kb": 1024, "kibibytes": 1024,
    "m": 1024**2, "mb": 1024**2, "mebibytes": 1024**2,
    "g": 1024**3, "gb": 1024**3, "gibibytes": 1024**3,
    "t": 1024**4, "tb": 1024**4, "tebibytes": 1024**4,
}  # fmt: skip


LONGEST = timedelta(days=365_000)
"""Longer durations mean the same: nothing is that old. Keeps dates inside the calendar."""


def parse_duration(text: str) -> timedelta:
    """`1 h`, `30min`, `500` (milliseconds)."""
    return timedelta(milliseconds=min(_scaled(text, _MILLISECONDS), LONGEST // timedelta(milliseconds=1)))


def parse_size(text: str) -> int:
    """`8 mb`, `16MB`, `1024` (bytes)."""
    return int(_scaled(text, _BYTES))


def _scaled(text: str, units: Mapping[str, float]) -> float:
    found = _NUMBER_AND_UNIT.match(text)
    if not found or found.group(2).lower() not in units:
        raise ValueError(f"{text!r} is not a number with one of the units {', '.join(filter(None, units))}")
    return int(found.group(1)) * units[found.group(2).lower()]


def _parse_bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.strip().lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`snapshot.*`: None where the table says nothing and the service's policy decides."""

    num_min: int | None
    num_max: int
    time: timedelta | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRetention:
    """`changelog.*`: None means the snapshots' own value."""

    num_min: int | None
    num_max: int | None
    time: timedelta | None
    producer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpiry:
    """`partition.*`: when whole partitions go."""

    time: timedelta | None
    strategy: str
    pattern: str | None
    formatter: str | None
    max_num: int
    batch_size: int
    check_interval: timedelta
    in_metastore: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """`manifest.*` and `commit.*`: how a commit is written, and which manifests it merges."""

    target_size: int
    full_threshold: int
    merge_min_count: int
    compression: str = "zstd"
    max_retries: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Everything we read of a table's options."""

    retention: Retention
    changelog: ChangelogRetention
    partitions: PartitionExpiry
    manifest: ManifestOptions
    consumer_changelog_only: bool
    clean_empty_directories: bool
    data_directory: str | None
    default_partition: str
    legacy_partition_names: bool

    @property
    def decoupled(self) -> bool:
        """Do changelogs outlive their snapshots? Judged as Java does, by the options and their defaults alone."""
        snapshots, changelogs = self.retention, self.changelog
        num_min = snapshots.num_min if snapshots.num_min is not None else DEFAULT_NUM_MIN
        time = snapshots.time if snapshots.time is not None else _JAVA_TIME
        return (
            (changelogs.num_max is not None and changelogs.num_max > snapshots.num_max)
            or (changelogs.num_min is not None and changelogs.num_min > num_min)
            or (changelogs.time is not None and changelogs.time > time)
        )


DEFAULT_NUM_MIN = 10
"""`snapshot.num-retained.min`, where nobody says anything."""
_JAVA_TIME = timedelta(hours=1)
DEFAULT_LIMIT = 10
"""Snapshots expired in one run; the reference documentation of the C++ implementation says 10, Java says 50."""


def read_options(options: Mapping[str, str]) -> TableOptions:
    """Read and check. Raises Refused naming the option that is wrong."""
    get = _Getter(options)
    retention = Retention(
        num_min=get.optional("snapshot.num-retained.min", int),
        num_max=get("snapshot.num-retained.max", int, INT32_MAX),
        time=get.optional("snapshot.time-retained", parse_duration),
        limit=get("snapshot.expire.limit", int, DEFAULT_LIMIT),
    )
    changelog = ChangelogRetention(
        num_min=get.optional("changelog.num-retained.min", int),
        num_max=get.optional("changelog.num-retained.max", int),
        time=get.optional("changelog.time-retained", parse_duration),
        producer=get("changelog-producer", str, "none").strip().lower(),
    )
    max_num = get("partition.expiration-max-num", int, 100)
    _check_retention(retention, changelog, max_num)
    return TableOptions(
        retention=retention,
        changelog=changelog,
        partitions=PartitionExpiry(
            time=get.optional("partition.expiration-time", parse_duration),
            strategy=get("partition.expiration-strategy", str, "values-time").strip().lower(),
            pattern=get.optional("partition.timestamp-pattern", str),
            formatter=get.optional("partition.timestamp-formatter", str),
            max_num=max_num,
            batch_size=max(1, get("partition.expiration-batch-size", int, max_num)),
            check_interval=get("partition.expiration-check-interval", parse_duration, timedelta(hours=1)),
            in_metastore=get("metastore.partitioned-table", _parse_bool, False),
        ),
        manifest=ManifestOptions(
            target_size=get("manifest.target-file-size", parse_size, 8 * MEGABYTE),
            full_threshold=get("manifest.full-compaction-threshold-size", parse_size, 16 * MEGABYTE),
            merge_min_count=get("manifest.merge-min-count", int, 30),
            compression=get("manifest.compression", str, "zstd").strip().lower(),
            max_retries=get("commit.max-retries", int, 10),
        ),
        consumer_changelog_only=get("consumer.changelog-only", _parse_bool, False),
        clean_empty_directories=get(
            "snapshot.clean-empty-directories",
            _parse_bool,
            get("snapshot.expire.clean-empty-directories", _parse_bool, False),
        ),
        data_directory=get.optional("data-file.path-directory", str),
        default_partition=get("partition.default-name", str, "__DEFAULT_PARTITION__"),
        legacy_partition_names=get("partition.legacy-name", _parse_bool, True),
    )


def external_roots(options: Mapping[str, str]) -> tuple[str, ...]:
    """Other places than the table's directory that its files may be in."""
    texts = [options.get(key, "") for key in ("data-file.external-paths", "global-index.external-path")]
    return tuple(root.strip() for text in texts for root in text.split(",") if root.strip())


def _check_retention(retention: Retention, changelog: ChangelogRetention, max_num: int) -> None:
    """People write -1 for "never" or "no limit"; a rule that counts reads it as "everything"."""
    faults = []
    if retention.num_min is not None and retention.num_min < 1:
        faults.append(f"snapshot.num-retained.min is {retention.num_min}, it must be at least 1")
    if retention.num_max < (retention.num_min or 1):
        faults.append(f"snapshot.num-retained.max is {retention.num_max}, below snapshot.num-retained.min")
    if retention.limit < 0:
        faults.append(f"snapshot.expire.limit is {retention.limit}, it must not be negative")
    if changelog.num_min is not None and changelog.num_min < 1:
        faults.append(f"changelog.num-retained.min is {changelog.num_min}, it must be at least 1")
    if changelog.num_max is not None and changelog.num_max < (changelog.num_min or 1):
        faults.append(f"changelog.num-retained.max is {changelog.num_max}, below changelog.num-retained.min")
    if max_num < 0:
        faults.append(f"partition.expiration-max-num is {max_num}, it must not be negative")
    if faults:
        raise Refused(RefusalCode.BAD_TABLE_OPTIONS, "; ".join(faults))


class _Getter:
    """Reads one option with its parser; trouble names the option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __call__(self, name: str, parse: Callable[[str], T], default: T) -> T:
        value = self.optional(name, parse)
        return default if value is None else value

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        if name not in self._options:
            return None
        try:
            return parse(str(self._options[name]))
        except ValueError as exc:
            raise Refused(RefusalCode.BAD_TABLE_OPTIONS, f"table option {name}: {exc}") from exc
