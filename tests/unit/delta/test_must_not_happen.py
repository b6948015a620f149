"""What other cleaners do to Delta tables, each shown once on a real table, and each not done by ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, stored_vector, sweep

from lakesweep.formats.delta.table import DeltaTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _old_table(place: LocalPlace, **more) -> DeltaWriter:
    writer = DeltaWriter(place, **more)
    writer.create(days_ago(90))
    for version in range(1, 28):
        writer.add(f"{version}.parquet", at=days_ago(90 - version))
    return writer


# 1: a checkpoint that is no checkpoint is trusted as the begin of the log


async def test_an_incomplete_checkpoint_never_costs_the_log(place):
    writer = _old_table(place)
    names = writer.checkpoint("multipart", at=days_ago(60), parts=3)
    place.delete(f"_delta_log/{names[1]}")
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE
    assert not swept.log
    assert len((await sweep(place)).run.expiry.keep) == 28


@pytest.mark.parametrize("data", [b"", b"PAR1", b"garbage that is not empty"])
async def test_an_empty_or_garbage_checkpoint_never_costs_the_log(place, data):
    writer = _old_table(place)
    writer.log(f"{27:020d}.checkpoint.parquet", data, days_ago(60))
    writer.hint(27)
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE
    assert not swept.log
    assert swept.run.expiry.skipped


# 2: no protocol check before the log is cleaned; the table's own switch is ignored


@pytest.mark.parametrize("feature", ["catalogManaged", "inventedFeature", "adaptiveMetadata-preview"])
async def test_the_log_of_a_table_that_is_not_understood_is_left_alone(place, feature):
    writer = _old_table(place, features=("appendOnly", feature))
    writer.checkpoint(at=days_ago(60))
    before = place.names()
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.REFUSED
    assert swept.run.refusal.code == "unsupported_feature"
    assert feature in swept.run.refusal.reason
    assert place.names() == before


async def test_a_log_that_its_owner_wants_to_keep_is_kept(place):
    writer = _old_table(place, configuration={"delta.enableExpiredLogCleanup": "false"})
    writer.checkpoint(at=days_ago(60))
    place.put("orphan.parquet", b"", days_ago(60))
    swept = await sweep(place, execute=True)
    assert not swept.log
    assert swept.data == {"orphan.parquet"}


# 3: live deletion vectors are deleted


async def test_live_deletion_vectors_are_kept(place):
    writer = _old_table(place, features=("deletionVectors",))
    vector = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    place.put(vector, b"vector", days_ago(60))
    writer.add("v.parquet", at=days_ago(60), vector=stored_vector("ab^-aqEH.-t@S}K{vb[*k^", 4))
    writer.checkpoint(at=days_ago(59))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE
    assert vector in place.names()


# 4: live files spelled as absolute paths are deleted


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}", "file:/{}"])
async def test_live_files_with_absolute_paths_are_kept(place, form):
    writer = _old_table(place)
    place.put("abs.parquet", b"", days_ago(60))
    spelled = form.format(place.path / "abs.parquet")
    writer.commit([{"add": writer.added("", spelled=spelled)}], days_ago(60))
    writer.checkpoint(at=days_ago(59))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert "abs.parquet" in place.names()


# 5: a handle that was opened earlier decides by its own, older snapshot


class _Raced(DeltaTable):
    """Something happens between the plan and the first batch."""

    happens: Callable[[], object] | None = None

    async def commit_expiry(self, *args, **kwargs):
        self._happen()
        return await super().commit_expiry(*args, **kwargs)

    async def head(self) -> str:
        self._happen()
        return await super().head()

    def _happen(self) -> None:
        happens, self.happens = self.happens, None
        if happens:
            happens()


async def _raced(place: LocalPlace, happens: Callable[[], object], kind: type[_Raced] = _Raced):
    home = place.path.parent
    bench = Bench(root=home, clock=SetClock(NOW), scratch=home.parent / "scratch")
    ref = TableRef(tenant=TenantId("acme"), dataset="bronze", name="t", format=FormatName.DELTA)
    table = kind(ref, Location.parse(str(place.path)), bench.storage, bench.clock)
    table.happens = happens
    return await bench.run(table, CleanupPolicy())


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_what_is_committed_after_the_plan_is_spared(place, checkpointed):
    writer = _old_table(place)
    writer.remove("5.parquet", at=days_ago(50))
    place.put("uncommitted.parquet", b"", days_ago(50))
    place.put("orphan.parquet", b"", days_ago(50))

    def happens() -> None:
        writer.add("5.parquet", "uncommitted.parquet", write=False)
        if checkpointed:
            writer.checkpoint()

    run = await _raced(place, happens)
    assert run.outcome is Outcome.DONE, run.reason
    assert {"5.parquet", "uncommitted.parquet"} <= place.names()
    assert "orphan.parquet" not in place.names()
    assert run.spared == 2


async def test_a_new_head_does_not_stop_the_log_from_being_cleaned(place):
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))
    run = await _raced(place, lambda: writer.add("new.parquet"))
    assert run.outcome is Outcome.DONE, run.reason
    assert f"_delta_log/{0:020d}.json" not in place.names()
    assert not (await sweep(place)).log


async def test_a_feature_that_arrives_after_the_plan_stops_the_sweep(place):
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))

    def happens() -> None:
        writer.features = ("catalogManaged",)
        writer.commit([{"protocol": writer.protocol()}])

    before = place.names()
    run = await _raced(place, happens)
    assert run.outcome is Outcome.REFUSED
    assert before <= place.names()


@pytest.mark.parametrize(
    ("key", "value"),
    [("delta.enableExpiredLogCleanup", "false"), ("delta.logRetentionDuration", "interval 365 days")],
)
async def test_a_log_that_its_owner_wants_to_keep_from_now_on_is_kept(place, key, value):
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))
    before = place.names()
    run = await _raced(place, lambda: _set(writer, key, value))
    assert run.outcome is Outcome.DONE, run.reason
    assert run.spared > 0
    assert before <= place.names()


async def test_of_a_log_that_is_to_be_kept_longer_only_what_is_older_still_goes(place):
    """The plan was to begin with version 20; by now only the versions below 10 are old enough."""
    writer = DeltaWriter(place)
    writer.create(days_ago(90))
    for version in range(1, 28):
        writer.add(f"{version}.parquet", at=days_ago(90 - version))
        if version in (10, 20):
            writer.checkpoint(at=days_ago(90 - version) + timedelta(minutes=1))
    run = await _raced(place, lambda: _set(writer, "delta.logRetentionDuration", "interval 75 days"))
    assert run.outcome is Outcome.DONE, run.reason
    assert min(writer.logged()) == f"{10:020d}.checkpoint.parquet"
    assert {f"{version:020d}.json" for version in range(10, 28)} <= writer.logged()


@pytest.mark.parametrize("rolled_back", [False, True])
async def test_a_commit_that_is_taken_back_after_the_plan_has_removed_nothing(place, rolled_back):
    """One file of vectors serves two data files: with the last commit, the second of them lets go of it."""
    writer = DeltaWriter(place, features=("deletionVectors",))
    vector, text = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", "^-aqEH.-t@S}K{vb[*k^"
    place.put(vector, b"vectors", days_ago(60))
    writer.create(days_ago(60))
    for name, offset in (("a.parquet", 1), ("b.parquet", 9)):
        writer.add(name, at=days_ago(60), vector=stored_vector(text, offset))
    writer.checkpoint(at=days_ago(59))
    writer.remove("a.parquet", at=days_ago(20))
    last = writer.remove("b.parquet", at=days_ago(10))

    def happens() -> None:
        if rolled_back:
            place.delete(f"_delta_log/{last:020d}.json")

    run = await _raced(place, happens)
    assert run.outcome is Outcome.DONE, run.reason
    assert ({"b.parquet", vector} <= place.names()) is rolled_back
    assert "a.parquet" not in place.names()


class _RacedEarly(_Raced):
    """It happens while the table is being listed."""

    async def load(self):
        state = await super().load()
        self._happen()
        return state


@pytest.mark.parametrize("kind", [_Raced, _RacedEarly])
async def test_a_longer_retention_counts_as_soon_as_the_table_has_it(place, kind):
    writer = _old_table(place)
    place.put("uncommitted.parquet", b"", days_ago(10))
    key = "delta.deletedFileRetentionDuration"
    run = await _raced(place, lambda: _set(writer, key, "interval 30 days"), kind)
    assert run.refusal.code == "table_changed"
    assert "uncommitted.parquet" in place.names()


def _set(writer: DeltaWriter, key: str, value: str) -> None:
    writer.configuration = {**writer.configuration, key: value}
    writer.commit([{"metaData": writer.metadata()}])


async def test_a_table_created_anew_after_the_plan_is_not_touched(place):
    writer = _old_table(place)
    place.put("orphan.parquet", b"", days_ago(50))

    def happens() -> None:
        for name in writer.logged():
            place.delete(f"_delta_log/{name}")
        other = DeltaWriter(place, table_id="another")
        other.create()
        other.add("orphan.parquet", write=False)

    run = await _raced(place, happens)
    assert run.outcome is Outcome.REFUSED
    assert "orphan.parquet" in place.names()


# 6: intervals that are not understood fall to a default


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("60 days", False), ("INTERVAL 8 WEEKS", False), ("interval 30 days 720 hours", False), ("1 day", True)],
)
async def test_the_whole_interval_counts_however_it_is_spelled(place, text, cleaned):
    """Forty days old: only the last of the intervals is shorter than that."""
    writer = DeltaWriter(place, configuration={"delta.logRetentionDuration": text})
    writer.create(days_ago(40))
    writer.add("a.parquet", at=days_ago(40))
    writer.checkpoint(at=days_ago(39))
    assert bool((await sweep(place)).log) is cleaned


async def test_an_interval_that_means_nothing_stops_the_table(place):
    writer = _old_table(place, configuration={"delta.deletedFileRetentionDuration": "a fortnight"})
    writer.checkpoint(at=days_ago(60))
    place.put("orphan.parquet", b"", days_ago(60))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.REFUSED
    assert "delta.deletedFileRetentionDuration" in swept.run.refusal.reason
    assert "a fortnight" in swept.run.refusal.reason
    assert "orphan.parquet" in place.names()


# 7: a retention that rests on tombstones which a checkpoint drops


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_a_checkpoint_does_not_change_what_a_removed_file_is(place, checkpointed):
    writer = DeltaWriter(place)
    writer.create(days_ago(39))
    writer.add("a.parquet", "b.parquet", "c.parquet", at=days_ago(38))
    writer.remove("a.parquet", at=days_ago(10))
    writer.remove("b.parquet", at=days_ago(5))
    if checkpointed:
        writer.tombstones = {key: one for key, one in writer.tombstones.items() if one["path"] != "a.parquet"}
        writer.checkpoint(at=days_ago(1))
    assert (await sweep(place)).data == {"a.parquet"}


# and: the log is left readable, or said to be broken


async def test_commits_stay_when_the_checkpoint_above_them_disappears(place):
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))
    run = await _raced(place, lambda: place.delete(f"_delta_log/{27:020d}.checkpoint.parquet"))
    assert run.outcome is Outcome.FAILED
    assert "is gone" in run.reason
    assert {f"{version:020d}.json" for version in range(28)} <= writer.logged()


async def test_the_log_rests_on_the_checkpoint_that_was_opened(place):
    """A broken one lies beside it; the good one goes when the sweep has begun."""
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))
    writer.log(f"{27:020d}.checkpoint.0e2b3f4c-5d6e-4f70-8192-a3b4c5d6e7f8.json", b"broken", days_ago(60))
    for _ in range(2):
        writer.add("young.parquet", at=days_ago(1))
    writer.checkpoint(at=days_ago(1))

    class Later(_Raced):
        async def commit_expiry(self, *args, **kwargs):
            return await DeltaTable.commit_expiry(self, *args, **kwargs)

    run = await _raced(place, lambda: place.delete(f"_delta_log/{27:020d}.checkpoint.parquet"), Later)
    assert run.outcome is Outcome.FAILED, run.reason
    assert "is gone" in run.reason
    assert {f"{version:020d}.json" for version in range(28)} <= writer.logged()


async def test_a_log_that_somebody_else_broke_meanwhile_is_reported(place):
    writer = _old_table(place)
    writer.checkpoint(at=days_ago(60))

    class Breaking(_Raced):
        async def after_sweep(self, *args):
            place.delete(f"_delta_log/{27:020d}.json")
            await super().after_sweep(*args)

    run = await _raced(place, lambda: None, Breaking)
    assert run.outcome is Outcome.FAILED
    assert "no complete checkpoint" in run.reason


async def test_the_log_is_looked_at_after_a_vacuum_alone_as_well(place):
    writer = DeltaWriter(place)
    for at in (days_ago(3), days_ago(2), days_ago(1)):
        writer.create(at) if writer.version < 0 else writer.add(f"{writer.version}.parquet", at=at)
    place.put("orphan.parquet", b"", days_ago(30))

    class Breaking(_Raced):
        async def after_sweep(self, *args):
            place.delete(f"_delta_log/{1:020d}.json")
            await super().after_sweep(*args)

    run = await _raced(place, lambda: None, Breaking)
    assert run.deletion.deleted.files == 1
    assert run.outcome is Outcome.FAILED
    assert "no complete checkpoint" in run.reason


async def test_a_log_that_begins_with_a_checkpoint_alone_is_not_called_broken(place):
    """Somebody else's cleanup took the checkpoint's own commit as well; every reader gets along without it."""
    writer = DeltaWriter(place)
    writer.create(days_ago(3))
    writer.add("a.parquet", at=days_ago(3))
    writer.checkpoint(at=days_ago(3))
    writer.add("b.parquet", at=days_ago(2))
    for version in (0, 1):
        place.delete(f"_delta_log/{version:020d}.json")
    place.put("orphan.parquet", b"", days_ago(30))
    run = await _raced(place, lambda: None)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.deletion.deleted.files == 1
