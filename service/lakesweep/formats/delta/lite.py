"""A lite vacuum: candidates come from the log alone, and the table is never listed.

What may go are the files that commits still in the log have removed, once their tombstones have expired, with their
deletion vectors, and the change data that old commits wrote. Each is checked individually: one that an earlier run
deleted is not a candidate again. Files that no commit ever named, and what commits have removed that are gone from the
log, stay until a full vacuum; a commit that cannot be read frees nothing. In the directories of the candidates the logs
of other tables are looked for: a file that this table has removed may have become one of theirs.

Delta's own LITE refuses a log whose first commits are gone, unless `_last_vacuum_info` covers them. This service cleans
the log itself, so ours logs a warning and continues: what it cannot see it cannot delete.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import markers
from lakesweep.formats.delta import files, names, uniform
from lakesweep.formats.delta.load import LogReader
from lakesweep.formats.delta.log import LogFile
from lakesweep.formats.delta.state import DeltaState
from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Shortlist

_VACUUMED_UP_TO = "latestCommitVersionOutsideOfRetentionWindow"

_log = structlog.get_logger(__name__)


async def shortlist(reader: LogReader, storage: Storage, native: DeltaState) -> Shortlist:
    """The log itself, and the files that it has removed since the last recorded vacuum."""
    vacuumed = await _vacuumed_up_to(storage, native)
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
    log = native.root.join(names.LOG_DIRECTORY).as_directory()
    return Shortlist(roots=(log, *await _other_logs(storage, native, objects)), objects=objects)


async def _other_logs(storage: Storage, native: DeltaState, objects: tuple[str, ...]) -> list[Location]:
    """Where other tables' metadata lies beside or above an object: it is listed, and the table is refused for it. What
    Iceberg's at the root names is kept instead."""
    own = {names.LOG_DIRECTORY, uniform.DIRECTORY, markers.HUDI if native.properties.hudi_metadata else ""}
    return await markers.beside(storage, native.root, objects, without=own)


async def _freed_by(reader: LogReader, file: LogFile, delete_before_ms: int) -> frozenset[str]:
    """What one commit removed, if its time has come, and the change data that it wrote."""
    try:
        commit = await reader.commit(file, keep=False)
    except Unreadable:
        return frozenset()
    gone = commit.files.filter(pc.less(commit.files.column("removed_ms"), delete_before_ms))
    freed = frozenset(files.addresses(gone).to_pylist())
    old = file.modified_ms is not None and file.modified_ms < delete_before_ms
    return freed.union(commit.change_data) if old else freed


async def _vacuumed_up_to(storage: Storage, native: DeltaState) -> int:
    """The last version whose removed files a vacuum of Delta's own has taken care of; -1 when nothing says."""
    found = next((file for file in native.listing.files if file.relative == names.LAST_VACUUM), None)
    try:
        data = await storage.read(Location.parse(found.path)) if found else b"{}"
        version = parse_json(data).get(_VACUUMED_UP_TO)
    except (NotFound, ValueError, AttributeError):
        return -1
    return version if isinstance(version, int) else -1
