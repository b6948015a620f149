"""Both engines give one plan, to the last file: random tables of every format, whole, short of a file or cut.

The tables are on local disk, so that Spark's workers, which are other processes, read the same bytes. Between a
table and its plan everything is the product's own; only the histories come from the other laws.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.builders.cycles import SetClock
from tests.builders.paimon_steps import NOW, MovingTable, Step
from tests.builders.small_spark import SMALL_SPARK
from tests.builders.stores import StorageSpec
from tests.builders.surroundings import Alone
from tests.laws import examples
from tests.laws.worlds import delta, iceberg, paimon
from tests.peers.spark import ON_SPARK

from lakesweep.cleanup import guards, plan_file
from lakesweep.cleanup.mark import Marking
from lakesweep.engines import registry as engines
from lakesweep.engines.spark.session import shared_runtime
from lakesweep.formats import registry as formats
from lakesweep.formats.delta.table import VacuumMode
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.engine import Engine, OrphanJob
from lakesweep.ports.table import Table
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.memory import bucket, forget
from lakesweep.storage.registry import open_storage

pytestmark = ON_SPARK

LAWS = settings(
    deadline=None,
    max_examples=examples(3, soak=100),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink would take hundreds of jobs on Spark
)
SPEC = StorageSpec(attempts=1)
HARMS = st.one_of(st.none(), st.tuples(st.sampled_from(["lost", "lost", "cut"]), st.integers(0, 999)))
"""What befalls the table before it is planned: its n-th data file is gone, or its n-th metadata file is cut."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A table `t` on disk, as the settings would describe it, and when and by which rules it is planned."""

    home: Path
    spec: DatasetSpec
    policy: CleanupPolicy
    now: datetime
    data: list[Path]
    metadata: list[Path]

    def harm(self, kind: str, at: int) -> None:
        victims = self.data if kind == "lost" else self.metadata
        if not victims:
            return
        victim = victims[at % len(victims)]
        note(f"{kind}: {victim}")
        if kind == "lost":
            victim.unlink()
        else:
            os.truncate(victim, victim.stat().st_size // 2)


def on_iceberg(home: Path, steps: list[str], cut: float, keep: int) -> Subject:
    world = iceberg.build(home, ([*steps, "old_orphan"], cut, keep))
    warehouse = home / "lake" / "wh"
    return Subject(
        home=home,
        spec=_spec(home / "lake", FormatName.ICEBERG, catalog=world.table.lake.properties, namespace="db"),
        policy=world.policy,
        now=world.clock.now(),
        data=sorted(warehouse.rglob("data/*.parquet")),
        metadata=sorted(warehouse.rglob("metadata/*.avro")),
    )


def on_delta(home: Path, steps: list[str], hours: int, kind: str, mode: str) -> Subject:
    world = delta.build(home, ([*steps, "old_orphan"], hours, kind, VacuumMode(mode), 1))
    log = world.place.path / "_delta_log"
    return Subject(
        home=home,
        spec=_spec(home / "lake", FormatName.DELTA, location=Location.parse(str(home / "lake")), vacuum_mode=mode),
        policy=delta.POLICY,
        now=delta.NOW,
        data=sorted(path for path in world.place.path.rglob("*.parquet") if log not in path.parents),
        metadata=sorted(path for path in log.rglob("*") if path.is_file()),
    )


def on_paimon(home: Path, history: list[Step], keep: int) -> Subject:
    """The model writes to memory; here its objects become files, times and all."""
    name = uuid.uuid4().hex
    try:
        table = MovingTable(bucket(name), "wh/d.db/t", NOW - timedelta(days=1))
        for step in history:
            step(table)
        table.stray("young", old=False)
        table.stray("old", old=True)
        for key, held in bucket(name).objects.items():
            path = home / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held.data)
            os.utime(path, (held.modified_at.timestamp(), held.modified_at.timestamp()))
    finally:
        forget(name)
    return Subject(
        home=home,
        spec=_spec(home, FormatName.PAIMON, warehouse=Location.parse(str(home / "wh")), database="d"),
        policy=CleanupPolicy(max_snapshot_age=timedelta(0), min_snapshots_to_keep=keep),
        now=NOW,
        data=sorted(home.rglob("bucket-*/*")),
        metadata=sorted(home.rglob("manifest/*")),
    )


def _spec(root: Path, format: FormatName, **more: object) -> DatasetSpec:
    tenant = TenantId("acme")
    return DatasetSpec(tenant=tenant, tenant_root=Location.parse(str(root)), dataset="d", format=format, **more)


