"""Laws that only Paimon has: consumers, manifest merging and dropped partitions."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.cycles import AlwaysOurs, Bench
from tests.builders.faults import Killed
from tests.builders.paimon_steps import NOW, MovingTable, Step, handle, world
from tests.laws import examples
from tests.laws.worlds.paimon import HISTORIES

from lakesweep.formats.paimon import merge
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.manifests import read_entries
from lakesweep.model.errors import StateError
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

laws = settings(max_examples=examples(15, soak=500), deadline=None, suppress_health_check=list(HealthCheck))


@laws
@given(HISTORIES, st.integers(1, 20))
async def test_a_consumer_keeps_what_it_has_still_to_read(history: list[Step], following: int) -> None:
    with world([Step("append", ("a",), "main"), *history]) as (table, bench):
        table.consume("reader", following)
        standing = [name for name in table.standing() if name.startswith("snapshot/")]
        policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)
        run = await bench.run(handle(table, bench), policy)
        assert run.outcome is Outcome.DONE, run.reason
        kept = {name for name in standing if int(name.rpartition("-")[2]) >= following}
        assert kept <= set(table.standing())
        assert table.lost() == set()


@laws
@given(HISTORIES)
async def test_a_merge_keeps_every_live_file_and_merging_again_does_nothing(history: list[Step]) -> None:
    options = {"manifest.merge-min-count": "2", "manifest.target-file-size": "2 kb"}
    with world(history, options) as (table, bench):
        line = table.lines["main"]
        live = {file.name for file in line.live.values()}
        snapshot = await handle(table, bench).compact_manifests(NOW, AlwaysOurs())
        found = await live_names(table, bench)
        assert found == live
        if snapshot is not None:
            assert snapshot.document["totalRecordCount"] == sum(file.rows for file in line.live.values())
        assert await handle(table, bench).compact_manifests(NOW, AlwaysOurs()) is None


@laws
@given(st.integers(0, 250), st.booleans(), st.booleans(), st.integers(1, 4))
async def test_a_fault_at_any_call_of_a_drop_leaves_the_partition_whole_or_gone(
    at: int, kill: bool, after: bool, files: int
) -> None:
    options = {"partition.expiration-time": "1000 d", "partition.expiration-check-interval": "0 ms"}
    options |= {"manifest.merge-min-count": "2"}
    history = [Step("append", ("2020-01-01",), "main")] * files + [Step("append", ("2026-04-30",), "main")]
    with world(history, options) as (table, bench):
        policy = CleanupPolicy(dry_run=False)
        old = {file.name for file in table.files if file.partition == "2020-01-01"}
        every = {file.name for file in table.files}
        bench.faults.at, bench.faults.kill, bench.faults.after = at, kill, after
        with contextlib.suppress(Killed, StateError):
            await bench.run(handle(table, bench), policy)
        bench.faults.at = None
        assert await live_names(table, bench) in (every, every - old)
        assert table.lost() == set()
        run = await bench.run(handle(table, bench), policy)
        assert run.outcome is Outcome.DONE, run.reason
        assert await live_names(table, bench) == every - old
        assert table.lost() == set()
        again = await bench.run(handle(table, bench), policy)
        assert again.expired_partitions == ()


async def live_names(table: MovingTable, bench: Bench) -> set[str]:
    """Live files of the latest snapshot, straight from its manifests."""
    opened = handle(table, bench)
    state = await opened.load()
    if state.native.latest is None:
        return set()
    lists = ListReader(TableFiles(storage=bench.storage, location=opened.location))
    live: dict[Any, str] = {}
    for meta in await lists.manifests_of(state.native.latest):
        for entry in read_entries(await lists.read_manifest(meta)):
            if entry["_KIND"] == 0:
                live[merge.identity(entry)] = entry["_FILE"]["_FILE_NAME"]
            else:
                live.pop(merge.identity(entry), None)
    return set(live.values())
