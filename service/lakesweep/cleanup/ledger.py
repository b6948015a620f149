"""The ledger of a table: which objects were seen unreferenced, and since when. It only keeps files, it never deletes
one.

With `confirm_after_hours` an object is deleted only if an earlier successful run saw it unreferenced at least that long
ago. The file is Parquet under `artifacts`, in the order of plans, and read beside a fresh plan, so it can only remove
rows from that plan. What a run may write to it depends on how the run ended:

    done      what it held back, files of snapshots that it expired included: from now on nothing refers to those.
              If one of those snapshots was kept after all, or if others committed between the plan and the expiry and
              may refer to such a file again, no file of an expiry counts as seen
    dry run   what it saw unreferenced; files of snapshots that it only would have expired are still referenced
    else      nothing new, and only what it saw unreferenced again stays in: a failed run never matures a file

A run that saw a file referenced therefore resets it. A ledger that cannot be read counts as empty: every file starts
again. So does one that is not what was written: its name, which only the state store knows, ends in the digest of its
bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.errors import EngineFailed, StorageError, Unreadable
from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.run import Fence
from lakesweep.ports.state import LedgerHeader, StateStore
from lakesweep.ports.storage import LISTING_SCHEMA

log = structlog.get_logger()

LEDGER_SCHEMA = pa.schema(
    [
        *LISTING_SCHEMA,
        pa.field("reason", pa.string(), nullable=False),
        pa.field("stage", pa.int32(), nullable=False),
        pa.field("first_seen", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
)
_OBSERVED_SCHEMA = LEDGER_SCHEMA.append(pa.field("known", pa.bool_())).append(pa.field("ripe", pa.bool_()))
"""All candidates of one plan, held back or not: what the next ledger is made from."""
_ROWS = 65_536
_DIGEST = re.compile(r"\.([0-9a-f]{64})\.parquet(/\d+)?$")


@dataclass(kw_only=True)
class Ledger:
    """One table's ledger during one cycle: `hold_back` after the plan is made, `settle` when the run has ended."""

    table: str
    run_id: str
    confirm_after: timedelta
    state: StateStore
    artifacts: Artifacts
    fence: Fence
    _observed: Path | None = field(init=False, default=None)
    _expiry: ExpiryPlan = field(init=False, default=ExpiryPlan(head=""))

    async def hold_back(
        self, plan: OrphanPlan, expiry: ExpiryPlan, started_at: datetime, seen_at: datetime
    ) -> OrphanPlan:
        """The plan without what has not been seen for long enough. Age is judged at the earlier of the two times."""
        if not self.confirm_after:
            return plan
        self._expiry = expiry
        observed = self.artifacts.file("ledgers", f"{self.run_id}.observed")
        header = await self.state.get_ledger(self.table)
        split = None
        if header is not None and header.rows_path:
            try:
                async with self.artifacts.opened(header.rows_path) as known:
                    await asyncio.to_thread(check_digest, known, header.rows_path)
                    split = await asyncio.to_thread(self._split, plan, known, observed, started_at, seen_at)
            except (Unreadable, StorageError, OSError) as exc:
                log.warning("ledger_unreadable", path=header.rows_path, reason=str(exc))
        if split is None:
            try:
                split = await asyncio.to_thread(self._split, plan, None, observed, started_at, seen_at)
            except (OSError, pa.ArrowException) as exc:
                raise EngineFailed(f"the ledger of unreferenced files cannot be written: {exc}") from exc
        self._observed = observed
        return split

    async def settle(self, run: CleanupRun, now: datetime) -> None:
        """Record what this run has proven. Without a complete plan nothing is changed."""
        header = await self.state.get_ledger(self.table)
        if not self.confirm_after:
            if header is not None and header.rows_path:
                # Nobody keeps it up to date from here on, so it must not be trusted later.
                await self._point_to("", header, now)
            return
        if self._observed is None:
            return
        try:
            address = await self._publish(self._observed, run)
        except (Unreadable, StorageError, OSError) as exc:
            # An old ledger would not know what this run saw referenced.
            log.warning("ledger_lost", reason=str(exc))
            address = ""
        finally:
            self._observed.unlink(missing_ok=True)
        await self._point_to(address, header, now)

    async def _publish(self, observed: Path, run: CleanupRun) -> str:
        written = self.artifacts.file("ledgers", f"{self.run_id}.parquet")
        kept = await asyncio.to_thread(_write_kept, observed, written, run, self._expiry)
        address = await self.artifacts.publish(kept)
        if address != str(kept):
            kept.unlink()
        return address

    async def _point_to(self, address: str, before: LedgerHeader | None, now: datetime) -> None:
        header = LedgerHeader(table=self.table, rows_path=address, updated_at=now, run_id=self.run_id)
        await self.fence.check()
        await self.state.set_ledger(header)
        if before is not None and before.rows_path:
            await self.artifacts.discard(before.rows_path)

    def _split(
        self, plan: OrphanPlan, known: str | None, observed: Path, started_at: datetime, seen_at: datetime
    ) -> OrphanPlan:
        """Rewrite the plan with the confirmed rows only, and write all rows to `observed`."""
        held = _Counts()
        going = _Counts()
        ripe_until = pa.scalar(started_at - self.confirm_after, LEDGER_SCHEMA.field("first_seen").type)
        observed.parent.mkdir(parents=True, exist_ok=True)
        ledger = _read(known) if known else iter(())
        with (
            pq.ParquetWriter(observed, _OBSERVED_SCHEMA, compression="zstd") as all_rows,
            plan_file.PlanWriter(plan.rows_path) as writer,
        ):
            for rows, seen in plan_file.look_up(plan_file.read_rows(plan.rows_path), ledger, "sighting"):
                first_seen, is_known = _sightings(rows, seen, seen_at)
                ripe = pc.and_(is_known, pc.less_equal(first_seen, ripe_until))
                all_rows.write_batch(_observed(rows, first_seen, is_known, ripe))
                writer.write(rows.filter(ripe))
                going.add(rows.filter(ripe))
                held.add(rows.filter(pc.invert(ripe)))
        return _with_rows(plan, going, held, writer.digest)


