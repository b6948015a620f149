"""A sweep beside programs that commit and expire all the time: what they take away while we read is no damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench
from tests.builders.iceberg import Lake, LakeTable
from tests.builders.iceberg_wrapped import Wrapped

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=1), min_snapshots_to_keep=1)


class Overtaken(Wrapped):
    """While a sweep asks what is referenced by now, others replace the table's content and expire what was there."""

    def __init__(self, inner, table: LakeTable, files: Callable[[LakeTable], Iterable[str]], times: int) -> None:
        super().__init__(inner)
        self._table, self._files, self._times = table, files, times
        self._sweeping = False

    async def commit_expiry(self, *args):
        committed = await self._inner.commit_expiry(*args)
        self._table.overwrite(3)
        self._sweeping = True
        return committed

    async def load(self):
        state = await self._inner.load()
        if self._sweeping and self._times:
            self._times -= 1
            before, files = self._table.current, list(self._files(self._table))
            self._table.overwrite(4 + self._times)
            self._table.refresh().maintenance.expire_snapshots().by_id(before).commit()
            for file in files:
                Path(Location.parse(file).path).unlink()
        return state


def manifest_list(table: LakeTable) -> list[str]:
    return [table.refresh().current_snapshot().manifest_list]


def manifests(table: LakeTable) -> list[str]:
    snapshot = table.refresh().current_snapshot()
    added = [one for one in snapshot.manifests(table.table.io) if one.added_snapshot_id == snapshot.snapshot_id]
    return [one.manifest_path for one in added]


async def sweep(lake: Lake, bench: Bench, files: Callable[[LakeTable], Iterable[str]], times: int) -> CleanupRun:
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = Overtaken(await ours.open((await table.open()).ref), table, files, times)
    run = await bench.run(opened, POLICY)
    assert len(table.rows()) == 1
    return run


@pytest.mark.parametrize("files", [manifest_list, manifests])
async def test_what_others_expire_while_a_sweep_looks_does_not_end_it(lake, bench, files):
    run = await sweep(lake, bench, files, times=1)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.deletion.deleted.files > 0


@pytest.mark.parametrize("files", [manifest_list, manifests])
async def test_a_table_that_never_stands_still_is_left_to_the_next_cycle(lake, bench, files):
    before = lake.files()
    run = await sweep(lake, bench, files, times=99)
    assert run.outcome is Outcome.FAILED
    assert run.deletion.deleted.files == 0
    assert before <= lake.files()
