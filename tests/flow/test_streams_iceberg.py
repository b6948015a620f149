"""A stream that stopped finds all it needs when it comes back: its newest commit, and files that only it knows."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from tests.builders.cycles import AlwaysOurs, Bench, SetClock
from tests.builders.iceberg import Lake, LakeTable, later
from tests.builders.iceberg_manifests import Entry, manifest_bytes
from tests.builders.iceberg_wrapped import Wrapped

from lakesweep.cleanup import plan_file, report
from lakesweep.cleanup.explain import Explainer, Explanation
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.files import Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(hours=24))
JOB, OPERATOR = "f615bf1e49d7868e3fdaa58b5747dbf2", "90bea66de1c231edf33913ecd54406c1"
FLINK = {"flink.job-id": JOB, "flink.operator-id": OPERATOR, "flink.max-committed-checkpoint-id": "4"}
KAFKA = {"kafka.connect.offsets.control.group": '{"0":7}', "kafka.connect.commit-id": "c"}
DATA = "data/00000-0-a6c8cd23-07dc-4bb8-9fe6-6c35e3e2ac9f-00005.parquet"
PENDING = f"metadata/{JOB}-{OPERATOR}-00000-0-5-00005.avro"


def put(table: LakeTable, name: str, data: bytes = b"data", *, at: datetime | None = None) -> Path:
    path = Path(Location.parse(table.refresh().location()).path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if at is not None:
        os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def pend(table: LakeTable, *data: Path, name: str = PENDING, at: datetime | None = None) -> Path:
    """A manifest of the next checkpoint, as Flink leaves it when it stops."""
    return put(table, name, manifest_bytes([Entry(path=f"file://{one}") for one in data]), at=at)


async def opened(table: LakeTable, bench: Bench) -> IcebergTable:
    return await table.lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)


async def clean(table: LakeTable, bench: Bench, policy: CleanupPolicy = POLICY, *, execute: bool = True) -> CleanupRun:
    run = await bench.run(await opened(table, bench), policy, execute=execute)
    assert run.outcome is (Outcome.DONE if execute else Outcome.DRY_RUN), run.reason
    return run


async def told(table: LakeTable, bench: Bench, path: Path) -> Explanation:
    engine = engines.open_inprocess(
        storage=bench.storage, decoder=formats.decoder, data_dir=bench.scratch, memory_limit="512MB"
    )
    handle = await opened(table, bench)
    explainer = Explainer(table=handle, storage=bench.storage, engine=engine, policy=POLICY, clock=bench.clock)
    try:
        return await explainer.explain(Location.parse(f"file://{path}"))
    finally:
        await engine.aclose()


async def test_a_job_that_was_down_for_30_hours_finds_its_files(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1, summary=FLINK)
    data = put(table, DATA)
    manifest = pend(table, data)
    run = await clean(table, bench)
    assert data.exists()
    assert manifest.exists()
    assert run.plan is not None
    assert run.plan.verdicts[Verdict.YOUNG].files >= 1
    assert JOB in (report.plan_document(run, ())["stream"] or "")


async def test_a_table_without_streams_has_the_grace_period(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1, summary={"spark.app.id": "local-1"})
    data = put(table, DATA)
    run = await clean(table, bench)
    assert not data.exists()
    assert report.plan_document(run, ())["stream"] is None


async def test_after_stream_state_hours_a_streams_leftovers_go(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=169))
    table = lake.create()
    table.append(1, summary=FLINK)
    data = put(table, DATA)
    manifest = pend(table, data)
    await clean(table, bench)
    assert not manifest.exists()
    await clean(table, bench)
    assert not data.exists()
    assert len(table.rows()) == 1


async def test_a_pending_manifest_alone_names_its_job(lake: Lake, bench: Bench):
    """Before its first commit no snapshot does."""
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1)
    data, other = put(table, DATA), put(table, "data/other.parquet")
    manifest = pend(table, data)
    await clean(table, bench)
    assert data.exists()
    assert manifest.exists()
    assert other.exists()


async def test_what_a_pending_manifest_lists_stays_with_it_however_old(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1, summary=FLINK)
    data, other = (put(table, name, at=later(hours=-400)) for name in (DATA, "data/other.parquet"))
    pend(table, data)
    explained = await told(table, bench, data)
    assert explained.verdict is Verdict.LIVE
    assert JOB in " ".join(explained.sentences)
    await clean(table, bench)
    assert data.exists()
    assert not other.exists()


async def test_a_pending_manifest_in_a_place_of_its_own_protects_what_it_lists(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1)
    table.set({"flink.manifests.location": f"file://{lake.root}/flink"})
    old, young = put(table, DATA, at=later(hours=-400)), put(table, "data/young.parquet")
    pend(table, old, name=f"../../../flink/{Path(PENDING).name}")
    await clean(table, bench)
    assert old.exists()
    assert young.exists()


async def test_a_torn_pending_manifest_stops_nothing(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1)
    manifest = put(table, PENDING, b"Obj\x01 and no more")
    gone = put(table, "data/gone.parquet", at=later(hours=-400))
    await clean(table, bench)
    assert manifest.exists()
    assert not gone.exists()


async def test_explain_says_that_a_stream_may_come_back(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1, summary=FLINK)
    explained = await told(table, bench, put(table, DATA))
    assert explained.verdict is Verdict.YOUNG
    assert explained.sentences[-1] == (
        f"Flink job {JOB}, operator {OPERATOR} writes to this table, so unreferenced files stay for 168 h "
        "(stream_state_hours): it may come back and commit them"
    )
    assert explained.deletable_from is not None
    assert explained.deletable_from > later(hours=167)


async def test_the_newest_commit_of_each_stream_survives_an_expiry(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=100))
    table = lake.create()
    first = table.append(1, summary=FLINK)
    job, sink = table.append(2, summary=FLINK), table.append(3, summary=KAFKA)
    batch, last = table.append(4), table.append(5)
    run = await clean(table, bench)
    assert table.snapshot_ids() == {job, sink, batch, last}
    assert run.expired_snapshots == (str(first),)
    kept = {one["id"]: one["why"] for one in report.plan_document(run, ())["expire"]["kept_because"]}
    assert kept[str(job)].startswith(f"newest commit of Flink job {JOB}, operator {OPERATOR} on branch main")
    assert kept[str(sink)].startswith("newest commit of Kafka Connect sink control.group on branch main")
    bench.clock = SetClock(later(hours=169))
    await clean(table, bench)
    assert table.snapshot_ids() == {last}


async def test_a_commit_of_the_expiry_asks_again_what_streams_need(lake: Lake, bench: Bench):
    """By the plan the first snapshot goes. Then somebody rolls back to it, and a batch comes."""
    bench.clock = SetClock(later(hours=100))
    table = lake.create()
    first, second = table.append(1, summary=FLINK), table.append(2, summary=FLINK)
    handle = await opened(table, bench)
    state = await handle.load()
    now = bench.clock.now()
    assert [one.id for one in state.plan_expiry(POLICY, now).expire] == [str(first)]
    table.rollback(first)
    table.append(3)
    _, committed = await handle.commit_expiry(state, POLICY, now, AlwaysOurs())
    assert committed.expire == ()
    assert {first, second} <= table.snapshot_ids()


class Joined(Wrapped):
    """A table that a stream begins to write to while it is swept."""

    def __init__(self, inner: IcebergTable, table: LakeTable) -> None:
        super().__init__(inner)
        self._table = table

    async def commit_expiry(self, *args):
        committed = await self._inner.commit_expiry(*args)
        self._table.append(9, summary=FLINK)
        return committed


async def test_a_sweep_ends_when_a_stream_begins_to_write(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    stray = put(table, DATA)
    run = await bench.run(Joined(await opened(table, bench), table), POLICY)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal is not None
    assert run.refusal.code == "table_changed"
    assert stray.exists()


async def test_a_plan_has_no_file_that_a_stream_may_commit(lake: Lake, bench: Bench):
    bench.clock = SetClock(later(hours=30))
    table = lake.create()
    table.append(1, summary=KAFKA)
    put(table, DATA)
    run = await clean(table, bench, execute=False)
    assert run.plan is not None
    assert [row for rows in plan_file.read_batches(run.plan.rows_path) for row in rows] == []
