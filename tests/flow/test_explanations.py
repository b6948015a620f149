"""What `explain` says of a file is what a plan decides on it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate
from tests.builders.cycles import Bench
from tests.builders.iceberg import Lake, LakeTable

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.explain import Explainer
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats
from lakesweep.model.files import Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=1))


def plant(table: LakeTable, name: str) -> str:
    path = Path(Location.parse(table.refresh().location()).path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left behind")
    return f"file://{path}"


def keep_outside(table: LakeTable, name: str) -> None:
    """Statistics of the current snapshot in a place where nobody looks, as in a table that was copied."""
    path = table.lake.root / "elsewhere" / name
    path.parent.mkdir()
    path.write_bytes(b"stat")
    file = PartitionStatisticsFile(
        **{"snapshot-id": table.current, "statistics-path": f"file://{path}", "file-size-in-bytes": 4}
    )
    update = SetPartitionStatisticsUpdate(**{"partition-statistics": file})
    table.lake.catalog.commit_table(table.refresh(), (), (update,))


async def test_a_file_is_explained_as_an_orphan_if_and_only_if_a_plan_lets_it_go(lake: Lake, bench: Bench):
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    for name in ("data/orphan.parquet", "data/.hidden", "notes.txt", "metadata/stats-1.parquet"):
        plant(table, name)
    keep_outside(table, "stats-1.parquet")
    handle = await lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    plan = (await bench.run(handle, POLICY, execute=False)).plan
    going = {row.path for rows in plan_file.read_batches(plan.rows_path) for row in rows}
    engine = engines.open_inprocess(
        storage=bench.storage, decoder=formats.decoder, data_dir=bench.scratch, memory_limit="512MB"
    )
    explainer = Explainer(table=handle, storage=bench.storage, engine=engine, policy=POLICY, clock=bench.clock)
    found = {path: await explainer.explain(Location.parse(path)) for path in lake.files()}
    await engine.aclose()
    assert {path for path, told in found.items() if told.verdict is Verdict.ORPHAN} == going
    counts = {verdict: tally.files for verdict, tally in plan.verdicts.items() if tally.files}
    verdicts = [told.verdict for told in found.values()]
    assert {verdict: verdicts.count(verdict) for verdict in set(verdicts)} == counts
