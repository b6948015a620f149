"""May this table be touched, and what do its properties say? Pure.

The protocol of the newest version decides. A feature that is not on the list below is refused by its name: what
it stores where is not known, so nothing proves that a file is unreferenced. Log cleanup changes the table as
much as a write does, so the writer's features count, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from lakesweep.formats.delta import intervals
from lakesweep.formats.delta.paths import Malformed
from lakesweep.model.errors import Refused

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
        """Raises Malformed when it is not one."""
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
        """Raises Malformed when it is not one."""
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
            "unsupported_protocol",
            f"the table needs reader version {protocol.reader_version} and writer version "
            f"{protocol.writer_version}; known are {MAX_READER_VERSION} and {MAX_WRITER_VERSION}",
        )
    unknown = sorted(protocol.features - _NO_EFFECT_ON_FILES - _UNDERSTOOD)
    if unknown:
        feature = next((name for name in unknown if name in _WHY_REFUSED), unknown[0])
        why = _WHY_REFUSED.get(feature, "this version of Lakesweep does not know which files it keeps")
        raise Refused("unsupported_feature", f"the table has the feature {feature}: {why}")


def properties(metadata: Metadata) -> Properties:
    """Read the properties. Raises Refused naming the one that cannot be understood."""
    listed = metadata.configuration.get("delta.universalFormat.enabledFormats", "")
    uniform = {name.strip().lower() for name in listed.split(",")}
    return Properties(
        log_retention=_read(metadata, "delta.logRetentionDuration", "interval 30 days", intervals.parse),
        deleted_file_retention=_read(
            metadata, "delta.deletedFileRetentionDuration", "interval 1 week", intervals.parse
        ),
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
            "unreadable_property", f"the table property {key} = {text!r} cannot be understood: {exc}"
        ) from exc


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return lowered == "true"
