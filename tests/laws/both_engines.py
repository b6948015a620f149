"""A table of any format on disk, and what each engine makes of it.

The tables are on local disk, so that Spark's workers, which are other processes, read the same bytes. Between a
table and its plan everything is the product's own; only the histories come from the other laws.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import note
from tests.builders.cycles import SetClock
from tests.builders.inventories import plain_file
from tests.builders.paimon_steps import NOW, MovingTable, Step
from tests.builders.small_spark import SMALL_SPARK
from tests.builders.stores import StorageSpec
from tests.builders.surroundings import Alone
from tests.laws.worlds import delta, iceberg

from lakesweep.cleanup import guards, plan_file
from lakesweep.cleanup.mark import Marking
from lakesweep.engines import registry as engines
from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.formats import registry as formats
from lakesweep.formats.delta.table import VacuumMode
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.engine import Engine, Everything, Inventory, OrphanJob
from lakesweep.ports.table import Table
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.memory import bucket, forget
from lakesweep.storage.registry import open_storage

SPEC = StorageSpec(attempts=1)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A table `t` on disk, as the settings would describe it, and when and by which rules it is planned."""

    home: Path
    spec: DatasetSpec
    policy: CleanupPolicy
    now: datetime
    data: list[Path]
    metadata: list[Path]
    inventory: bool = False

    @property
    def list_path(self) -> Path:
        """A plain Parquet file, as somebody else's job would write it."""
        return self.home / "list.parquet"

    def listed_before(self, asked: tuple[str, ...]) -> Inventory:
        return Inventory(
            address=Location.parse(str(self.list_path)),
            not_before=self.now - timedelta(days=1),
            not_after=self.now + timedelta(hours=1),
            asked=asked,
        )

    def write_inventory(self) -> None:
        files = [(path, path.stat()) for path in sorted(self.home.rglob("*")) if path.is_file()]
        rows = [
            {
                "path": f"file://{path}",
                "size_bytes": about.st_size,
                "modified_at": datetime.fromtimestamp(about.st_mtime, UTC),
                "etag": None,
            }
            for path, about in files
        ]
        self.list_path.write_bytes(plain_file(rows))
        os.utime(self.list_path, (self.now.timestamp(), self.now.timestamp()))

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


async def check_that_engines_agree(subject: Subject, harm: tuple[str, int] | None, inventory: str | None) -> None:
    """The same rows, digest, tallies and missing files; of a table that cannot be read, the same sentence. On Spark
    once joined by Spark, once only compared by it, and once joined here, the last two with what the cache knows."""
    subject = replace(subject, inventory=inventory is not None)
    if inventory == "before":
        subject.write_inventory()
    if harm is not None:
        subject.harm(*harm)
    if inventory == "after":
        subject.write_inventory()
    one = await planned(subject, "inprocess")
    for here in ({"rows": 0, "left": 0}, {"rows": 0}, {}):
        check_that_plans_agree(subject, harm, one, await planned(subject, "spark", here))


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


async def planned(
    subject: Subject, kind: str, here: Mapping[str, int] | None = None, config: SparkConfig = SMALL_SPARK
) -> OrphanPlan | LakesweepError:
    """What one engine makes of the table, or why it makes nothing of it. `here` limits what the Spark engine does in
    this process."""
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
            else engines.open_spark(**common, spec=SPEC, config=config)
        )
        if isinstance(engine, SparkEngine):
            engine._small = replace(engine._small, **(here or {}))
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
        look_at=state.shortlist or (subject.listed_before(state.history) if subject.inventory else Everything()),
        mark=Marking(
            table=table,
            state=MemoryStateStore(SetClock(subject.now)),
            policy=subject.policy,
            now=subject.now,
            surroundings=Alone(),
        ),
        rows_path=str(subject.home / f"{kind}.parquet"),
    )
