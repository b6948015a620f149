"""A lite vacuum: candidates come from the log alone, and the table is never listed.

What may go are the files that commits still in the log have removed, once their tombstones have expired, with their
deletion vectors, and the change data that old commits wrote. Each is checked individually. Files that no commit ever
named stay until a full vacuum, and so does what commits have removed that are gone from the log: Delta's own LITE
refuses such a log, ours logs a warning. A commit that cannot be read frees nothing. Beside the candidates the logs of
other tables are looked for: a file that this table has removed may have become one of theirs."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import markers
from lakesweep.formats.delta import files, log, uniform
from lakesweep.formats.delta.load import LogReader
from lakesweep.formats.delta.state import DeltaState
from lakesweep.model.errors import Unreadable
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Shortlist

_VACUUMED_UP_TO = "latestCommitVersionOutsideOfRetentionWindow"
"""The last version whose removed files a vacuum of Delta's own has taken care of."""

_log = structlog.get_logger(__name__)


async def shortlist(reader: LogReader, storage: Storage, native: DeltaState) -> Shortlist:
    """The log itself, and the files that it has removed since the last recorded vacuum."""
    recorded = await reader.number_in(native.listing, log.LAST_VACUUM, _VACUUMED_UP_TO)
    vacuumed = -1 if recorded is None else recorded
    first = min(native.listing.commits)
    if first > vacuumed + 1:
        _log.warning(
            "lite_vacuum_sees_a_part",
            table=native.root.raw,
            first_commit=first,
            hint="only vacuum_mode = full finds what earlier commits removed",
        )
    commits = [file for version, file in sorted(native.listing.commits.items()) if version > vacuumed]
    # By the table's own retention: what must wait longer is kept by the references.
    delete_before_ms = native.delete_before_ms(floor=timedelta(0))
    freed = await gather_bounded(commits, lambda file: _freed_by(reader, file, delete_before_ms))
    objects = tuple(sorted(frozenset().union(*freed)))
    # Other tables' metadata beside or above an object is listed, and the table is refused for it. What Iceberg's at the
    # root names is kept instead.
    own = {log.LOG_DIRECTORY, uniform.DIRECTORY, markers.HUDI if native.properties.hudi_metadata else ""}
    others = await markers.beside(storage, native.root, objects, without=own)
    return Shortlist(roots=(native.root.join(log.LOG_DIRECTORY).as_directory(), *others), objects=objects)


async def _freed_by(reader: LogReader, file: log.LogFile, delete_before_ms: int) -> frozenset[str]:
    try:
        commit = await reader.commit(file, keep=False)
    except Unreadable:
        return frozenset()
    gone = commit.files.filter(pc.less(commit.files.column("removed_ms"), delete_before_ms))
    freed = frozenset(files.addresses(gone).to_pylist())
    old = file.modified_ms is not None and file.modified_ms < delete_before_ms
    return freed.union(commit.change_data) if old else freed
