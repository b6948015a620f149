"""Which versions leave the log, and what the plan says when they should but cannot."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, days_ago, look, millis

from lakesweep.model.policy import CleanupPolicy
from lakesweep.storage import memory

KINDS = ["classic", "multipart", "v2-json", "v2-parquet"]


def _aged(kind: str | None = "classic", *, checkpoints: tuple[int, ...] = (10, 20), **more) -> DeltaWriter:
    """Versions 0 to 24; version v was committed 60 - v days ago, so that 0 to 29 would be past 30 days."""
    writer = DeltaWriter(MemoryPlace(), **{"features": ("v2Checkpoint",), **more})
    writer.create(days_ago(60))
    for version in range(1, 25):
        at = days_ago(60 - version)
        writer.add(f"f{version}.parquet", at=at)
        writer.checksum(at)
        if kind and version in checkpoints:
            writer.checkpoint(kind, at=at + timedelta(minutes=1))
    return writer


def _versions(names: set[str]) -> set[int]:
    return {int(name[:20]) for name in names if name[:20].isdigit()}


@pytest.mark.parametrize("kind", KINDS)
async def test_expired_versions_below_the_last_expired_checkpoint_go(kind):
    writer = _aged(kind)
    seen = await look(writer)
    assert [snapshot.id for snapshot in seen.expiry.expire] == [str(version) for version in range(20)]
    assert [kept.id for kept in seen.expiry.keep] == [str(version) for version in range(20, 25)]
    assert _versions(seen.expired) == set(range(20))
    going = {name for name in writer.logged() if name[:20].isdigit() and int(name[:20]) < 20}
    assert going <= seen.expired


async def test_the_boundary_keeps_its_commit_its_checksum_and_its_checkpoint():
    seen = await look(_aged())
    kept = seen.relative(seen.live | seen.tolerated)
    assert {f"_delta_log/{20:020d}.{end}" for end in ("json", "crc", "checkpoint.parquet")} <= kept


async def test_a_checkpoint_needed_by_young_versions_is_kept_with_all_that_follow():
    """Versions 0 to 24 are 41 to 17 days old: at 20 days retention only the checkpoint of 20 is young."""
    writer = DeltaWriter(MemoryPlace(), configuration={"delta.logRetentionDuration": "interval 25 days"})
    writer.create(days_ago(41))
    for version in range(1, 25):
        writer.add(f"f{version}", at=days_ago(41 - version))
        if version in (10, 20):
            writer.checkpoint(at=days_ago(41 - version) + timedelta(minutes=1))
    seen = await look(writer)
    assert [snapshot.id for snapshot in seen.expiry.expire] == [str(version) for version in range(10)]


async def test_the_cutoff_is_inclusive_and_floored_to_midnight():
    midnight = NOW.replace(hour=0) - timedelta(days=30)
    for at, going in ((midnight, 2), (midnight + timedelta(milliseconds=1), 0)):
        writer = DeltaWriter(MemoryPlace())
        writer.create(at - timedelta(hours=1))
        writer.add("a", at=at)
        writer.add("b", at=at + timedelta(hours=1))
        writer.checkpoint(at=at + timedelta(hours=2))
        assert len((await look(writer)).expiry.expire) == going


async def test_the_tables_own_property_overrides_the_policy():
    policy = CleanupPolicy(max_snapshot_age=timedelta(days=365))
    seen = await look(_aged(configuration={"delta.logRetentionDuration": "interval 1 day"}), policy=policy)
    assert seen.expiry.expire
    seen = await look(_aged(configuration={"delta.logRetentionDuration": "interval 99 days"}))
    assert not seen.expiry.expire
    assert seen.expiry.skipped is None


async def test_a_log_without_any_checkpoint_says_what_would_help():
    seen = await look(_aged(None))
    assert not seen.expiry.expire
    assert "_last_checkpoint" in (seen.expiry.skipped or "")
    assert "create_checkpoint" in (seen.expiry.skipped or "")


async def test_without_the_hint_nothing_goes_as_in_delta_itself():
    writer = _aged()
    writer.place.delete("_delta_log/_last_checkpoint")
    seen = await look(writer)
    assert not seen.expiry.expire
    assert not seen.references.expired


@pytest.mark.parametrize("hint", [b"", b"not json", b'{"size":3}'])
async def test_a_damaged_hint_is_replaced_by_what_is_listed(hint):
    writer = _aged()
    writer.log("_last_checkpoint", hint, NOW)
    assert len((await look(writer)).expiry.expire) == 20


async def test_the_hint_limits_how_far_the_log_is_cleaned():
    writer = _aged()
    writer.hint(10)
    assert len((await look(writer)).expiry.expire) == 10


async def test_cleanup_switched_off_by_the_table_is_respected_and_said():
    seen = await look(_aged(configuration={"delta.enableExpiredLogCleanup": "false"}))
    assert not seen.expiry.expire
    assert not seen.references.expired
    assert "enableExpiredLogCleanup" in (seen.expiry.skipped or "")


async def test_nothing_due_is_no_obstacle():
    writer = DeltaWriter(MemoryPlace())
    writer.create(days_ago(3))
    writer.add("a", at=days_ago(2))
    assert (await look(writer)).expiry.skipped is None


def _restored(writer: DeltaWriter, days: float) -> DeltaWriter:
    """Its first ten commits were brought back so long ago, which is their time now."""
    objects = memory.bucket(writer.place.bucket).objects
    for version in range(10):
        name = f"{version:020d}.json"
        stored = objects[f"{writer.place.prefix}/_delta_log/{name}"]
        writer.log(name, stored.data, days_ago(days) + timedelta(seconds=version))
    return writer


@pytest.mark.parametrize(("days", "going"), [(5, 0), (35, 20)])
async def test_restored_commits_wait_for_the_retention_of_the_log_once_more(days, going):
    seen = await look(_restored(_aged(), days))
    assert len(seen.expiry.expire) == going
    assert seen.expiry.skipped is None


@pytest.mark.parametrize(("days", "going"), [(5, 0), (35, 25)])
async def test_restored_commits_before_an_older_checkpoint_wait_for_another_one(days, going):
    """As in Delta itself, and the plan says what would help."""
    writer = _restored(_aged(checkpoints=(10,)), days)
    seen = await look(writer)
    assert not seen.expiry.expire
    assert "no checkpoint is younger than the log files before it" in (seen.expiry.skipped or "")
    assert "make a commit, and then write a checkpoint" in (seen.expiry.skipped or "")
    writer.commit([], days_ago(2))
    writer.checkpoint(at=days_ago(1))
    seen = await look(writer)
    assert len(seen.expiry.expire) == going
    assert seen.expiry.skipped is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_boundary_that_cannot_be_opened_is_not_trusted(kind):
    writer = _aged(kind, checkpoints=(10, 19, 20))
    top = next(name for name in sorted(writer.logged()) if name.startswith(f"{20:020d}.checkpoint"))
    writer.log(top, b"x" * 50, days_ago(40) + timedelta(minutes=1))
    seen = await look(writer)
    assert [snapshot.id for snapshot in seen.expiry.expire] == [str(version) for version in range(19)]


async def test_when_every_boundary_is_broken_the_plan_says_which():
    writer = _aged(checkpoints=(20, 24))
    writer.log(f"{20:020d}.checkpoint.parquet", b"x" * 50, days_ago(40) + timedelta(minutes=1))
    writer.log(f"{24:020d}.checkpoint.parquet", b"x" * 50, days_ago(36) + timedelta(minutes=1))
    seen = await look(writer)
    assert not seen.expiry.expire
    assert "cannot be used" in (seen.expiry.skipped or "")


async def test_a_boundary_with_a_missing_sidecar_is_not_trusted():
    writer = _aged("v2-json", checkpoints=(10,))
    missing = next(name for name in writer.logged() if name.startswith("_sidecars/"))
    for version in range(25, 30):
        writer.add(f"f{version}", at=days_ago(40 - version))
    writer.checkpoint("v2-json", at=days_ago(5))
    writer.place.delete(f"_delta_log/{missing}")
    assert not (await look(writer)).expiry.expire


async def test_a_boundary_without_its_own_commit_is_not_trusted():
    writer = _aged()
    writer.place.delete(f"_delta_log/{20:020d}.json")
    seen = await look(writer)
    assert [snapshot.id for snapshot in seen.expiry.expire] == [str(version) for version in range(10)]


async def test_in_commit_timestamps_younger_than_the_file_keep_the_version():
    """The store's clock was behind: the commit says it is young."""
    writer = DeltaWriter(MemoryPlace(), features=("inCommitTimestamp",))
    writer.create(days_ago(60), info={"inCommitTimestamp": millis(days_ago(60))})
    writer.commit([], days_ago(50), info={"inCommitTimestamp": millis(days_ago(3))})
    writer.commit([], days_ago(40), info={"inCommitTimestamp": millis(days_ago(2))})
    writer.checkpoint(at=days_ago(40) + timedelta(minutes=1))
    assert not (await look(writer)).expiry.expire


