"""Steps that are the same in every engine, whatever it joins with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep import aio
from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import Role
from lakesweep.engines.listing import Listing
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.files import METADATA_SHOWN, MISSING_SHOWN, OrphanPlan, Verdict
from lakesweep.model.location import Location
from lakesweep.ports.engine import Marked, OrphanJob
from lakesweep.ports.references import ELSEWHERE, TOLERATED, References, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import MatchBy, Shortlist

if TYPE_CHECKING:
    from lakesweep.engines.duckdb_plan import Findings  # Spark workers use this module too and need no database

_PATHS_AT_ONCE = 65_536
_ASKED_SINGLY = 1000
_LISTED_PER_REQUEST = 1000
_STATS_AT_ONCE = 1000
"""Suspects checked concurrently."""
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LIMITS = {":missing_shown": str(MISSING_SHOWN), ":metadata_shown": str(METADATA_SHOWN)}
"""Values for the placeholders in `plan.sql`."""


def asked_singly(listed: int) -> int:
    """How many suspects may be checked one by one. Above this a second listing takes fewer requests. An inventory
    leaves more suspects than a listing: everything that was committed after it was made."""
    return max(_ASKED_SINGLY, listed // _LISTED_PER_REQUEST)


def looks_for_missing(job: OrphanJob) -> bool:
    """Does a live file that was not listed count as missing? Not if only expiring files were looked at."""
    return not isinstance(job.look_at, Shortlist) or job.look_at.tolerates_all


def named_directly(references: References) -> Iterator[tuple[Role, pa.Array, bool]]:
    """Paths by role, in bounded pieces, and whether their absence is tolerated."""
    roles = (
        (Role.NAMED, references.retained, False),
        (Role.NAMED, references.tolerated, True),
        (Role.EXPIRED, references.expired, False),
        (Role.RELEASED, references.released, False),
        (Role.COUNTED, references.elsewhere, False),
    )
    for role, paths, tolerated in roles:
        rest = iter(paths)
        while chunk := list(islice(rest, _PATHS_AT_ONCE)):
            yield role, pa.array(chunk, pa.string()), tolerated


def placing(
    match_by: MatchBy, roots: Sequence[Location]
) -> Callable[[ReferenceSource, pa.RecordBatch], pa.RecordBatch]:
    """The function that prepares the rows of a decoded source for the join, the same for every engine."""

    def place(source: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
        role = Role.READ if source.retained else Role.EXPIRED
        named = naming(source, batch)
        tolerated = named.column(TOLERATED.name) if TOLERATED.name in named.schema.names else False
        placed = addresses.place(named.column("path"), role, match_by, roots, tolerated)
        if named.num_rows == batch.num_rows or not source.retained:
            return placed
        elsewhere = batch.column("path").filter(batch.column(ELSEWHERE.name))
        return pa.concat_batches([placed, addresses.place(elsewhere, Role.COUNTED, match_by, roots)])

    return place


def naming(_: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a decoded source that keep or free files, without those that are only counted."""
    if ELSEWHERE.name not in batch.schema.names:
        return batch
    return batch.filter(pc.invert(batch.column(ELSEWHERE.name)))


async def there_after_all(
    storage: Storage, suspects: Sequence[tuple[str, str]], concurrency: int, cutoff: datetime
) -> list[str | None]:
    """Match keys of those suspects (match key, address) that are in storage after all. None for one that is older than
    the cutoff: it should have been listed. It may be a listed file under another name (through a link, or in a store
    that accepts two spellings), so only a listing shows whether it is missing."""
    seen: list[str | None] = []

    async def look(suspect: tuple[str, str]) -> None:
        match_key, path = suspect
        try:
            found = await storage.stat(Location.parse(path))
        except NotFound:
            return
        except StorageError as exc:
            raise Unreadable(path, f"it is live but was not listed, and storage does not answer: {exc}") from exc
        young = found.modified_at is None or found.modified_at >= cutoff
        seen.append(match_key if young else None)

    rest = iter(suspects)
    while chunk := list(islice(rest, _STATS_AT_ONCE)):
        await aio.gather_bounded(chunk, look, limit=concurrency)
    return seen


def assemble(
    job: OrphanJob,
    listing: Listing,
    marked: Marked,
    findings: Findings,
    *,
    skipped: int,
    digest: str,
    engine: str,
    timings: dict[str, float],
) -> OrphanPlan:
    return OrphanPlan(
        **{field.name: getattr(findings, field.name) for field in fields(findings)},
        head=marked.state.head,
        cutoff=job.cutoff,
        candidates=findings.verdicts[Verdict.ORPHAN],
        matched=findings.verdicts[Verdict.LIVE].files,
        listed=not isinstance(job.look_at, Shortlist),
        as_of=listing.as_of,
        skipped_sources=skipped,
        rows_path=job.rows_path,
        digest=digest,
        engine=engine,
        timings=timings,
    )


@cache
def statements() -> dict[str, str]:
    """The named statements of `plan.sql`, with the limits of a plan filled in."""
    text = resources.files("lakesweep.engines").joinpath("plan.sql").read_text(encoding="utf-8")
    for placeholder, limit in _LIMITS.items():
        text = text.replace(placeholder, limit)
    pieces = _NAME.split(text)
    return {name: body.strip() for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}
