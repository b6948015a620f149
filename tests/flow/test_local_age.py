"""On local disks a file that has just come is young, whatever its mtime says: with the defaults, in a whole cycle."""

from __future__ import annotations

import os

import pytest
from tests.builders.iceberg_flow import plant
from tests.builders.shared_files import iceberg, run

from lakesweep.model.files import AgeBy, Verdict
from lakesweep.model.run import Outcome


@pytest.mark.parametrize("age_by", [None, "change", "modification"])
async def test_a_file_that_was_moved_in_with_an_old_mtime_waits_like_a_new_one(lake, age_by):
    table = lake.create("t")
    table.append(1)
    came = plant(table, "data/came.parquet")
    os.utime(came, (1, 1))
    settings = iceberg(lake, grace_period_hours=24)
    if age_by:
        local = settings.storage.local.model_copy(update={"age_by": AgeBy(age_by)})
        storage = settings.storage.model_copy(update={"local": local})
        settings = settings.model_copy(update={"storage": storage})
    done = await run(settings, "acme/prod/t")
    assert done.outcome is Outcome.DONE
    assert came.exists() == (age_by != "modification")
    assert done.plan.verdicts[Verdict.YOUNG].files == (1 if came.exists() else 0)
