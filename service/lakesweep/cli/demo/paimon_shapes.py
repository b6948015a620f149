"""The Avro records of a new Paimon table, as Paimon's own writers make them. Pure.

The product itself never needs them: what it writes mirrors the files that a table already has.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from lakesweep.formats.paimon import manifests
from lakesweep.formats.paimon.binaryrow import encode_row
from lakesweep.formats.paimon.commit_files import Shape
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.schema import FieldType, Kind

PARTITION = [FieldType(kind=Kind.STRING)]

_RECORD = "org.apache.paimon.avro.generated.record"
_NOTHING = encode_row([], [])
_NO_STATISTICS = {"_MIN_VALUES": _NOTHING, "_MAX_VALUES": _NOTHING, "_NULL_COUNTS": []}
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_TEXTS = {"type": "array", "items": "string"}


def _fields(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": type_} for name, type_ in types.items()]


def _optional(**types: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": ["null", type_], "default": None} for name, type_ in types.items()]


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _statistics(name: str) -> dict[str, Any]:
    nulls = _optional(_NULL_COUNTS={"type": "array", "items": ["null", "long"]})
    return _record(name, [*_fields(_MIN_VALUES="bytes", _MAX_VALUES="bytes"), *nulls])


LIST = Shape(
    schema=_record(
        _RECORD,
        [
            *_fields(_VERSION="int", _FILE_NAME="string", _FILE_SIZE="long"),
            *_fields(_NUM_ADDED_FILES="long", _NUM_DELETED_FILES="long"),
            *_fields(_PARTITION_STATS=_statistics(f"{_RECORD}__PARTITION_STATS"), _SCHEMA_ID="long"),
            *_optional(_MIN_BUCKET="int", _MAX_BUCKET="int", _MIN_LEVEL="int", _MAX_LEVEL="int"),
        ],
    )
)

_FILE = [
    *_fields(_FILE_NAME="string", _FILE_SIZE="long", _ROW_COUNT="long", _MIN_KEY="bytes", _MAX_KEY="bytes"),
    *_fields(_KEY_STATS=_statistics(f"{_RECORD}__FILE__KEY_STATS")),
    *_fields(_VALUE_STATS=_statistics(f"{_RECORD}__FILE__VALUE_STATS")),
    *_fields(_MIN_SEQUENCE_NUMBER="long", _MAX_SEQUENCE_NUMBER="long", _SCHEMA_ID="long", _LEVEL="int"),
    *_fields(_EXTRA_FILES=_TEXTS),
    *_optional(_CREATION_TIME=_TIME, _DELETE_ROW_COUNT="long", _EMBEDDED_FILE_INDEX="bytes", _FILE_SOURCE="int"),
    *_optional(_VALUE_STATS_COLS=_TEXTS, _EXTERNAL_PATH="string"),
]

MANIFEST = Shape(
    schema=_record(
        _RECORD,
        [
            *_fields(_VERSION="int", _KIND="int", _PARTITION="bytes", _BUCKET="int", _TOTAL_BUCKETS="int"),
            *_fields(_FILE=_record(f"{_RECORD}__FILE", _FILE)),
        ],
    )
)


def entry(path: Path, *, day: str, rows: int, written: datetime, compacted: bool) -> Entry:
    """The entry that adds one data file of a table without keys, partitioned by day."""
    file = {
        "_FILE_NAME": path.name,
        "_FILE_SIZE": path.stat().st_size,
        "_ROW_COUNT": rows,
        "_MIN_KEY": _NOTHING,
        "_MAX_KEY": _NOTHING,
        "_KEY_STATS": _NO_STATISTICS,
        "_VALUE_STATS": _NO_STATISTICS,
        "_MIN_SEQUENCE_NUMBER": 0,
        "_MAX_SEQUENCE_NUMBER": rows - 1,
        "_SCHEMA_ID": 0,
        "_LEVEL": 0,
        "_EXTRA_FILES": [],
        "_CREATION_TIME": int(written.timestamp() * 1000),
        "_DELETE_ROW_COUNT": 0,
        "_FILE_SOURCE": int(compacted),
        "_VALUE_STATS_COLS": [],
    }
    return {
        "_VERSION": manifests.MANIFEST_VERSION,
        "_KIND": manifests.ADD,
        "_PARTITION": encode_row([day], PARTITION),
        "_BUCKET": 0,
        "_TOTAL_BUCKETS": -1,
        "_FILE": file,
    }
