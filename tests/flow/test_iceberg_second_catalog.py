"""A second catalog takes the table over while a cycle runs, or commits once and then not for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.faults import Faults
from tests.builders.iceberg import LakeTable, later
from tests.builders.iceberg_flow import clean, plant
from tests.builders.iceberg_histories import elsewhere, end_half_way, our_expiry_ends_half_way
from tests.peers.independent import by_pyiceberg

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

EXPIRING = CleanupPolicy(max_snapshot_age=timedelta(days=1), min_snapshots_to_keep=1, batch_size=2)


class Before(Faults):
    """Somebody acts right before the first call of a name."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._name, self._act = name, [act]

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        if name == self._name and not after and self._act:
            self._act.pop()()


def gone(table: LakeTable) -> list[str]:
    """Files that some snapshot names and that are not there."""
    named = {path for one in by_pyiceberg(table.refresh()).by_snapshot.values() for path in one}
    return [path for path in named if not Path(Location.parse(path).path).exists()]


def aged(lake, *numbers: int) -> LakeTable:
    table = lake.create()
    for number in numbers:
        table.overwrite(number)
    return table


@pytest.fixture
def soon(tmp_path: Path) -> Bench:
    """Two days from now: past the grace period, and inside the week."""
    return Bench(root=tmp_path / "lake", clock=SetClock(later(days=2)), scratch=tmp_path / "scratch")


@pytest.mark.parametrize("call", ["delete", "begin_batch"])
async def test_a_catalog_that_comes_during_the_sweep_keeps_all_its_snapshots(lake, soon, tmp_path, call):
    table = aged(lake, 1, 2, 3)
    orphan = plant(table, "data/orphan.parquet")
    state = table.refresh().metadata_location
    second: list[LakeTable] = []

    def take_over() -> None:
        """With the state from before our expiry, of which everything is still there."""
        lake_now = elsewhere(lake, tmp_path, table)
        lake_now.lake.catalog.drop_table("db.t")
        lake_now.lake.catalog.register_table("db.t", state)
        lake_now.append(60)
        second.append(lake_now)

    run = await clean(replace(soon, faults=Before(call, take_over)), table, EXPIRING)
    assert run.outcome is Outcome.DONE
    assert run.expired_snapshots
    assert run.spared
    assert not orphan.exists(), "only what the second catalog names stays"
    assert gone(second[0]) == []
    assert len(second[0].snapshot_ids()) > len(table.snapshot_ids())
    again = await clean(soon, table, EXPIRING)
    assert again.outcome is Outcome.DONE
    assert gone(second[0]) == [], "its only commit looks like one that lost a race against ours"


async def test_a_commit_beside_ours_keeps_what_it_names_for_a_week(lake, soon, bench):
    table = aged(lake, 1, 2)
    data = set(table.lake.files())
    beside = end_half_way(table, lambda one: one.append(99))
    new = {path for path in table.lake.files() - data if path.endswith(".parquet")}
    table.overwrite(3)
    for _ in range(2):
        assert (await clean(soon, table, EXPIRING)).outcome is Outcome.DONE
        assert beside.exists()
        assert new <= table.lake.files()
    assert (await clean(bench, table, EXPIRING)).outcome is Outcome.DONE
    assert not beside.exists()
    assert not new & table.lake.files()


@pytest.mark.parametrize("part", ["*.parquet", "*-m0.avro", "snap-*.avro"])
async def test_litter_that_is_not_whole_any_more_stops_no_table(lake, soon, part):
    table = aged(lake, 1, 2)
    before = table.lake.files()
    beside = end_half_way(table, lambda one: one.append(99))
    new = [Path(path.removeprefix("file://")) for path in table.lake.files() - before]
    (gone_one,) = [path for path in new if path.match(part)]
    gone_one.unlink()
    table.overwrite(3)
    run = await clean(soon, table, EXPIRING)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.plan.missing_count == 0
    assert beside.exists()


async def test_another_history_is_named_in_its_first_week_too(lake, soon, tmp_path):
    table = aged(lake, 1, 2)
    theirs = elsewhere(lake, tmp_path, table)
    for number in (7, 8):
        theirs.append(number)
    table.append(3)
    assert (await clean(soon, table, EXPIRING)).refusal.code == "foreign_table"


async def test_our_own_litter_keeps_nothing(lake, soon):
    """An expiry of ours that ended before its commit leaves a metadata file, which its name tells."""
    table = aged(lake, 1, 2, 3)
    litter = await our_expiry_ends_half_way(soon, table)
    assert (await clean(soon, table, EXPIRING)).outcome is Outcome.DONE
    assert not litter.exists()


async def test_a_file_of_another_table_that_comes_during_the_sweep_stops_it(lake, soon):
    table = aged(lake, 1, 2, 3)
    text = Path(Location.parse(table.refresh().metadata_location).path).read_text()
    stranger = text.replace(str(table.table.metadata.table_uuid), "00000000-0000-4000-8000-000000000000")
    faults = Before("delete", lambda: plant(table, "metadata/00009-z.metadata.json", stranger.encode()))
    run = await clean(replace(soon, faults=faults), table, EXPIRING)
    assert run.refusal.code == "foreign_table"