async def test_a_bad_in_commit_timestamp_makes_its_commit_unreadable():
    writer = DeltaWriter(MemoryPlace(), features=("inCommitTimestamp",))
    writer.create(days_ago(60), info={"inCommitTimestamp": "long ago"})
    writer.commit([], days_ago(50))
    writer.checkpoint(at=days_ago(50) + timedelta(minutes=1))
    seen = await look(writer)
    assert not seen.expiry.expire
    assert "not a number" in (seen.expiry.skipped or "")


@pytest.mark.parametrize(("versions", "going"), [(5, 20), (6, 10), (15, 10), (16, 0)])
async def test_min_snapshots_to_keep_is_honoured(versions, going):
    seen = await look(_aged(), policy=CleanupPolicy(min_snapshots_to_keep=versions))
    assert [snapshot.id for snapshot in seen.expiry.expire] == [str(version) for version in range(going)]
    assert _versions(seen.expired) == set(range(going))


async def test_few_of_many_checkpoints_are_opened():
    seen = await look(_aged(checkpoints=(2, 4, 6, 8, 10, 12, 14, 16, 18, 20)))
    assert {one.version for one in seen.state.native.inspected} == {20, 14, 2}


async def test_when_no_checkpoint_leaves_enough_versions_the_plan_says_so():
    writer = _aged()
    writer.log(f"{10:020d}.checkpoint.parquet", b"x" * 50, days_ago(50) + timedelta(minutes=1))
    seen = await look(writer, policy=CleanupPolicy(min_snapshots_to_keep=6))
    assert not seen.expiry.expire
    assert "checkpoint of version 20" in (seen.expiry.skipped or "")
    assert "min_snapshots_to_keep = 6" in (seen.expiry.skipped or "")


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(1, 24)), st.integers(1, 26))
async def test_as_many_versions_stay_as_are_asked_for_and_not_many_more(checkpoints, versions):
    seen = await look(_aged(checkpoints=tuple(checkpoints)), policy=CleanupPolicy(min_snapshots_to_keep=versions))
    left = 25 - len(seen.expiry.expire)
    assert left >= min(versions, 25)
    assert left == 25 or 25 - left in checkpoints
    assert left < 25 or not any(25 - one >= 2 * versions for one in checkpoints)


