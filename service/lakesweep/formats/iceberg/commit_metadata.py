"""The metadata that a client-side commit writes: pyiceberg's, with corrections that a cleaner needs.

It takes the place of pyiceberg's own step between "load what is current" and "write and swap", in every catalog where
the client writes (SQL, Hive, Glue). Nothing is created here, no code that a table names is loaded, and the snapshot log
is cut as Iceberg cuts it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from lakesweep.formats.iceberg import lineage, marks


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
        """What to write, and where; or an error before anything is written."""
        if current_table is None:
            raise NoSuchTableError("the table no longer exists")
        before = current_table.metadata
        for requirement in requirements:
            requirement.validate(before)
        after = update_table_metadata(before, updates, metadata_location=current_table.metadata_location)
        left = {snapshot.snapshot_id for snapshot in after.snapshots}
        after = after.model_copy(update={"snapshot_log": cut_log(before.snapshot_log, left)})
        version = self._catalog._parse_metadata_version(current_table.metadata_location) + 1  # noqa: SLF001 - its naming
        name = marks.new_name(version, lineage.key(current_table.metadata_location))
        place = SimpleLocationProvider(after.location.rstrip("/"), after.properties)
        return StagedTable(
            identifier=table_identifier,
            metadata=after,
            metadata_location=place.new_metadata_location(name),
            io=self._io,
            catalog=self._catalog,
        )


def cut_log(log: Sequence[SnapshotLogEntry], left: Collection[int]) -> list[SnapshotLogEntry]:
    """What may stay of a snapshot log: only what comes after the newest entry whose snapshot is gone.

    An entry means "current from then until the next one". With one taken out of the middle, the entry before it would
    seem to have been current for longer than it was, and time travel would answer with the wrong rows.
    """
    newest_gone = max((at for at, entry in enumerate(log) if entry.snapshot_id not in left), default=-1)
    return list(log[newest_gone + 1 :])
