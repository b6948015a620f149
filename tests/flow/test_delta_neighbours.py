"""Tables of other formats in the place of a Delta table: their files look like its orphans, and none of them goes."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.builders.delta_neighbours import ROWS, Shared

from lakesweep.formats import avro
from lakesweep.formats.delta import table as ours
from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome


async def test_an_iceberg_table_inside_a_delta_table_stops_it(tmp_path):
    shared = Shared(tmp_path, "/ice")
    run = await shared.clean()
    assert run.refusal.code == "foreign_table"
    assert shared.lake.catalog.load_table("db.ice").scan().to_arrow().num_rows == 1


async def test_what_iceberg_metadata_at_the_root_names_stays_in_every_snapshot(tmp_path):
    shared = Shared(tmp_path)
    before = shared.files()
    run = await shared.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}
    ice = shared.lake.catalog.load_table("db.ice")
    read = [ice.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in ice.snapshots()]
    assert read == [1, 2, 0, 1]


async def test_why_such_a_file_stays_can_be_explained(tmp_path):
    shared = Shared(tmp_path)
    table = await shared.open(shared.bench)
    file = next((shared.root / "data").glob("*.parquet"))
    (why,) = await (await table.load()).explain(Location.parse(str(file)))
    assert "Iceberg" in why


async def test_packed_iceberg_metadata_is_read_as_well(tmp_path):
    shared = Shared(tmp_path)
    for path in shared.iceberg("*.metadata.json"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    before = shared.files()
    await shared.clean()
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}


@pytest.mark.parametrize("pattern", ["*.metadata.json", "snap-*.avro", "*-m0.avro"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"half of it"])
async def test_iceberg_metadata_that_cannot_be_read_stops_the_table(tmp_path, pattern, damage):
    shared = Shared(tmp_path)
    damaged = shared.iceberg(pattern)[-1]
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2] if damage == b"half of it" else damage)
    before = shared.files()
    run = await shared.clean()
    assert run.refusal.code == "indeterminate"
    assert damaged.name in run.reason
    assert shared.files() == before


async def test_the_metadata_before_the_newest_counts_too(tmp_path):
    shared = Shared(tmp_path)
    newest = shared.iceberg("*.metadata.json")[-1]
    newest.write_text('{"format-version": 2, "snapshots": []}')
    before = shared.files()
    await shared.clean()
    gone = before - shared.files()
    assert shared.ice.scan(snapshot_id=shared.ice.snapshots()[1].snapshot_id).to_arrow().num_rows == 2
    assert {path.parent.name for path in gone} <= {"delta", "data"}
    assert len(gone) == 2  # the orphan, and the file that only the newest snapshot named


async def test_iceberg_files_that_are_gone_protect_nothing_and_stop_nothing(tmp_path):
    """UniForm that was switched off leaves metadata which a vacuum elsewhere may already have thinned out."""
    shared = Shared(tmp_path)
    for path in shared.iceberg("*.avro"):
        path.unlink()
    run = await shared.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert not (shared.root / "part-orphan.parquet").exists()


async def test_while_uniform_is_on_its_metadata_stays_and_only_the_log_speaks(tmp_path):
    shared = Shared(tmp_path)
    shared.set_delta("delta.universalFormat.enabledFormats", "iceberg")
    metadata = set((shared.root / "metadata").iterdir())
    os.truncate(shared.iceberg("*.metadata.json")[-1], 0)
    run = await shared.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert set((shared.root / "metadata").iterdir()) == metadata
    assert not list((shared.root / "data").glob("*.parquet"))


async def test_statistics_that_iceberg_metadata_names_stay(tmp_path):
    shared = Shared(tmp_path)
    newest = shared.iceberg("*.metadata.json")[-1]
    statistics = newest.with_name("partition-stats-1.parquet")
    statistics.write_bytes(b"statistics")
    document = json.loads(newest.read_text())
    document["partition-statistics"] = [{"snapshot-id": 1, "statistics-path": f"file://{statistics}"}]
    newest.write_text(json.dumps(document))
    before = shared.files()
    await shared.clean()
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}


async def test_metadata_named_by_a_bare_uuid_counts(tmp_path):
    """The newest has the lowest number in front, if one takes these digits for a version."""
    shared = Shared(tmp_path)
    for path, start in zip(shared.iceberg("*.metadata.json"), (9, 8, 7, 6, 5), strict=True):
        path.rename(path.with_name(f"{start}198aaaa-0000-7000-8000-000000000001.metadata.json"))
    before = shared.files()
    await shared.clean()
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}


async def test_a_table_made_anew_counts_from_the_beginning_and_its_files_stay(tmp_path):
    shared = Shared(tmp_path)
    for version in (57, 58):
        left = shared.root / "metadata" / f"{version:05d}-aaaaaaaa-0000-4000-8000-000000000001.metadata.json"
        left.write_text('{"format-version": 2, "snapshots": []}')
        os.utime(left, (0, 0))
    before = shared.files()
    await shared.clean()
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}


async def test_what_iceberg_metadata_names_under_another_name_of_the_root_stays(tmp_path):
    """A mount: Delta's paths are relative, Iceberg's are those that its writers saw."""
    shared = Shared(tmp_path)
    shared.move("mounted")
    before = shared.files()
    run = await shared.clean()
    assert run.outcome is Outcome.DONE, run.reason
    assert {path.name for path in before - shared.files()} == {"part-orphan.parquet"}


async def test_iceberg_metadata_of_an_unknown_shape_stops_the_table(tmp_path):
    shared = Shared(tmp_path)
    shared.iceberg("*.metadata.json")[-1].write_text('{"format-version": 2, "snapshots": [7]}')
    before = shared.files()
    run = await shared.clean()
    assert run.refusal.code == "indeterminate"
    assert shared.files() == before


@pytest.mark.parametrize("mode", VacuumMode)
async def test_what_delta_has_removed_and_iceberg_still_names_stays(tmp_path, mode):
    """As UniForm leaves it: both name one file, and only Delta has let go of it."""
    shared = Shared(tmp_path)
    (both,) = [path for path in shared.root.glob("*.parquet") if path.name != "part-orphan.parquet"]
    shared.ice.add_files([f"file://{both}"])
    DeltaTable(str(shared.root)).create_checkpoint()
    write_deltalake(str(shared.root), ROWS, mode="overwrite")
    bench = shared.bench

    async def clean() -> CleanupRun:
        ref, place = (await shared.open(bench)).ref, Location.parse(str(shared.root))
        table = ours.DeltaTable(ref, place, bench.storage, bench.clock, DeltaOptions(vacuum_mode=mode))
        return await bench.run(table, CleanupPolicy())

    assert (await clean()).outcome is Outcome.DONE
    assert both.exists()
    for path in (shared.root / "metadata").iterdir():
        path.unlink()
    await clean()
    assert not both.exists()


@pytest.mark.parametrize("pattern", ["snap-*.avro", "*-m0.avro"])
async def test_iceberg_metadata_that_was_cut_behind_a_block_stops_the_table(tmp_path, pattern):
    """It reads like a whole file with fewer entries; only what is recorded of it tells."""
    shared = Shared(tmp_path)
    cut = max(shared.iceberg(pattern), key=lambda path: path.stat().st_mtime_ns)
    cut.write_bytes(cut.read_bytes()[: avro.walk(cut.read_bytes()).body])
    before = shared.files()
    run = await shared.clean()
    assert run.refusal.code == "indeterminate"
    assert cut.name in run.reason
    assert shared.files() == before
