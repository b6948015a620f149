"""The plain engine: `plan.sql` in sets and dicts. No database, no threads, no file but the plan's own.

It passes the contract suite of engines and gives the same digest, at a thousandth of the cost for a small table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from lakesweep.cleanup import addresses, classify, plan_file
from lakesweep.cleanup.addresses import Role
from lakesweep.engines import common
from lakesweep.engines.duckdb_plan import Findings
from lakesweep.engines.listing import Listing, of_roots, planned
from lakesweep.engines.sources import _check_skippable
from lakesweep.model.errors import EngineFailed, Indeterminate, StorageError
from lakesweep.model.files import METADATA_SHOWN, MISSING_SHOWN, OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.table import FormatName
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import Decode, References, ReferenceSource
from lakesweep.ports.storage import Storage, moments
from lakesweep.ports.table import MatchBy

Key = TypeVar("Key")
Known = dict[Any, Any]
"""What was worked out before: decoded sources, by their very bytes, and rows of pages of a listing."""


class _Reference(NamedTuple):
    role: str
    address: str | None
    match_key: str
    inside: bool
    outside: bool
    guarded_name: str | None

    @property
    def path(self) -> str:
        return self.match_key if self.address is None else self.address


@dataclass
class _Held:
    """What keeps files, by match key."""

    inside: dict[str, bool] = field(default_factory=dict)
    path: dict[str, str] = field(default_factory=dict)
    """The least spelling of those that should be listed."""
    guarded: set[str] = field(default_factory=set)
    outside: dict[str, str] = field(default_factory=dict)
    """The least spelling of those that nobody looks for."""

    def add(self, one: _Reference) -> None:
        key = one.match_key
        self.inside[key] = self.inside.get(key, False) or one.inside
        if one.inside:
            self.path[key] = min(self.path.get(key, one.path), one.path)
        if one.outside:
            self.outside[key] = min(self.outside.get(key, one.path), one.path)
        if one.guarded_name is not None:
            self.guarded.add(one.guarded_name)


class PlainEngine:
    """Finds orphans with nothing but Python's own collections."""

    name = "plain"

    def __init__(
        self, *, storage: Storage, decoder: Callable[[FormatName], Decode], known: Known | None = None
    ) -> None:
        """`known` holds what was decoded before, by the source and its very bytes."""
        self._storage = storage
        self._decoder = decoder
        self._known: Known = {} if known is None else known

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        """List, then mark, then judge."""
        listing = await planned(job, self._storage)
        stored = await self._list(listing, job.layout.match_by)
        listing.check_rows(len(stored))
        marked = await job.mark()
        references, skipped = await self._read(job, marked.references)
        held, expired, expired_bare = _sorted_out(references)
        listed = {row[-1] for row in stored}
        judged = _judged(job, stored, held, expired, expired_bare)
        lost = {key: held.path[key] for key, inside in held.inside.items() if inside and key not in listed}
        lost = lost if common.looks_for_missing(job) else {}
        seen = await self._look_again(job, lost, len(stored)) if lost else set()
        missing = sorted(path for key, path in lost.items() if key not in seen)
        digest = _write(job.rows_path, judged)
        findings = _findings(stored, judged, missing, held)
        return common.assemble(
            job, listing, marked, findings, skipped=skipped, digest=digest, engine=self.name, timings=_no_timings()
        )

    async def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        """Decode some sources now. Raises Unreadable on a retained one; an expired one is left out."""
        for source in sources:
            batch = await self._decoded(source, common.naming)
            if batch is not None:
                yield source, batch

    async def aclose(self) -> None:
        """Nothing to give back."""

    async def _list(self, listing: Listing, match_by: MatchBy) -> list[tuple[Any, ...]]:
        """Rows (path, size, time, etag, match key) of everything that is stored."""
        found: list[tuple[Any, ...]] = []
        for shard in listing.shards:
            async with aclosing(shard.rows(self._storage)) as pages:
                async for page in pages:
                    found += self._rows_of(page, match_by)
        return found

    def _rows_of(self, page: pa.RecordBatch, match_by: MatchBy) -> list[tuple[Any, ...]]:
        known = self._known.get((id(page), match_by))
        if known is None:
            columns = [page.column(name).to_pylist() for name in ("path", "size_bytes", "etag")]
            columns.insert(2, moments(page.column("modified_at")))
            keys = addresses.match_keys(page.column("path"), match_by).to_pylist()
            # With the page itself: as long as it lives nothing else has its id.
            known = self._known[id(page), match_by] = (page, list(zip(*columns, keys, strict=True)))
        return known[1]  # type: ignore[no-any-return]

    async def _read(self, job: OrphanJob, references: References) -> tuple[list[_Reference], int]:
        match_by, roots = job.layout.match_by, job.roots
        found: list[_Reference] = []
        skipped = 0
        for role, paths, tolerated in common.named_directly(references):
            try:
                found += _rows(addresses.place(paths, role, match_by, roots, tolerated))
            except Indeterminate:
                if role is Role.NAMED:
                    raise
                skipped += 1
        decoded = [(source, await self._decoded(source, _as_it_is)) for source in references.sources]
        skipped += sum(batch is None for _, batch in decoded)
        place = common.placing(match_by, roots)
        for retained in (True, False):
            same = [(source, batch) for source, batch in decoded if batch is not None and source.retained is retained]
            placed, left_out = _placed(same, place)
            found += placed
            skipped += left_out
        return found, skipped

    async def _decoded(
        self, source: ReferenceSource, use: Callable[[ReferenceSource, pa.RecordBatch], pa.RecordBatch]
    ) -> pa.RecordBatch | None:
        try:
            data = await self._storage.read(source.location, source.size_bytes if source.entries is None else None)
            key = (source.cache_key, data)
            if key not in self._known:
                self._known[key] = self._decoder(source.format)(source, data)
            return use(source, self._known[key])
        except (StorageError, Indeterminate) as exc:
            _check_skippable(source, exc)
            return None

    async def _look_again(self, job: OrphanJob, lost: dict[str, str], listed: int) -> set[str]:
        """Match keys of those that are there after all."""
        if len(lost) <= common.asked_singly(listed) and all("/" in path for path in lost.values()):
            seen = await common.there_after_all(self._storage, list(lost.items()), 16, job.cutoff)
            if None not in seen:
                return {key for key in seen if key is not None}
        return {row[-1] for row in await self._list(of_roots(job), job.layout.match_by)}


