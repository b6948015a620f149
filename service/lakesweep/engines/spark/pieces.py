"""The work of a plan in pieces, one for each task: sources by their bytes, and what metadata names itself. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import pyarrow as pa

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import Role
from lakesweep.engines import common
from lakesweep.engines.spark import worker_rows
from lakesweep.model.errors import Indeterminate
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import References, ReferenceSource

PIECES_PER_CORE = 3
"""Tasks per core, so that a slow task delays little."""
_PIECE_BYTES = 128 * 1024 * 1024
"""The most source bytes that one task reads, unless a single source is larger."""
_UNKNOWN_SIZE = 8 * 1024 * 1024
"""The assumed size of a source without a recorded length."""
_LEAST_BYTES = 1024 * 1024
"""The least source bytes that are worth a task."""
_NAMED_AT_ONCE = 65_536


def balanced(sources: Sequence[ReferenceSource], cores: int) -> list[list[ReferenceSource]]:
    """Sources in pieces of about equal bytes, largest first, and enough pieces to keep all cores busy to the end, but
    none of next to nothing."""
    total = sum(_weight(source) for source in sources)
    busy = min(cores * PIECES_PER_CORE, math.ceil(total / _LEAST_BYTES))
    count = min(len(sources), max(busy, math.ceil(total / _PIECE_BYTES)))
    pieces: list[list[ReferenceSource]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for source in sorted(sources, key=_weight, reverse=True):
        weight, number = lightest[0]
        pieces[number].append(source)
        heapq.heapreplace(lightest, (weight + _weight(source), number))
    return pieces


def _weight(source: ReferenceSource) -> int:
    """At least 1: sources without weight would all go into one piece and leave others empty."""
    return max(1, source.size_bytes) if source.size_bytes is not None else _UNKNOWN_SIZE


def named_here(references: References, job: OrphanJob) -> tuple[list[bytes], list[int], int]:
    """What metadata names directly, which pieces of that have something released, and how much of the expired side had
    to be left out."""
    groups: list[list[pa.RecordBatch]] = []
    released: set[int] = set()
    skipped = 0
    for role, paths, tolerated in common.named_directly(references):
        try:
            placed = addresses.place(paths, role, job.layout.match_by, job.roots, tolerated)
        except Indeterminate:
            if role is Role.NAMED:
                raise
            skipped += 1
            continue
        if not groups or sum(one.num_rows for one in groups[-1]) + placed.num_rows > _NAMED_AT_ONCE:
            groups.append([])
        groups[-1].append(worker_rows.in_full(placed))
        released |= {len(groups) - 1} if role is Role.RELEASED else set()
    return [worker_rows.packed(group) for group in groups], sorted(released), skipped
