"""What test_delta_neighbours.py and its neighbours are made of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, Lake, later

from lakesweep.formats import registry as formats
from lakesweep.formats.spec import Tools
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName
from lakesweep.ports.table import Table

ROWS = pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]})


class Shared:
    """A Delta table, and an Iceberg table at a place of its own choice below it or right there."""

    def __init__(self, home: Path, ice_at: str = "") -> None:
        self.home = home
        self.root = home / "lake" / "wh" / "delta"
        self.lake = Lake.make(home / "lake")
        write_deltalake(str(self.root), ROWS)
        self.ice = self.lake.catalog.create_table("db.ice", SCHEMA, location=f"file://{self.root}{ice_at}")
        self.ice.append(ROWS)
        self.ice.append(ROWS)
        self.ice.delete("id = 7")
        self.ice.append(ROWS)
        (self.root / "part-orphan.parquet").write_bytes(b"nobody's")

    @property
    def bench(self) -> Bench:
        return Bench(root=self.home / "lake", clock=SetClock(later(days=40)), scratch=self.home / "s")

    async def open(self, bench: Bench) -> Table:
        return await formats.open_location(
            Location.parse(str(self.root)),
            FormatName.DELTA,
            Tools(storage=bench.storage, clock=bench.clock, writer=bench.writer),
            Location.parse(str(self.home / "lake")),
        )

    def move(self, name: str) -> None:
        """See the lake under another name than its writers did."""
        (self.home / "lake").rename(self.home / name)
        (self.home / "lake").mkdir()
        (self.home / name).rename(self.home / "lake" / name)
        self.root = self.home / "lake" / name / "wh" / "delta"

    async def clean(self) -> CleanupRun:
        bench = self.bench
        return await bench.run(await self.open(bench), CleanupPolicy())

    def files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_file()}

    def iceberg(self, pattern: str) -> list[Path]:
        """Files in Iceberg's metadata directory, oldest first."""
        return sorted((self.root / "metadata").glob(pattern), key=lambda path: (path.name, path.stat().st_mtime_ns))

    def set_delta(self, key: str, value: str) -> None:
        DeltaTable(str(self.root)).alter.set_table_properties({key: value}, raise_if_not_exists=False)
