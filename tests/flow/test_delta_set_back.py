"""A Delta log that was set back to a backup: acknowledged commits are kept as long as anything tells of them."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Theirs
from deltalake import write_deltalake
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import later

from lakesweep.daemon import holds
from lakesweep.formats.delta.table import DeltaTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId


@pytest.mark.parametrize("goes_on", [0, 1])
async def test_a_checkpoint_above_the_newest_commit_stops_the_table(tmp_path, goes_on):
    root = tmp_path / "lake" / "t"
    for number in range(6):
        write_deltalake(str(root), pa.table({"id": [number]}), mode="append")
    Theirs(str(root)).create_checkpoint()
    files = set(root.glob("*.parquet"))
    for path in (root / "_delta_log").glob("0*"):
        if int(path.name[:20]) > 2:
            path.unlink()
    hint = (root / "_delta_log" / "_last_checkpoint").read_bytes()
    for _ in range(goes_on):
        (root / "_delta_log" / "_last_checkpoint").unlink()
        write_deltalake(str(root), pa.table({"id": [7]}), mode="append")
    (root / "_delta_log" / "_last_checkpoint").write_bytes(hint)
    bench = Bench(root=tmp_path / "lake", clock=SetClock(later(days=60)), scratch=tmp_path / "scratch")
    ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.DELTA)
    table = DeltaTable(ref, Location.parse(str(root)), bench.storage, bench.clock)
    run = await bench.run(table, CleanupPolicy())
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "damaged_log"
    assert files <= set(root.glob("*.parquet"))


async def test_a_log_that_was_set_back_stops_the_table_until_it_is_held(tmp_path):
    root = tmp_path / "lake" / "t"
    for number in range(6):
        write_deltalake(str(root), pa.table({"id": [number]}), mode="append")
    bench = Bench(root=tmp_path / "lake", clock=SetClock(later(days=60)), scratch=tmp_path / "scratch")
    ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.DELTA)

    async def run():
        return await bench.run(DeltaTable(ref, Location.parse(str(root)), bench.storage, bench.clock), CleanupPolicy())

    assert (await run()).outcome is Outcome.DONE
    files = set(root.glob("*.parquet"))
    for path in (root / "_delta_log").glob("0*"):
        if int(path.name[:20]) > 2:
            path.unlink()
    for _ in range(2):  # as if the first process had ended before it could hold the table
        refused = await run()
        assert (refused.outcome, refused.refusal.code) == (Outcome.REFUSED, "log_set_back")
        assert files == set(root.glob("*.parquet"))
    await holds.hold_if_lasting(bench.store, refused, bench.clock.now())
    assert [hold.scope for hold in await bench.store.holds()] == ["acme/prod/t"]
    assert (await run()).outcome is Outcome.DONE  # a person has lifted the hold


async def test_a_table_created_anew_begins_its_history_anew(tmp_path):
    root = tmp_path / "lake" / "t"
    bench = Bench(root=tmp_path / "lake", clock=SetClock(later(days=60)), scratch=tmp_path / "scratch")
    ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.DELTA)
    for commits in (3, 1):
        shutil.rmtree(root, ignore_errors=True)
        for number in range(commits):
            write_deltalake(str(root), pa.table({"id": [number]}), mode="append")
        table = DeltaTable(ref, Location.parse(str(root)), bench.storage, bench.clock)
        assert (await bench.run(table, CleanupPolicy())).outcome is Outcome.DONE
