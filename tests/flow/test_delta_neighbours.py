"""A table of another format inside a Delta table stops it: its files look like orphans."""

import pyarrow as pa
from deltalake import write_deltalake
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, Lake, later

from lakesweep.formats import registry as formats
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.table import FormatName


async def test_an_iceberg_table_inside_a_delta_table_stops_it(tmp_path):
    lake = Lake.make(tmp_path / "lake")
    root = tmp_path / "lake" / "wh" / "delta"
    rows = pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]})
    write_deltalake(str(root), rows)
    ice = lake.catalog.create_table("db.ice", SCHEMA, location=f"file://{root}/ice")
    ice.append(rows)
    bench = Bench(root=tmp_path / "lake", clock=SetClock(later(days=40)), scratch=tmp_path / "s")
    table = await formats.open_location(
        Location.parse(str(root)),
        FormatName.DELTA,
        bench.storage,
        bench.clock,
        Location.parse(str(tmp_path / "lake")),
        writer=bench.writer,
    )
    run = await bench.run(table, CleanupPolicy())

    assert run.refusal.code == "foreign_table"
    assert lake.catalog.load_table("db.ice").scan().to_arrow().num_rows == 1
