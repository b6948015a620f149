"""A table inside another one's directory: whatever the two formats are, the inner one loses nothing to the outer one.

Nobody tells the outer one of it: discovery does not look for tables inside a table, so the listing must show it.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, Lake, later
from tests.builders.paimon_model import ModelTable

from lakesweep.formats import registry as formats
from lakesweep.formats.spec import Tools
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import FormatName
from lakesweep.ports.table import Table
from lakesweep.storage import memory

ROWS = pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]})
DELTA, ICEBERG, PAIMON = FormatName.DELTA, FormatName.ICEBERG, FormatName.PAIMON
STRAY = {
    DELTA: "part-stray.parquet",
    ICEBERG: "data/stray.parquet",
    PAIMON: "dt=1/bucket-0/data-stray-0.orc",
}
"""What each format takes for an orphan of its own."""


class Ground:
    """A lake in which tables are made at any place."""

    def __init__(self, home: Path) -> None:
        self.root = home / "lake"
        self.lake = Lake.make(self.root)
        self.bench = Bench(root=self.root, clock=SetClock(later(days=40)), scratch=home / "scratch")

    def make(self, format: FormatName, place: Path, name: str) -> None:
        match format:
            case FormatName.DELTA:
                write_deltalake(str(place), ROWS)
            case FormatName.ICEBERG:
                self.lake.catalog.create_table(f"db.{name}", SCHEMA, location=f"file://{place}").append(ROWS)
            case FormatName.PAIMON:
                _paimon(place)

    async def open(self, format: FormatName, place: Path, name: str) -> Table:
        if format is ICEBERG:
            source = self.lake.format()
            return await source.open(next(ref for ref in await source.tables() if ref.name == name))
        at, storage, clock = Location.parse(str(place)), self.bench.storage, self.bench.clock
        tenant = Location.parse(str(self.root))
        return await formats.open_location(
            at, format, Tools(storage=storage, clock=clock, writer=self.bench.writer), tenant
        )

    async def clean(self, format: FormatName, place: Path) -> CleanupRun:
        policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(days=90))
        return await self.bench.run(await self.open(format, place, "outer"), policy)


def _paimon(place: Path) -> None:
    bucket = memory.bucket(uuid.uuid4().hex)
    ModelTable(bucket, "t", later()).append("1")
    for key, held in bucket.objects.items():
        file = place / key.removeprefix("t/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(held.data)


def _files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize("inner", FormatName)
@pytest.mark.parametrize("outer", FormatName)
async def test_an_inner_table_loses_nothing(ground, outer, inner):
    place = ground.root / "wh" / "outer"
    ground.make(outer, place, "outer")
    stray = place / STRAY[outer]
    stray.write_bytes(b"stray")
    ground.make(inner, place / "sub" / "inner", "inner")
    files = _files(place / "sub")
    run = await ground.clean(outer, place)
    assert _files(place / "sub") == files
    if outer is PAIMON:
        assert run.outcome is Outcome.DONE, run.reason
        assert not stray.exists()
    else:
        assert run.refusal.code == "foreign_table"
        assert stray.exists()


@pytest.mark.parametrize("inner", FormatName)
@pytest.mark.parametrize("outer", FormatName)
async def test_nor_does_one_that_has_a_partition_for_its_home(ground, outer, inner):
    place = ground.root / "wh" / "outer"
    ground.make(outer, place, "outer")
    home = place / "dt=1"
    before = _files(home)
    ground.make(inner, home, "inner")
    if inner is PAIMON:  # one without partitions has its buckets right there
        (home / "bucket-0").mkdir(exist_ok=True)
        (home / "bucket-0" / "data-live-0.orc").write_bytes(b"live")
    files = _files(home) - before
    await ground.clean(outer, place)
    assert not files - _files(home)
