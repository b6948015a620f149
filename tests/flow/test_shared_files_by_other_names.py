"""A table uses files of another under another name of their place: a link, a mount, an access point."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders.iceberg import SCHEMA
from tests.builders.shared_files import borrow, iceberg, run
from tests.builders.small_lake import LocalLake

from lakesweep.daemon.shared_files import Uses
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

SHORT = {
    "grace_period_hours": 0.00001,
    "allow_short_grace": True,
    "max_snapshot_age_hours": 0.00001,
    "min_snapshots_to_keep": 1,
}


@pytest.mark.parametrize("of_file", [False, True], ids=["directory", "file"])
async def test_files_that_were_added_through_a_link_stay(lake, tmp_path, of_file):
    staging = lake.create("staging")
    staging.append(1)
    (task,) = staging.table.scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    link = tmp_path / "elsewhere"
    link.symlink_to(path if of_file else lake.root, target_is_directory=not of_file)
    target = lake.catalog.create_table("db.target", SCHEMA)
    target.add_files([f"file://{link if of_file else link / path.relative_to(lake.root)}"])
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    done = await run(iceberg(lake, **SHORT), "acme/prod/staging")
    assert done.outcome is Outcome.DONE, done.reason
    assert [one.table for one in done.shared_files] == ["acme/prod/target"]
    assert len(target.refresh().scan().to_arrow()) == 1


async def test_files_of_a_clone_that_names_its_source_through_a_link_stay(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["source", "clone"])
    link = tmp_path / "elsewhere"
    link.symlink_to(lake.directory("acme/d/source"), target_is_directory=True)
    borrowed = borrow(lake, "part-00000-failed.parquet", through=link)
    done = await run(Settings.model_validate(lake.settings()), "acme/d/source")
    assert (done.outcome, done.plan.candidates.files) == (Outcome.DONE, 2)
    assert borrowed.exists()


ARN = "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/ours"
ALIAS = "s3://ours-abcdefghijklmnopqrstuvwxyz0123456789-s3alias"


@pytest.mark.parametrize("mine", ["s3://lake", ARN, ALIAS])
@pytest.mark.parametrize("theirs", ["s3a://lake", "s3n://lake-by-another-name", ARN, ALIAS])
def test_what_is_used_through_another_name_counts_in_every_bucket(mine, theirs):
    used = pa.array([f"{theirs}/x/t/a.parquet", f"{theirs}/x/t2/b.parquet"])
    found = Uses(used, pa.array([], pa.string())).below(Location.parse(f"{mine}/x/t"))
    assert {Location.parse(path).match_key for path in found} >= {f"{mine}/x/t/a.parquet"}
    assert not any("b.parquet" in path for path in found)


@pytest.mark.parametrize("root", [f"{ARN}/x/t", f"{ALIAS}/x/t", "s3://lake/x/t"])
def test_what_a_clone_may_mean_counts_behind_an_access_point(root):
    found = Uses(pa.array([], pa.string()), pa.array(["x/t/a.parquet"])).below(Location.parse(root))
    assert found == [f"{root}/a.parquet"]
