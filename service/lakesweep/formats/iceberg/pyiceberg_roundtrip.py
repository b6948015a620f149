"""What would be lost if pyiceberg rewrote a table's metadata. Pure.

A client-side catalog (SQL, Hive, Glue, …) commits by parsing the whole metadata file into pyiceberg's model and writing
that model out. Fields that the model does not know vanish, a transform that it does not know loses its name, and
version 3 cannot be written at all. So the round trip is made here first, in memory: only a table that survives it
unchanged may have its snapshots expired that way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyiceberg.table.metadata import TableMetadataUtil

from lakesweep.formats.iceberg.metadata import plain_text
from lakesweep.formats.inflate import parse_json

_SHOWN = 3
_V1_SEQUENCE_NUMBER = "sequence-number"
"""Version 1 knows none; pyiceberg rightly leaves it out there."""


def what_is_lost(data: bytes) -> str | None:
    """Why pyiceberg must not rewrite this metadata.json, or None if it may."""
    document = parse_json(plain_text(data))
    try:
        written = TableMetadataUtil.parse_obj(json.loads(json.dumps(document))).model_dump_json(exclude_none=True)
    except NotImplementedError:
        return f"pyiceberg cannot write format version {document.get('format-version')} through this catalog"
    except Exception as exc:  # noqa: BLE001 - pydantic and pyiceberg raise what they please on what they do not know
        reason = str(exc).strip().partition("\n")[0]
        return f"pyiceberg does not understand this table's metadata ({type(exc).__name__}: {reason})"
    lost = list(_lost(document, json.loads(written), ""))
    if document.get("format-version") == 1:
        lost = [path for path in lost if not path.endswith(f"].{_V1_SEQUENCE_NUMBER}")]
    if not lost:
        return None
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return f"pyiceberg would lose {', '.join(lost[:_SHOWN])}{more} when it writes the metadata through this catalog"


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    """Places that hold something before and nothing, or something else, after."""
    if isinstance(before, dict):
        members = after if isinstance(after, dict) else {}
        for key, value in before.items():
            place = f"{path}.{key}" if path else key
            if value is None or value in ([], {}) or (key == "current-snapshot-id" and value == -1):
                continue
            if key in members:
                yield from _lost(value, members[key], place)
            else:
                yield place
    elif isinstance(before, list):
        items = after if isinstance(after, list) else []
        if len(items) < len(before):
            yield path
            return
        for index, (left, right) in enumerate(zip(before, items, strict=False)):
            yield from _lost(left, right, f"{path}[{index}]")
    elif _spelled_alike(before) != _spelled_alike(after):
        yield path


def _spelled_alike(value: Any) -> str:
    """Numbers among properties become texts, a uuid small letters, and the type of a column other blanks."""
    return str(value).replace(" ", "").lower()
