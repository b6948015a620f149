"""The metadata that a client-side commit (SQL, Hive, Glue) writes: pyiceberg's, with corrections that a cleaner needs.
It takes the place of pyiceberg's own step between "load what is current" and "write and swap". No code that a table
names is loaded, and the snapshot log is cut as Iceberg cuts it. pyiceberg writes out its own model of the file, so what
the model does not know would vanish: only a table that survives this round trip unchanged may be expired that way."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from lakesweep.formats.iceberg import lineage
from lakesweep.formats.iceberg.metadata import plain_text
from lakesweep.formats.inflate import parse_json


class Stager:
    """Stands in for a catalog's `_update_and_stage_table`."""

    def __init__(self, catalog: MetastoreCatalog, io: FileIO) -> None:
        self._catalog = catalog
        self._io = io

    def __call__(
        self,
        current_table: Table | None,
        table_identifier: Any,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            raise NoSuchTableError("the table no longer exists")
        before = current_table.metadata
        for requirement in requirements:
            requirement.validate(before)
        after = update_table_metadata(before, updates, metadata_location=current_table.metadata_location)
        left = {snapshot.snapshot_id for snapshot in after.snapshots}
        after = after.model_copy(update={"snapshot_log": cut_log(before.snapshot_log, left)})
        version = self._catalog._parse_metadata_version(current_table.metadata_location) + 1  # noqa: SLF001 - its naming
        name = lineage.new_expiry_name(version, lineage.key(current_table.metadata_location))
        place = SimpleLocationProvider(after.location.rstrip("/"), after.properties)
        return StagedTable(
            identifier=table_identifier,
            metadata=after,
            metadata_location=place.new_metadata_location(name),
            io=self._io,
            catalog=self._catalog,
        )


def cut_log(log: Sequence[SnapshotLogEntry], left: Collection[int]) -> list[SnapshotLogEntry]:
    """What may stay of a snapshot log: only what comes after the newest entry whose snapshot is gone. An entry means
    "current from then until the next one". With one taken out of the middle, the entry before it would seem to have
    been current for longer than it was, and time travel would answer with the wrong rows."""
    newest_gone = max((at for at, entry in enumerate(log) if entry.snapshot_id not in left), default=-1)
    return list(log[newest_gone + 1 :])


_SHOWN = 3
_V1_SEQUENCE_NUMBER = "sequence-number"
"""Version 1 knows none; pyiceberg rightly leaves it out there."""


def why_not_writable(data: bytes) -> str | None:
    """Why pyiceberg cannot commit to a table with this metadata, or what it would lose."""
    document = parse_json(plain_text(data))
    try:
        parsed = TableMetadataUtil.parse_obj(json.loads(json.dumps(document)))
        written = parsed.model_dump_json(exclude_none=True)
    except NotImplementedError:
        return f"pyiceberg cannot write format version {document.get('format-version')} through this catalog"
    except Exception as exc:  # noqa: BLE001 - pydantic and pyiceberg raise what they please on what they do not know
        reason = str(exc).strip().partition("\n")[0]
        return f"pyiceberg does not understand this table's metadata ({type(exc).__name__}: {reason})"
    lost = list(_lost(document, json.loads(written), ""))
    if document.get("format-version") == 1:
        lost = [path for path in lost if not path.endswith(f"].{_V1_SEQUENCE_NUMBER}")]
    if not lost:
        return _why_invalid(parsed)
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return f"pyiceberg would lose {', '.join(lost[:_SHOWN])}{more} when it writes the metadata through this catalog"


def _why_invalid(metadata: TableMetadata) -> str | None:
    """pyiceberg makes the same check in every commit, as Java does. Only what new files are written by counts: an old
    partition spec may name a column that was dropped."""
    try:
        metadata.spec().check_compatible(metadata.schema())
        metadata.sort_order().check_compatible(metadata.schema())
    except ValidationError as exc:
        return (
            f"pyiceberg makes no commit to this table ({exc}); remove this field from the table's partition spec or "
            "sort order"
        )
    return None


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
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