async def test_leftovers_of_an_interrupted_run_are_found_again():
    writer = _aged()
    for version in range(20):
        writer.place.delete(f"_delta_log/{version:020d}.json")
    seen = await look(writer)
    assert {snapshot.id for snapshot in seen.expiry.expire} == {str(version) for version in range(1, 20)}
    assert f"{10:020d}.checkpoint.parquet" in seen.expired


async def test_after_everything_expired_is_gone_a_second_plan_is_empty():
    writer = _aged()
    for name in (await look(writer)).expired:
        writer.place.delete(f"_delta_log/{name}")
    seen = await look(writer)
    assert seen.expiry.empty
    assert not seen.references.expired
    assert seen.live_data == {f"f{version}.parquet" for version in range(1, 25)}


async def test_protected_checkpoints_go_once_the_boundary_has_one():
    properties = {"delta.requireCheckpointProtectionBeforeVersion": "22"}
    writer = _aged(features=("checkpointProtection",), configuration=properties)
    assert len((await look(writer)).expiry.expire) == 20


async def test_staged_commits_at_or_above_the_boundary_always_survive():
    writer = _aged()
    for version in (3, 19, 20, 25):
        writer.log(f"_staged_commits/{version:020d}.x.json", b"{}", days_ago(60))
    staged = {name for name in (await look(writer)).expired if name.startswith("_staged")}
    assert staged == {f"_staged_commits/{version:020d}.x.json" for version in (3, 19)}


