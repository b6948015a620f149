"""What test_iceberg_other_histories.py and its neighbours are made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pyiceberg.catalog import load_catalog
from tests.builders.cycles import AlwaysOurs, Bench
from tests.builders.iceberg import Lake, LakeTable

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy


def elsewhere(lake: Lake, tmp_path: Path, table: LakeTable) -> LakeTable:
    """The table as it was taken over by another catalog."""
    catalog = load_catalog("new", type="sql", uri=f"sqlite:///{tmp_path}/new.db", warehouse=f"file://{lake.root}/wh")
    catalog.create_namespace("db")
    moved = catalog.register_table("db.t", table.refresh().metadata_location)
    other = Lake(root=lake.root, properties={}, catalog=catalog)
    return LakeTable(lake=other, name="t", table=moved)


def end_half_way(table: LakeTable, commit: Callable[[LakeTable], object]) -> Path:
    """A commit whose writer died before the catalog heard of it."""
    head = table.refresh().metadata_location
    commit(table)
    litter = Path(Location.parse(table.refresh().metadata_location).path)
    table.lake.catalog.drop_table("db.t")
    table.lake.catalog.register_table("db.t", head)
    return litter


async def our_expiry_ends_half_way(bench: Bench, table: LakeTable) -> Path:
    """What our own commit writes, before the catalog has heard of it."""
    head = table.refresh().metadata_location
    ours = table.lake.format(storage=bench.storage, writer=bench.writer)
    opened = await ours.open((await table.open()).ref)
    policy = CleanupPolicy(max_snapshot_age=timedelta(days=1), min_snapshots_to_keep=1)
    _, committed = await opened.commit_expiry(await opened.load(), policy, bench.clock.now(), AlwaysOurs())
    assert committed.expire
    litter = Path(Location.parse(table.refresh().metadata_location).path)
    table.lake.catalog.drop_table("db.t")
    table.lake.catalog.register_table("db.t", head)
    return litter
