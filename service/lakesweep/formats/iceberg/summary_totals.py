"""Totals of summaries that are too high: a miscount that writers carry on, or a manifest list that was cut? Pure.

Writers add to the totals of the snapshot before, so a single miscount (a path that was added twice and deleted once)
stays in all that follow. A list that was cut is short by itself. So a shortfall is believed to be a miscount if
the snapshot before or after it has the very same, in another list; all manifests of both were read and are whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import structlog

from lakesweep.formats.iceberg.decode import Shortfall
from lakesweep.formats.iceberg.manifest_lists import ManifestLists
from lakesweep.formats.iceberg.metadata import SnapshotEntry

log = structlog.get_logger()


def doubtful(lists: ManifestLists, snapshots: Iterable[SnapshotEntry]) -> dict[int, str]:
    """Snapshots whose lists may be cut, and why, of those whose lists were read. Miscounts are logged, and are
    known as such from then on, also when the snapshot that showed it is gone."""
    known = {entry.id: entry for entry in snapshots}
    beside: dict[int, list[SnapshotEntry]] = defaultdict(list)
    for entry in known.values():
        if entry.parent in known:
            beside[entry.id].append(known[entry.parent])
            beside[entry.parent].append(entry)
    found: dict[int, str] = {}
    for entry in known.values():
        short = lists.shortfalls(entry)
        if not short:
            continue
        others = [one for one in beside[entry.id] if one.manifest_list != entry.manifest_list]
        if any(_excess(lists.shortfalls(one)) == _excess(short) for one in others):
            lists.believe(entry)
            log.warning("summary_counts_too_many", manifest_list=entry.manifest_list, why=_why(short))
        elif not lists.is_believed(entry):
            found[entry.id] = f"{_why(short)}, and no snapshot before or after it has the same difference"
    return found


def _excess(short: Iterable[Shortfall]) -> dict[int, int]:
    return {one.content.code: one.promised - one.found for one in short}


def _why(short: Iterable[Shortfall]) -> str:
    return "; ".join(one.why() for one in short)