def _no_timings() -> dict[str, float]:
    return dict.fromkeys(("list", "mark", "read", "judge", "look_again", "write"), 0.0)


def _rows(placed: pa.RecordBatch) -> list[_Reference]:
    columns = [column.to_pylist() for column in placed.columns]
    columns[2] = addresses.placed_keys(placed).to_pylist()
    return [_Reference(*row) for row in zip(*columns, strict=True)]


def _as_it_is(_: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _placed(
    decoded: Sequence[tuple[ReferenceSource, pa.RecordBatch]],
    place: Callable[[ReferenceSource, pa.RecordBatch], pa.RecordBatch],
) -> tuple[list[_Reference], int]:
    """References of sources that are all retained, or all expired, and how many sources cannot be placed. All at once;
    if that does not work, one by one, to know which of them it is."""
    if not decoded:
        return [], 0
    try:
        whole = [batch for _, batch in decoded]
        return _rows(place(decoded[0][0], whole[0] if len(whole) == 1 else pa.concat_batches(whole))), 0
    except (Indeterminate, pa.ArrowException):
        pass
    found: list[_Reference] = []
    left_out = 0
    for source, batch in decoded:
        try:
            found += _rows(place(source, batch))
        except Indeterminate as exc:
            _check_skippable(source, exc)
            left_out += 1
    return found, left_out


def _sorted_out(references: Sequence[_Reference]) -> tuple[_Held, set[str], set[str]]:
    """What keeps files, and the addresses and bare names that expiring snapshots free."""
    held = _Held()
    said: dict[str, list[_Reference]] = defaultdict(list)
    for one in references:
        said[one.role].append(one)
    released = {one.address for one in said[Role.RELEASED] if one.address is not None}
    released_bare = {one.match_key for one in said[Role.RELEASED] if one.address is None}
    for one in said[Role.NAMED]:
        held.add(one)
    for one in said[Role.READ]:
        if one.address not in released and one.match_key not in released_bare:
            held.add(one)
    for one in said[Role.COUNTED]:
        if one.outside and one.address not in released:
            held.outside[one.match_key] = min(held.outside.get(one.match_key, one.path), one.path)
    expired = {one.address for one in said[Role.EXPIRED] if one.address is not None}
    expired_bare = {one.match_key for one in said[Role.EXPIRED] if one.address is None}
    return held, expired, expired_bare


def _judged(
    job: OrphanJob, stored: Sequence[tuple[Any, ...]], held: _Held, expired: set[str], expired_bare: set[str]
) -> list[tuple[Any, ...]]:
    """Rows (path, size, time, etag, verdict, kind, reason, stage) of what nothing keeps."""
    found = []
    for path, size, modified_at, etag, key in stored:
        if key in held.inside:
            continue
        kind = job.layout.classify(path)
        goes = path in expired or key in expired_bare
        elsewhere = key.rpartition("/")[2] in held.guarded
        said = classify.judge(kind, expired=goes, elsewhere=elsewhere, modified_at=modified_at, cutoff=job.cutoff)
        reason = None if said is not Verdict.ORPHAN else Reason.EXPIRED if goes else Reason.UNREFERENCED
        found.append((path, size, modified_at, etag, said, kind.kind, reason, kind.stage))
    return found


def _write(rows_path: str, judged: Sequence[tuple[Any, ...]]) -> str:
    rows = sorted((row for row in judged if row[4] is Verdict.ORPHAN), key=lambda row: (row[7], row[0]))
    try:
        with plan_file.PlanWriter(rows_path) as plan:
            if rows:
                path, size, modified_at, etag, _, kind, reason, stage = zip(*rows, strict=True)
                columns = (path, size, modified_at, etag, kind, [str(one) for one in reason], stage)
                arrays = [
                    pa.array(column, one.type) for column, one in zip(columns, plan_file.PLAN_SCHEMA, strict=True)
                ]
                plan.write(pa.RecordBatch.from_arrays(arrays, schema=plan_file.PLAN_SCHEMA))
    except OSError as exc:
        raise EngineFailed(f"the plain engine could not finish: {exc}") from exc
    return plan.digest


def _tallies(sizes: Mapping[Key, Sequence[int]]) -> dict[Key, Tally]:
    return {key: Tally(files=len(those), bytes=sum(those)) for key, those in sizes.items()}


def _findings(
    stored: Sequence[tuple[Any, ...]], judged: Sequence[tuple[Any, ...]], missing: list[str], held: _Held
) -> Findings:
    sizes: dict[Verdict, list[int]] = {one: [] for one in Verdict}
    by_kind: dict[str, list[int]] = defaultdict(list)
    by_reason: dict[Reason, list[int]] = defaultdict(list)
    for _, size, _, _, said, kind, reason, _ in judged:
        sizes[said].append(size)
        if reason is not None:
            by_kind[kind].append(size)
            by_reason[reason].append(size)
    verdicts = _tallies(sizes)
    gone = sum((size for _, size, *_ in judged), 0)
    total = sum((size for _, size, *_ in stored), 0)
    verdicts[Verdict.LIVE] = Tally(files=len(stored) - len(judged), bytes=total - gone)
    going = {path.rpartition("/")[2] for path, _, _, _, said, *_ in judged if said is Verdict.ORPHAN}
    clash = sorted({path.rpartition("/")[2] for path in missing} & going)
    metadata = [(row[2], row[0]) for row in judged if row[5] == "metadata"]
    known = sorted((one for one in metadata if one[0] is not None), key=lambda one: (-one[0].timestamp(), one[1]))
    newest_first = [*sorted(path for when, path in metadata if when is None), *(path for _, path in known)]
    return Findings(
        verdicts=verdicts,
        by_kind=_tallies(by_kind),
        by_reason=_tallies(by_reason),
        references=len(held.inside),
        missing=tuple(missing[:MISSING_SHOWN]),
        missing_count=len(missing),
        missing_clash=tuple(clash[:MISSING_SHOWN]),
        unverified=len(held.outside),
        unverified_first=min(held.outside.values(), default=None),
        unverified_shown=tuple(sorted(held.outside.values())[:MISSING_SHOWN]),
        unreferenced_metadata=tuple(newest_first[:METADATA_SHOWN]),
    )