@pytest.fixture(scope="module", autouse=True)
def spark_kept():
    """One session for all examples: closing an engine stops Spark only if nobody else uses it."""
    kept = shared_runtime(SMALL_SPARK)
    yield
    asyncio.run(kept.aclose())


@pytest.fixture
def home():
    # Spark does not wait for the other tasks of a job that failed: one of them may still be writing its rows.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@LAWS
@given(steps=iceberg.STEPS, cut=st.floats(0, 1), keep=st.integers(1, 3), harm=HARMS)
async def test_both_engines_give_the_same_plan_of_an_iceberg_table(home, steps, cut, keep, harm):
    await check_that_engines_agree(on_iceberg(fresh(home), steps, cut, keep), harm)


@LAWS
@given(
    steps=delta.STEPS,
    hours=st.integers(1, 40),
    kind=st.sampled_from(delta.KINDS),
    mode=st.sampled_from(["full", "full", "lite"]),
    harm=HARMS,
)
async def test_both_engines_give_the_same_plan_of_a_delta_table(home, steps, hours, kind, mode, harm):
    await check_that_engines_agree(on_delta(fresh(home), steps, hours, kind, mode), harm)


@LAWS
@given(history=paimon.HISTORIES, keep=st.integers(1, 4), harm=HARMS)
async def test_both_engines_give_the_same_plan_of_a_paimon_table(home, history, keep, harm):
    await check_that_engines_agree(on_paimon(fresh(home), history, keep), harm)


def fresh(home: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=home))


async def check_that_engines_agree(subject: Subject, harm: tuple[str, int] | None) -> None:
    """The same rows, digest, tallies and missing files; of a table that cannot be read, the same sentence. On Spark
    once joined by Spark, and once more joined here, with what the cache knows by then."""
    if harm is not None:
        subject.harm(*harm)
    one = await planned(subject, "inprocess")
    for small_rows in (0, None):
        check_that_plans_agree(subject, harm, one, await planned(subject, "spark", small_rows))


def check_that_plans_agree(
    subject: Subject, harm: tuple[str, int] | None, one: OrphanPlan | LakesweepError, other: OrphanPlan | LakesweepError
) -> None:
    if isinstance(one, LakesweepError) or isinstance(other, LakesweepError):
        note(f"{one!r} {other!r}")
        assert harm is not None
        assert (type(other), str(other)) == (type(one), str(one))
        return
    if harm is None and subject.spec.vacuum_mode != "lite":
        assert one.candidates.files > 0, "the old orphan is not found"
    assert plan_file.digest(other.rows_path) == other.digest == one.digest
    assert replace(other, engine=one.engine, timings=one.timings, rows_path=one.rows_path) == one


async def planned(subject: Subject, kind: str, small_rows: int | None = None) -> OrphanPlan | LakesweepError:
    """What one engine makes of the table, or why it makes nothing of it."""
    async with contextlib.AsyncExitStack() as closing:
        storage = await closing.enter_async_context(contextlib.aclosing(open_storage(SPEC)))
        dataset = formats.open_format(subject.spec, Tools(storage=storage, clock=SetClock(subject.now)))
        common = {
            "storage": storage,
            "decoder": formats.decoder,
            "data_dir": subject.home / kind,
            "cache_key": b"k" * 32,
        }
        engine: Engine = (
            engines.open_inprocess(**common, memory_limit="256MB")
            if kind == "inprocess"
            else engines.open_spark(**common, spec=SPEC, config=SMALL_SPARK, small_rows=small_rows)
        )
        closing.push_async_callback(engine.aclose)
        ref = TableRef(tenant=subject.spec.tenant, dataset="d", name="t", format=subject.spec.format)
        try:
            return await engine.find_orphans(await job(subject, await dataset.open(ref), kind))
        except LakesweepError as exc:
            return exc


async def job(subject: Subject, table: Table, kind: str) -> OrphanJob:
    """As a cycle puts it together."""
    state = await table.load()
    return OrphanJob(
        ref=table.ref,
        roots=state.roots,
        layout=state.layout,
        cutoff=guards.cutoff(subject.policy, state.minimum_age, subject.now, subject.now),
        shortlist=state.shortlist,
        mark=Marking(
            table=table,
            state=MemoryStateStore(SetClock(subject.now)),
            policy=subject.policy,
            now=subject.now,
            surroundings=Alone(),
        ),
        rows_path=str(subject.home / f"{kind}.parquet"),
    )
