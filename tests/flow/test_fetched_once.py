"""What cannot have changed is not fetched again by the next cycle, on a real S3 server."""

import pytest
from tests.builders.s3_lakes import delta, iceberg, lake, opened, paimon

from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome

ALWAYS_READ = {delta: 0, paimon: 10, iceberg: 1}
"""Iceberg: the metadata file. Paimon: its hint, its newest snapshot and its first schema whenever the table is looked
at, and a manifest list without entries, which looks like one that was cut off."""
RULES = 2
"""The bucket's versioning and lifecycle, asked for once an hour by each process."""


@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_a_table_that_stands_still_is_not_fetched_again(seaweedfs, tmp_path, make):
    async with App.open(lake(seaweedfs, make, tmp_path)) as app:
        first = await app.run(await opened(app), execute=False)
        second = await app.run(await opened(app), execute=False)
    assert (first.outcome, second.outcome) == (Outcome.DRY_RUN, Outcome.DRY_RUN), (first.reason, second.reason)
    assert second.plan.digest == first.plan.digest
    assert second.sent.requests.get <= ALWAYS_READ[make] < first.sent.requests.get


async def test_a_new_process_does_not_fetch_a_delta_log_again(seaweedfs, tmp_path):
    settings = lake(seaweedfs, delta, tmp_path)
    runs = []
    for _ in range(2):
        async with App.open(settings) as app:
            runs.append(await app.run(await opened(app), execute=False))
    first, second = runs
    assert second.plan.digest == first.plan.digest
    assert second.sent.requests.get == RULES < first.sent.requests.get
