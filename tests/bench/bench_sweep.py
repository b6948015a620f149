"""What a sweep costs besides deleting: `python -m tests.bench.bench_sweep`.

Everything is real (the plan's file, the gate, the audit trail on disk, the journal in SQLite) but the store, which
answers at once that all is deleted. The figure is CPU time per file, of all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from tests.builders.audits import REF, Shelf, a_run
from tests.builders.surroundings import Alone

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.cleanup.sweep import Sweep
from lakesweep.daemon.lease import HeldLease, Moment
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.ports.deleter import Conditions, Deleted, DeleteStatus
from lakesweep.ports.table import MatchBy
from lakesweep.state.registry import open_state

ROOT = Location.parse("s3://lake/acme/orders")
HOUR = timedelta(hours=1)


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class AnsweringDeleter:
    """Does nothing, and says that it is done."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        return [Deleted(path=path, status=DeleteStatus.DELETED) for path in paths]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        return 0

    async def aclose(self) -> None:
        pass


def write_plan(path: Path, files: int) -> str:
    """Files of one partitioned table. The plan's digest."""
    columns = [
        pa.array(f"{ROOT.raw}/data/day={number // 1000:05}/{number:012}-c000.parquet" for number in range(files)),
        pa.array(range(files), pa.int64()),
        pa.array(range(files), pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
        pa.nulls(files, pa.string()),
        pa.repeat("data", files),
        pa.repeat("unreferenced", files),
        pa.repeat(pa.scalar(0, pa.int32()), files),
    ]
    with plan_file.PlanWriter(str(path)) as writer:
        writer.write(pa.RecordBatch.from_arrays(columns, schema=plan_file.PLAN_SCHEMA))
    return writer.digest


async def sweep(folder: Path, files: int) -> float:
    """CPU seconds of one sweep."""
    digest = write_plan(folder / "plan.parquet", files)
    run = a_run()
    assert run.plan is not None
    async with aclosing(await open_state(f"sqlite:///{folder}/state.db", SystemClock())) as state:
        await state.start_run(run)
        lease = await state.acquire_lease(REF.label, "bench", HOUR)
        assert lease is not None

        async def one_reference() -> frozenset[str]:
            return frozenset({f"{ROOT.raw}/metadata/v2.json"})

        sweeping = Sweep(
            run_id=run.id,
            plan=replace(run.plan, rows_path=str(folder / "plan.parquet"), digest=digest),
            match_by=MatchBy.ADDRESS,
            policy=CleanupPolicy(),
            deleter=GatedDeleter(AnsweringDeleter(), tenant_root=ROOT, table_roots=[ROOT]),
            journal=state,
            audit=Shelf(Location.parse(str(folder / "artifacts")), state=state).trail(run.id),
            fence=HeldLease(state, lease, HOUR, Moment.now()),
            revalidate=one_reference,
            check_not_held=Alone().check_not_held,
            stop=asyncio.Event(),
            progress=lambda _: None,
        )
        began = time.process_time()
        result = await sweeping.run()
        took = time.process_time() - began
    assert result.report.deleted.files == files, result
    return took


def main() -> None:
    """Print the best of some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    took = []
    for _ in range(chosen.rounds):
        with tempfile.TemporaryDirectory() as folder:
            took.append(asyncio.run(sweep(Path(folder), chosen.files)))
    print(f"{chosen.files:,} files, best of {chosen.rounds}: {min(took) / chosen.files * 1e6:.1f} us of CPU per file")


if __name__ == "__main__":
    main()
