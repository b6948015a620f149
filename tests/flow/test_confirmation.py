"""With `confirm_after_hours` a file goes only if an earlier run saw it unreferenced: an expiry must have come true."""

from __future__ import annotations

from datetime import timedelta

from tests.builders.iceberg_wrapped import NeverCommits

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

DAY = timedelta(days=1)


async def test_files_of_a_snapshot_wait_from_the_run_that_really_expired_it(lake, bench):
    table = lake.create()
    first = table.append(1)
    table.overwrite(2)
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    ref = (await table.open()).ref
    policy = CleanupPolicy(max_snapshot_age=DAY, confirm_after=DAY)
    kept = await bench.run(NeverCommits(await ours.open(ref)), policy)
    assert (kept.outcome, kept.plan.unconfirmed.files > 0) == (Outcome.DONE, True)
    assert first in table.snapshot_ids()
    files = lake.files()

    bench.clock.at += DAY
    expired = await bench.run(await ours.open(ref), policy)
    assert str(first) in expired.expired_snapshots
    assert expired.deletion.deleted.files == 0
    assert files <= lake.files()

    bench.clock.at += DAY
    assert (await bench.run(await ours.open(ref), policy)).deletion.deleted.files == kept.plan.unconfirmed.files
