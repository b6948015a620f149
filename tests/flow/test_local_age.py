"""On local disks a file that has just come is young, whatever its mtime says: with the defaults, in a whole cycle."""

from __future__ import annotations

import os

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, sweep
from tests.builders.faults import Faults
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


class Rewritten(Faults):
    """Somebody writes a file anew when the deleter has been called."""

    def __init__(self, rewrite):
        super().__init__()
        self._rewrite = rewrite

    def hit(self, name, error, *, after):
        if name == "delete" and not after:
            self._rewrite()
        super().hit(name, error, after=after)


@pytest.mark.parametrize("written_at", [NOW, days_ago(90)], ids=["now", "with an older time"])
async def test_a_file_written_anew_since_it_was_listed_stays_on_a_disk(tmp_path, written_at):
    """A disk has no etags, so its time tells."""
    place = LocalPlace(tmp_path / "lake" / "t")
    writer = DeltaWriter(place)
    writer.create(days_ago(40))
    writer.add("live.parquet", at=days_ago(40))
    for name in ("replaced.parquet", "orphan.parquet"):
        place.put(name, b"old", days_ago(40))
    faults = Rewritten(lambda: place.put("replaced.parquet", b"new", written_at))
    bench = Bench(root=tmp_path / "lake", clock=SetClock(NOW), scratch=tmp_path / "scratch", faults=faults)
    swept = await sweep(place, execute=True, bench=bench)
    assert (swept.run.outcome, swept.run.spared) == (Outcome.DONE, 1)
    assert (place.path / "replaced.parquet").read_bytes() == b"new"
    assert not (place.path / "orphan.parquet").exists()
