"""What a cycle asks of its store: counted as the server counts it, and told beforehand."""

import pytest
from tests.builders.s3_lakes import delta, iceberg, lake, opened, paimon
from tests.builders.small_lake import LocalLake

from lakesweep.cleanup.report import plan_document, run_document
from lakesweep.daemon.app import App
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.settings.schema import Settings

KINDS = ("list", "get", "head", "put", "delete")


async def test_a_run_counts_the_requests_that_the_server_answered(seaweedfs, tmp_path):
    async with App.open(lake(seaweedfs, iceberg, tmp_path)) as app:
        work = await opened(app)
        before = seaweedfs.requests()
        run = await app.run(work, execute=None)
        answered = seaweedfs.requests() - before
        again = await app.run(work, execute=None)
    assert run.outcome is Outcome.DONE, run.reason
    sent = run_document(run)["requests"]["sent"]
    assert sum(sent[kind] for kind in KINDS) == answered
    assert (sent["put"], sent["delete"]) == (1, 5)  # the commit's metadata file; four batches and the expired files
    assert sent["bytes_read"] > 0
    assert sent["cost"] == round(
        sent["list"] * 0.005 + sent["get"] * 4e-7 + sent["head"] * 4e-7 + sent["put"] * 5e-6, 6
    )
    assert run_document(again)["requests"]["sent"]["delete"] == 0  # each run counts for itself


@pytest.mark.parametrize("deletion", ["delete", "trash"])
@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_a_plan_estimates_within_a_tenth_what_a_cycle_will_take(seaweedfs, tmp_path, make, deletion):
    settings = lake(seaweedfs, make, tmp_path, deletion=deletion)
    async with App.open(settings) as app:
        plan = plan_document(await app.plan(await opened(app)), ())
    async with App.open(settings) as app:
        done = await app.run(await opened(app), execute=None)
    assert done.outcome is Outcome.DONE, done.reason
    run = run_document(done)["requests"]
    sent = run["sent"]
    for told in (plan["requests"]["planned"], run["planned"]):
        assert sum(told[kind] for kind in KINDS) == pytest.approx(sum(sent[kind] for kind in KINDS), rel=0.1)
        for kind in KINDS:
            assert told[kind] == pytest.approx(sent[kind], rel=0.1, abs=2), kind


@pytest.mark.parametrize("deletion", ["delete", "trash"])
async def test_files_on_a_disk_go_in_as_many_requests_as_planned(tmp_path, deletion):
    disk = LocalLake(root=tmp_path)
    disk.add("acme", ["t"], orphans=2100, deletion=deletion, ceilings={"share": 1})
    async with App.open(Settings.model_validate(disk.settings())) as app:
        (work,) = await app.resolve("acme/d/t")
        done = await app.run(work, execute=None)
    assert (done.outcome, disk.orphans_left("acme/d/t")) == (Outcome.DONE, set()), done.reason
    requests = run_document(done)["requests"]
    assert requests["planned"]["delete"] == requests["sent"]["delete"] == 3


@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_nothing_new_is_seen_in_one_to_three_requests(seaweedfs, tmp_path, make):
    settings = lake(seaweedfs, make, tmp_path, listing_interval_hours=24)
    async with App.open(settings) as app:
        for _ in range(4):
            work = await opened(app)
            before = seaweedfs.requests()
            done = await app.run(work, execute=None, listing=ListingMode.WHEN_DUE)
            answered = seaweedfs.requests() - before
            assert done.outcome is Outcome.DONE, done.reason
    assert done.unchanged
    requests = run_document(done)["requests"]
    for told in (requests["planned"], requests["sent"]):
        assert answered == sum(told[kind] for kind in KINDS) <= 3