def check_digest(rows_path: str, address: str) -> None:
    """Raise Unreadable unless these bytes are those that were published under the address."""
    recorded = _DIGEST.search(address)
    if recorded is None or recorded[1] != _digest(Path(rows_path)):
        raise Unreadable(address, "it is not the ledger that was written")


def first_seen(rows_path: str, path: str) -> datetime | None:
    for rows in _read(rows_path):
        found = rows.filter(pc.equal(rows.column("path"), path))
        if found.num_rows:
            moment: datetime = found.column("first_seen")[0].as_py()
            return moment
    return None


@dataclass(kw_only=True)
class _Counts:
    by_kind: dict[str, Tally] = field(default_factory=dict)
    by_reason: dict[Reason, Tally] = field(default_factory=dict)
    total: Tally = field(default_factory=Tally)

    def add(self, rows: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([rows])
        grouped = table.group_by(["kind", "reason"]).aggregate([("size_bytes", "sum"), ("size_bytes", "count")])
        for group in grouped.to_pylist():
            tally = Tally(files=group["size_bytes_count"], bytes=group["size_bytes_sum"])
            kind, reason = group["kind"], Reason(group["reason"])
            self.by_kind[kind] = self.by_kind.get(kind, Tally()) + tally
            self.by_reason[reason] = self.by_reason.get(reason, Tally()) + tally
            self.total += tally


def _with_rows(plan: OrphanPlan, going: _Counts, held: _Counts, digest: str) -> OrphanPlan:
    young = plan.verdicts.get(Verdict.YOUNG, Tally()) + held.total
    return replace(
        plan,
        verdicts={**plan.verdicts, Verdict.ORPHAN: going.total, Verdict.YOUNG: young},
        candidates=going.total,
        by_kind=going.by_kind,
        by_reason=going.by_reason,
        unconfirmed=held.total,
        digest=digest,
    )


def _read(path: str) -> Iterator[pa.RecordBatch]:
    """The ledger's rows, each with its reason and time as one value: a match needs both."""
    with plan_file.damage_is_unreadable(path, "ledger"), pq.ParquetFile(path, page_checksum_verification=True) as file:
        if not file.schema_arrow.equals(LEDGER_SCHEMA):
            raise Unreadable(path, "it is not a ledger of this version")
        for rows in file.iter_batches(batch_size=_ROWS):
            if rows.num_rows:
                sighting = pa.StructArray.from_arrays(
                    [rows.column("first_seen"), rows.column("reason")], names=["first_seen", "reason"]
                )
                yield rows.append_column("sighting", sighting)


def _sightings(rows: pa.RecordBatch, seen: pa.Array, seen_at: datetime) -> tuple[pa.Array, pa.Array]:
    """When each row was first seen, and whether that is from the ledger."""
    kind = LEDGER_SCHEMA.field("first_seen").type
    now = pa.scalar(seen_at, kind)
    if pa.types.is_null(seen.type):
        return pa.repeat(now, rows.num_rows), pa.repeat(False, rows.num_rows)
    before = pc.struct_field(seen, "first_seen")
    # A file that only expiring snapshots reference is still referenced, so an earlier sighting means nothing.
    still_expired = pc.equal(pc.struct_field(seen, "reason"), Reason.EXPIRED.value)
    same_reason = pc.or_(pc.equal(rows.column("reason"), Reason.UNREFERENCED.value), still_expired)
    # A time ahead of ours was written by a clock that was turned back since.
    known = pc.and_(pc.is_valid(before), pc.and_(same_reason, pc.less_equal(before, now)))
    known = pc.fill_null(known, False)
    return pc.if_else(known, before, now), known


def _observed(rows: pa.RecordBatch, first_seen: pa.Array, known: pa.Array, ripe: pa.Array) -> pa.RecordBatch:
    kept = [rows.column(name) for name in (*LISTING_SCHEMA.names, "reason", "stage")]
    return pa.RecordBatch.from_arrays([*kept, first_seen, known, ripe], schema=_OBSERVED_SCHEMA)


def _write_kept(observed: Path, target: Path, run: CleanupRun, planned: ExpiryPlan) -> Path:
    """The file that was written: `target` with its digest in the name."""
    partial = target.with_suffix(".partial")
    try:
        with (
            plan_file.damage_is_unreadable(str(observed), "ledger"),
            pq.ParquetFile(observed) as file,
            pq.ParquetWriter(partial, LEDGER_SCHEMA, compression="zstd", write_page_checksum=True) as writer,
        ):
            for rows in file.iter_batches(batch_size=_ROWS):
                writer.write_batch(rows.filter(_stays(rows, run, planned)).select(LEDGER_SCHEMA.names))
        return partial.replace(target.with_suffix(f".{_digest(partial)}.parquet"))
    finally:
        partial.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _as_planned(planned: ExpiryPlan, run: CleanupRun) -> bool:
    """Did just what was planned expire, from the very state that was planned?"""
    same_state = planned.empty or (run.expiry is not None and run.expiry.head == planned.head)
    return same_state and {snapshot.id for snapshot in planned.expire} <= set(run.expired_snapshots)


def _stays(rows: pa.RecordBatch, run: CleanupRun, planned: ExpiryPlan) -> pa.Array:
    known, ripe = rows.column("known"), rows.column("ripe")
    unreferenced = pc.equal(rows.column("reason"), Reason.UNREFERENCED.value)
    match run.outcome:
        case Outcome.DONE if _as_planned(planned, run):
            return pc.invert(ripe)
        case Outcome.DONE:
            return pc.and_(unreferenced, pc.invert(ripe))
        case Outcome.DRY_RUN:
            return pc.or_(known, unreferenced)
        case _:
            # Some of the confirmed files were spared because something references them again.
            return pc.and_(known, pc.invert(ripe)) if run.spared else known