# --- sidecars


@pytest.mark.parametrize("kind", ["v2-json", "v2-parquet"])
async def test_sidecars_go_with_the_last_checkpoint_that_names_them(kind):
    writer = _aged(kind)
    seen = await look(writer)
    named_by_10, named_by_20 = _sidecars_of(writer, 10), _sidecars_of(writer, 20)
    assert named_by_10 <= seen.expired
    assert not named_by_20 & seen.expired


@pytest.mark.parametrize("newer", [False, True], ids=["the newest", "one before the newest"])
async def test_a_sidecar_that_a_staying_checkpoint_shares_survives(newer):
    writer = _aged("v2-json", checkpoints=(10,))
    shared = _sidecars_of(writer, 10)
    name = next(name for name in writer.logged() if name.startswith(f"{10:020d}.checkpoint"))
    body = _data(writer, name)
    writer.log(f"{20:020d}.checkpoint.other.json", body, days_ago(40) + timedelta(minutes=1))
    if newer:
        writer.checkpoint("v2-json", at=days_ago(36) + timedelta(minutes=1))
    writer.hint(20)
    seen = await look(writer)
    assert len(seen.expiry.expire) == 20
    assert not shared & seen.expired


async def test_young_sidecars_stay_since_a_checkpoint_may_be_in_the_making():
    writer = _aged("v2-json", configuration={"delta.logRetentionDuration": "interval 0 days"})
    writer.log("_sidecars/young.parquet", b"x", NOW - timedelta(hours=30))
    writer.log("_sidecars/old.parquet", b"x", NOW - timedelta(hours=60))
    seen = await look(writer)
    assert "_sidecars/old.parquet" in seen.expired
    assert "_sidecars/young.parquet" not in seen.expired


async def test_a_staying_checkpoint_that_cannot_be_read_keeps_every_sidecar():
    writer = _aged("v2-json", checkpoints=(10, 20, 22, 24))
    writer.log("_sidecars/old.parquet", b"x", days_ago(59))
    broken = next(name for name in writer.logged() if name.startswith(f"{24:020d}.checkpoint"))
    writer.log(broken, b"{", days_ago(36) + timedelta(minutes=1))
    assert not {name for name in (await look(writer)).expired if name.startswith("_sidecars")}


def _data(writer: DeltaWriter, name: str) -> bytes:
    return memory.bucket(writer.place.bucket).objects[f"{writer.place.prefix}/_delta_log/{name}"].data


def _sidecars_of(writer: DeltaWriter, version: int) -> set[str]:
    name = next(name for name in writer.logged() if name.startswith(f"{version:020d}.checkpoint"))
    found = re.findall(rb"[0-9a-f]{8}-[0-9a-f-]{27}\.parquet", _data(writer, name))
    return {f"_sidecars/{one.decode()}" for one in found}
