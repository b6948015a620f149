"""A real Flink job: stopped with a savepoint, its table cleaned as if 30 hours had passed, and started again.

What it wrote last is known to the savepoint alone. It has to find that, and its newest commit, or rows are lost, are
there twice, or the table cannot be read any more.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.builders import paimon
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import Lake, LakeTable
from tests.peers import jars
from tests.peers.flink import FlinkStream
from tests.peers.paimon import shared_peer

from lakesweep.model.files import Verdict
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome

BATCH = -1
"""The row of another writer, whose commits come between those of the stream."""
POLICY = CleanupPolicy(max_snapshot_age=timedelta(0))

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("flink")]


def stream(connector: str, commits: Path, name: str, **properties: str) -> FlinkStream:
    try:
        jars.jars("flink")
        jars.jars(connector)
    except RuntimeError as exc:
        pytest.skip(f"Flink cannot be had: {exc}")
    catalog = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    savepoints = commits.parents[3] / "savepoints"
    return FlinkStream(connector=connector, catalog=catalog, commits=commits, name=name, savepoints=savepoints)


def check_whole(ids: list[int], before: list[int]) -> None:
    """Each number once, without a gap, and more of them than before."""
    numbers = sorted(one for one in ids if one != BATCH)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > len([one for one in before if one != BATCH]) > 0


def check_cleaned(run: CleanupRun) -> None:
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots
    assert run.plan is not None
    assert run.plan.verdicts[Verdict.YOUNG].files > 0
    assert "writes to this table" in (run.stream or "")


def in_30_hours() -> SetClock:
    return SetClock(datetime.now(UTC) + timedelta(hours=30))


async def test_flink_goes_on_from_a_savepoint_after_an_iceberg_table_was_cleaned(tmp_path: Path):
    root = tmp_path / "lake"
    root.mkdir()
    job = stream(
        "iceberg-flink",
        root / "wh" / "db" / "t" / "metadata",
        r"snap-.*\.avro",
        type="iceberg",
        **{"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version": "V1"},
        uri=f"jdbc:sqlite:{root}/catalog.db",
        warehouse=f"file://{root}/wh",
    )
    savepoint = job.run()
    properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "name": "lake"}
    lake = Lake(root=root, properties=properties, catalog=load_catalog(**properties, warehouse=f"file://{root}/wh"))
    table = LakeTable(lake=lake, name="t", table=lake.catalog.load_table("db.t"))
    before = [row["id"] for row in table.rows()]
    for _ in range(2):
        table.refresh().append(pa.table({"id": pa.array([BATCH], pa.int64())}))
    bench = Bench(root=root, clock=in_30_hours(), scratch=tmp_path / "scratch")
    handle = await lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    check_cleaned(await bench.run(handle, POLICY))
    job.run(savepoint)
    check_whole([row["id"] for row in table.rows()], before)


async def test_flink_goes_on_from_a_savepoint_after_a_paimon_table_was_cleaned(tmp_path: Path):
    warehouse = tmp_path / "lake"
    path = warehouse / "db.db" / "t"
    job = stream("paimon-flink", path / "snapshot", r"snapshot-\d+", type="paimon", warehouse=f"file://{warehouse}")
    savepoint = job.run()
    java = shared_peer()
    before = [int(row) for row in java("read", path=str(path))]
    for _ in range(2):
        java("write", path=str(path), rows=[[BATCH]])
    bench = Bench(root=warehouse, clock=in_30_hours(), scratch=tmp_path / "scratch")
    check_cleaned(await paimon.clean(path, bench, paimon.everything_old()))
    job.run(savepoint)
    check_whole([int(row) for row in java("read", path=str(path))], before)
