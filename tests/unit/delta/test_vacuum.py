"""Whole cycles: which data files go, by the rules of VACUUM, with the real engine and the real deleter."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.delta import (
    NOW,
    DeltaWriter,
    LocalPlace,
    days_ago,
    inline_vector,
    millis,
    stored_vector,
    sweep,
)

from lakesweep.formats.delta.table import DeltaOptions
from lakesweep.model.files import Reason, Verdict
from lakesweep.model.policy import CleanupPolicy, OnMissing
from lakesweep.model.run import Outcome

KINDS = [None, "classic", "multipart", "v2-json", "v2-parquet"]
VECTOR = "vBn[lx{q8@P<9BNH/isA"
VECTOR_FILE = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
OTHER_VECTOR = "^-aqEH.-t@S}K{vb[*k^"
OTHER_VECTOR_FILE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
SECOND = timedelta(seconds=1)
WEEK = timedelta(weeks=1)


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _writer(place: LocalPlace, **more) -> DeltaWriter:
    writer = DeltaWriter(place, **more)
    writer.create(days_ago(40))
    return writer


@pytest.mark.parametrize("kind", KINDS)
async def test_exactly_the_dead_go(place, kind):
    """Live kept, untracked young kept, untracked old gone, tombstones by their age, hidden and foreign kept."""
    writer = _writer(place, features=("v2Checkpoint",))
    writer.add("live.parquet", "k=1/live.parquet", "dead.parquet", "resting.parquet", at=days_ago(39))
    writer.remove("dead.parquet", at=NOW - WEEK - SECOND)
    writer.remove("resting.parquet", at=NOW - WEEK + SECOND)
    if kind:
        writer.checkpoint(kind, at=days_ago(1))
    writer.add("late.parquet", at=days_ago(30))
    for name, age in (("old.parquet", WEEK + SECOND), ("young.parquet", WEEK - SECOND), ("k=1/old.parquet", 2 * WEEK)):
        place.put(name, b"orphan", NOW - age)
    for name in ("notes.txt", "_hidden/x.parquet", "sub/.x.parquet", "_SUCCESS"):
        place.put(name, b"", days_ago(99))
    swept = await sweep(place, execute=True)
    gone = {"dead.parquet", "old.parquet", "k=1/old.parquet"}
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == gone
    assert {row.reason for row in swept.planned.values()} == {Reason.UNREFERENCED}
    assert not gone & place.names()
    assert {"live.parquet", "resting.parquet", "young.parquet", "late.parquet", "notes.txt"} <= place.names()
    assert swept.run.plan.verdicts[Verdict.FOREIGN].files == 1
    again = await sweep(place, execute=True)
    assert again.run.outcome is Outcome.DONE
    assert not again.names


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_removed_after_the_checkpoint_goes(place, kind):
    writer = _writer(place, features=("v2Checkpoint",))
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    writer.remove("a.parquet", at=days_ago(20))
    assert (await sweep(place)).data == {"a.parquet"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_added_again_is_alive_again(place, kind):
    writer = _writer(place, features=("v2Checkpoint",))
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    if kind:
        writer.checkpoint(kind, at=days_ago(37))
    writer.add("a.parquet", at=days_ago(36))
    assert not (await sweep(place)).data


@pytest.mark.parametrize("order", [1, -1])
async def test_a_commit_that_adds_and_removes_one_file_keeps_it(place, order):
    """No valid commit does so; where one does, the doubt keeps the file."""
    writer = _writer(place)
    place.put("a.parquet", b"", days_ago(39))
    both = [{"add": writer.added("a.parquet")}, writer.removal("a.parquet", days_ago(39))]
    writer.commit(both[::order], days_ago(39))
    assert not (await sweep(place)).data


async def test_untracked_files_wait_for_the_longer_of_grace_and_retention(place):
    _writer(place, configuration={"delta.deletedFileRetentionDuration": "interval 1 hour"})
    place.put("x.parquet", b"", NOW - timedelta(hours=23))
    place.put("y.parquet", b"", NOW - timedelta(hours=25))
    assert (await sweep(place)).data == {"y.parquet"}
    assert (await sweep(place, policy=CleanupPolicy(grace_period=timedelta(hours=26)))).data == set()


async def test_a_remove_without_a_time_has_expired_once_its_commit_is_that_old(place):
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.commit([writer.removal("a.parquet", None)], days_ago(8))
    writer.commit([writer.removal("b.parquet", None)], NOW)
    assert (await sweep(place)).data == {"a.parquet"}


async def test_an_absent_live_file_refuses_and_an_absent_removed_one_does_not(place):
    writer = _writer(place)
    writer.add("a.parquet", "gone.parquet", at=days_ago(39))
    writer.checkpoint(at=days_ago(39))
    writer.remove("gone.parquet", at=days_ago(1))
    place.delete("gone.parquet")
    place.put("orphan.parquet", b"", days_ago(30))
    swept = await sweep(place)
    assert swept.run.refusal is None
    assert swept.data == {"orphan.parquet"}
    place.delete("a.parquet")
    swept = await sweep(place)
    assert swept.run.refusal.code == "missing_live_files"
    assert swept.run.plan.missing == (place.location.join("a.parquet").raw,)


async def test_a_short_live_set_is_noticed_by_the_tables_own_count(place):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.checksum(files=500)
    swept = await sweep(place, execute=True)
    assert swept.run.refusal.code == "short_live_set"


# --- paths


SPECIAL = [
    "k=a b/x.parquet",
    "abc def/#1.parquet",
    "k=e%3Af/x.parquet",
    "k=ü/ö.parquet",
    "k=a+b/100%.parquet",
    "k=?/&.parquet",
]


@pytest.mark.parametrize("kind", ["classic", "v2-json", None])
async def test_names_with_special_characters_are_matched_byte_for_byte(place, kind):
    writer = _writer(place, features=("v2Checkpoint",))
    writer.add(*SPECIAL, at=days_ago(39))
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    for name in SPECIAL:
        place.put(name.replace(".parquet", "-orphan.parquet"), b"", days_ago(39))
    # Decoding twice would take these for the live ones.
    place.put("k=e:f/x.parquet", b"", days_ago(39))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {name.replace(".parquet", "-orphan.parquet") for name in SPECIAL} | {"k=e:f/x.parquet"}
    assert set(SPECIAL) <= place.names()


@pytest.mark.parametrize("kind", ["classic", None])
async def test_live_files_spelled_as_absolute_paths_inside_the_root_stay(place, kind):
    writer = _writer(place)
    base = place.path
    for name, spelled in (("a.parquet", f"file:{base}/a.parquet"), ("b.parquet", f"{base}/b.parquet")):
        place.put(name, b"", days_ago(39))
        writer.commit([{"add": writer.added(name, spelled=spelled)}], days_ago(39))
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    place.put("orphan.parquet", b"", days_ago(39))
    assert (await sweep(place)).data == {"orphan.parquet"}


@pytest.mark.parametrize("kind", ["classic", None])
async def test_live_files_under_another_name_of_the_root_stay(place, kind, tmp_path):
    """The writer knew the table through a symlink."""
    writer = _writer(place)
    place.put("k=1/a.parquet", b"", days_ago(39))
    writer.commit([{"add": writer.added("", spelled=f"file:{tmp_path}/link/t/k=1/a.parquet")}], days_ago(39))
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    place.put("k=2/a.parquet", b"", days_ago(39))
    swept = await sweep(place)
    assert swept.run.refusal is None
    assert swept.data == {"k=2/a.parquet"}


async def test_files_of_a_shallow_clones_source_are_neither_missing_nor_touched(place, tmp_path):
    source = LocalPlace(tmp_path / "lake" / "source")
    source.put("a.parquet", b"", days_ago(99))
    writer = _writer(place)
    writer.commit([{"add": writer.added("", spelled=f"file:{source.path}/a.parquet")}], days_ago(39))
    writer.checkpoint(at=days_ago(38))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE
    assert source.names() == {"a.parquet"}


async def test_a_table_with_shallow_clones_keeps_its_data_but_not_its_log(place):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.checkpoint(at=days_ago(37))
    swept = await sweep(place, options=DeltaOptions(has_shallow_clones=True))
    assert not swept.data
    assert swept.log


# --- deletion vectors, change data, names


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_of_vectors_stays_while_any_action_names_it(place, kind):
    writer = _writer(place, features=("deletionVectors", "v2Checkpoint"))
    for name in (VECTOR_FILE, OTHER_VECTOR_FILE, "deletion_vector_00000000-0000-0000-0000-000000000000.bin"):
        place.put(name, b"vector", days_ago(39))
    writer.add("a.parquet", at=days_ago(39), vector=stored_vector(VECTOR, 1))
    writer.add("b.parquet", at=days_ago(39), vector=stored_vector(VECTOR, 9))
    writer.add("c.parquet", at=days_ago(39), vector=stored_vector(OTHER_VECTOR))
    writer.add("i.parquet", at=days_ago(39), vector=inline_vector())
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    writer.remove("a.parquet", at=days_ago(20))
    writer.remove("c.parquet", at=days_ago(1))
    dead = {"a.parquet", "deletion_vector_00000000-0000-0000-0000-000000000000.bin"}
    assert (await sweep(place)).data == dead
    writer.remove("b.parquet", at=days_ago(19))
    assert (await sweep(place)).data == dead | {"b.parquet", VECTOR_FILE}


@pytest.mark.parametrize("kind", ["classic", None])
async def test_a_replaced_deletion_vector_goes_after_its_retention(place, kind):
    writer = _writer(place, features=("deletionVectors",))
    place.put(VECTOR_FILE, b"vector", days_ago(39))
    place.put(OTHER_VECTOR_FILE, b"vector", days_ago(39))
    writer.add("a.parquet", at=days_ago(39), vector=stored_vector(VECTOR))
    if kind:
        writer.checkpoint(kind, at=days_ago(38))
    renewed = {"add": writer.added("a.parquet", stored_vector(OTHER_VECTOR))}
    writer.commit([writer.removal("a.parquet", days_ago(6)), renewed], days_ago(6))
    assert not (await sweep(place)).data
    assert (await sweep(place, now=NOW + timedelta(days=2))).data == {VECTOR_FILE}


async def test_a_tombstone_may_name_the_file_of_vectors_itself(place):
    """Dropping the feature protects its files from cleaners that do not know vectors."""
    writer = _writer(place)
    place.put(VECTOR_FILE, b"vector", days_ago(39))
    writer.commit([writer.removal(VECTOR_FILE, days_ago(3))], days_ago(3))
    writer.checkpoint(at=days_ago(3))
    assert not (await sweep(place)).data


async def test_change_data_lives_by_its_age_alone(place):
    writer = _writer(place, configuration={"delta.enableChangeDataFeed": "true"})
    old, young = "_change_data/cdc-old.parquet", "_change_data/k=1/cdc-young.parquet"
    place.put(old, b"", days_ago(8))
    place.put(young, b"", days_ago(6))
    writer.commit(
        [{"cdc": {"path": name, "partitionValues": {}, "size": 1, "dataChange": False}} for name in (old, young)]
    )
    assert (await sweep(place)).data == {old}


async def test_partition_directories_may_begin_with_an_underscore(place):
    writer = _writer(place, partition_columns=("_day",))
    writer.add("_day=1/a.parquet", at=days_ago(39))
    place.put("_day=1/orphan.parquet", b"", days_ago(39))
    place.put("_tmp/orphan.parquet", b"", days_ago(39))
    assert (await sweep(place)).data == {"_day=1/orphan.parquet"}


async def test_icebergs_metadata_stays_while_uniform_is_on(place):
    uniform = {"delta.universalFormat.enabledFormats": "iceberg"}
    writer = _writer(place, configuration=uniform)
    place.put("metadata/x.parquet", b"", days_ago(39))
    place.put("metadata/v1.metadata.json", b'{"format-version": 2}', days_ago(39))
    swept = await sweep(place)
    assert swept.run.refusal is None
    assert not swept.data
    writer.commit([{"metaData": {**writer.metadata(), "configuration": {}}}])
    assert (await sweep(place)).data == {"metadata/x.parquet"}


async def test_hudi_metadata_at_the_root_is_uniforms_only_while_it_is_on(place):
    writer = _writer(place, configuration={"delta.universalFormat.enabledFormats": "hudi"})
    for name in (".hoodie/20260101.commit", ".hoodie/metadata/x.parquet", "orphan.parquet"):
        place.put(name, b"", days_ago(39))
    swept = await sweep(place)
    assert swept.run.refusal is None
    assert swept.data == {"orphan.parquet"}
    writer.commit([{"metaData": {**writer.metadata(), "configuration": {}}}])
    assert (await sweep(place)).run.refusal.code == "foreign_table"
    writer.commit(
        [{"metaData": {**writer.metadata(), "configuration": {"delta.universalFormat.enabledFormats": "hudi"}}}]
    )
    place.put("sub/.hoodie/20260101.commit", b"", days_ago(39))
    assert (await sweep(place)).run.refusal.code == "foreign_table"


async def test_another_table_inside_this_one_is_noticed_and_nothing_goes(place):
    _writer(place)
    nested = DeltaWriter(LocalPlace(place.path / "nested"))
    nested.create(days_ago(40))
    nested.add("a.parquet", at=days_ago(39))
    swept = await sweep(place, execute=True)
    assert swept.run.refusal.code == "foreign_table"
    assert "nested/a.parquet" in place.names()


# --- log and data together


async def test_the_log_and_the_data_are_cleaned_in_one_cycle(place):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.add("b.parquet", at=days_ago(37))
    writer.checkpoint(at=days_ago(36))
    writer.add("c.parquet", at=days_ago(1))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {"a.parquet"}
    assert swept.log == {f"{version:020d}.json" for version in range(3)}
    assert {swept.planned[f"_delta_log/{name}"].reason for name in swept.log} == {Reason.EXPIRED}
    assert swept.run.expired_snapshots == ("0", "1", "2")
    assert place.names() == {
        "b.parquet",
        "c.parquet",
        f"_delta_log/{3:020d}.checkpoint.parquet",
        f"_delta_log/{3:020d}.json",
        f"_delta_log/{4:020d}.json",
        "_delta_log/_last_checkpoint",
    }


async def test_a_dry_run_changes_nothing_and_names_everything(place):
    writer = _writer(place)
    for version in range(1, 4):
        writer.add(f"{version}.parquet", at=days_ago(39))
    writer.checkpoint(at=days_ago(38))
    place.put("orphan.parquet", b"", days_ago(38))
    before = place.names()
    swept = await sweep(place)
    assert swept.run.outcome is Outcome.DRY_RUN
    assert swept.names == {f"_delta_log/{version:020d}.json" for version in range(3)} | {"orphan.parquet"}
    assert place.names() == before


async def test_an_empty_table_is_cleaned_like_any_other(place):
    _writer(place)
    place.put("orphan.parquet", b"", days_ago(38))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE
    assert swept.data == {"orphan.parquet"}


async def test_a_damaged_table_cleans_nothing_even_with_on_missing_report(place):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.log(f"{1:020d}.json", b'{"add":', days_ago(39))
    place.put("orphan.parquet", b"", days_ago(38))
    swept = await sweep(place, execute=True, policy=CleanupPolicy(on_missing=OnMissing.REPORT))
    assert swept.run.outcome is Outcome.FAILED
    assert swept.run.refusal.code == "indeterminate"
    assert "orphan.parquet" in place.names()


async def test_in_commit_timestamps_do_not_change_what_stays_readable(place):
    writer = DeltaWriter(
        place, features=("inCommitTimestamp",), configuration={"delta.enableInCommitTimestamps": "true"}
    )
    writer.create(days_ago(60), info={"inCommitTimestamp": millis(days_ago(60))})
    for version in (1, 2):
        writer.place.put(f"{version}.parquet", b"", days_ago(50))
        action = {"add": writer.added(f"{version}.parquet")}
        writer.commit([action], days_ago(50 - version), info={"inCommitTimestamp": millis(days_ago(50 - version))})
    writer.checkpoint(at=days_ago(40))
    assert (await sweep(place)).log == {f"{version:020d}.json" for version in range(2)}
