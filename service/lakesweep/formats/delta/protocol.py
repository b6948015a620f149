"""May this table be touched, and what do its properties say? Pure. The protocol of the newest version decides. An
unknown feature is refused by its name: nothing proves which files it uses. Log cleanup changes the table as much as a
write does, so the writer's features count, too. Intervals are read as Spark reads them; text that cannot be parsed
stops the table: a default in its place would delete what its owner meant to keep."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from lakesweep.formats.delta.paths import Malformed
from lakesweep.model.errors import Refused
from lakesweep.model.refusal import RefusalCode

LONGEST = timedelta(days=365_000)
"""Longer intervals mean the same: nothing is that old. Keeps dates inside the calendar."""

_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_CALENDAR_UNITS = ("month", "year")
_TERM = re.compile(r"([+-]?)\s*(\d+)(?:\.(\d{0,9}))?\s+([a-z]+)(?:\s+|$)", re.ASCII)


def parse_interval(text: str) -> timedelta:
    """`interval 1 day 12 hours`, `30 days`, `INTERVAL 2 WEEKS`. Raises ValueError with what is wrong."""
    rest = text.strip().lower()
    if rest.startswith("interval") and rest[8:9].isspace():
        rest = rest[8:].lstrip()
    if not rest:
        raise ValueError("it is empty")
    total = 0
    while rest:
        term = _TERM.match(rest)
        if not term:
            raise ValueError(f"{rest!r} does not begin with a number and a unit")
        total += _microseconds(*term.groups())
        rest = rest[term.end() :]
    if total < 0:
        raise ValueError("it is negative")
    return timedelta(microseconds=min(total, LONGEST // timedelta(microseconds=1)))


def _microseconds(sign: str, whole: str, fraction: str | None, unit: str) -> int:
    name = unit.removesuffix("s")
    if name in _CALENDAR_UNITS and int(whole) == 0:
        return 0
    if name in _CALENDAR_UNITS:
        raise ValueError("months and years have no fixed length")
    if name not in _MICROSECONDS:
        raise ValueError(f"{unit!r} is not a unit of time")
    if fraction is not None and name != "second":
        raise ValueError("only seconds may have a fraction")
    value = int(whole) * _MICROSECONDS[name]
    if fraction:
        value += int(fraction.ljust(9, "0")) // 1000
    return -value if sign == "-" else value


MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7

IN_COMMIT_TIMESTAMPS = frozenset({"inCommitTimestamp", "inCommitTimestamp-preview"})
_NO_EFFECT_ON_FILES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "checkConstraints",
        "clustering",
        "collations",
        "columnMapping",
        "domainMetadata",
        "generatedColumns",
        "geospatial",
        "identityColumns",
        "invariants",
        "materializePartitionColumns",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
_UNDERSTOOD = frozenset(
    {
        "changeDataFeed",  # `_change_data` is vacuumed by age
        "checkpointProtection",  # the walk ends at an existing checkpoint, and commits go before checkpoints
        "deletionVectors",  # .bin files are references
        "icebergCompatV1",  # UniForm keeps Iceberg metadata in `metadata/`
        "icebergCompatV2",
        "icebergCompatV3",
        "icebergWriterCompatV1",  # rules for writers on top of those
        "icebergWriterCompatV3",
        *IN_COMMIT_TIMESTAMPS,  # the commit file of the oldest kept version stays
        "v2Checkpoint",  # sidecars
    }
)
_WHY_REFUSED = {
    "catalogManaged": "its catalog decides about cleanup, and the newest commits may not be in the log yet",
    "catalogOwned-preview": "its catalog decides about cleanup, and the newest commits may not be in the log yet",
    "coordinatedCommits-preview": "a coordinator holds its newest commits, which may not be in the log yet",
    "adaptiveMetadata": "it keeps checkpoints inside commits and manifests beside the data",
    "adaptiveMetadata-preview": "it keeps checkpoints inside commits and manifests beside the data",
    "redirectReaderWriter-preview": "it points to another table",
    "redirectWriterOnly-preview": "it points to another table",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol action."""

    reader_version: int
    writer_version: int
    features: frozenset[str] = frozenset()
    """Reader and writer features together: a cleaner must understand both."""

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> Protocol:
        reader, writer = action.get("minReaderVersion"), action.get("minWriterVersion")
        if not isinstance(reader, int) or not isinstance(writer, int):
            raise Malformed("a protocol without its versions")
        features = [*(action.get("readerFeatures") or ()), *(action.get("writerFeatures") or ())]
        return cls(reader_version=reader, writer_version=writer, features=frozenset(features))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What we need of a metaData action."""

    table_id: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]

    @classmethod
    def from_action(cls, action: Mapping[str, Any]) -> Metadata:
        table_id = action.get("id")
        if not isinstance(table_id, str):
            raise Malformed("metadata without a table id")
        return cls(
            table_id=table_id,
            partition_columns=tuple(action.get("partitionColumns") or ()),
            # Values are texts. Where a log has a bare number or truth value, it is taken as Spark takes it.
            configuration={
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in dict(action.get("configuration") or {}).items()
                if value is not None
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """The table properties that decide about cleanup, with Delta's defaults."""

    log_retention: timedelta
    deleted_file_retention: timedelta
    log_cleanup_enabled: bool
    iceberg_metadata: bool
    """UniForm writes Iceberg metadata below `metadata/`."""
    hudi_metadata: bool
    """UniForm writes Hudi's below `.hoodie/`."""


def check(protocol: Protocol) -> None:
    """Raise Refused unless everything the table asks of its readers and writers is understood."""
    if protocol.reader_version > MAX_READER_VERSION or protocol.writer_version > MAX_WRITER_VERSION:
        raise Refused(
            RefusalCode.UNSUPPORTED_PROTOCOL,
            f"the table needs reader version {protocol.reader_version} and writer version "
            f"{protocol.writer_version}; supported are up to {MAX_READER_VERSION} and {MAX_WRITER_VERSION}",
        )
    unknown = sorted(protocol.features - _NO_EFFECT_ON_FILES - _UNDERSTOOD)
    if unknown:
        feature = next((name for name in unknown if name in _WHY_REFUSED), unknown[0])
        why = _WHY_REFUSED.get(feature, "this version of Lakesweep does not know which files it keeps")
        raise Refused(RefusalCode.UNSUPPORTED_FEATURE, f"the table has the feature {feature}: {why}")


def properties(metadata: Metadata) -> Properties:
    """Read the properties. Raises Refused naming the one that cannot be understood."""
    listed = metadata.configuration.get("delta.universalFormat.enabledFormats", "")
    uniform = {name.strip().lower() for name in listed.split(",")}
    return Properties(
        log_retention=_read(metadata, "delta.logRetentionDuration", "interval 30 days", parse_interval),
        deleted_file_retention=_read(metadata, "delta.deletedFileRetentionDuration", "interval 1 week", parse_interval),
        log_cleanup_enabled=_read(metadata, "delta.enableExpiredLogCleanup", "true", _boolean),
        iceberg_metadata="iceberg" in uniform,
        hudi_metadata="hudi" in uniform,
    )


T = TypeVar("T")


def _read(metadata: Metadata, key: str, default: str, parse: Callable[[str], T]) -> T:
    text = metadata.configuration.get(key, default)
    try:
        return parse(text)
    except ValueError as exc:
        raise Refused(
            RefusalCode.UNREADABLE_PROPERTY, f"the table property {key} = {text!r} cannot be understood: {exc}"
        ) from exc


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return lowered == "true"
