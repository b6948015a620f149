"""Java is the judge of orphans: what its own orphan clean would take of an old table, we take, and nothing else."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import paimon
from tests.builders.paimon_java import ZOO, JavaTable, append, create, primary_key
from tests.peers.paimon import shared_peer

from lakesweep.model.files import Reason, Verdict
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

ONLY_ORPHANS = CleanupPolicy(dry_run=False)

STRAY = (
    "manifest/manifest-00000000-0000-0000-0000-000000000001-0",
    "manifest/manifest-list-00000000-0000-0000-0000-000000000002-0",
    "manifest/index-manifest-00000000-0000-0000-0000-000000000003-0",
    "index/index-00000000-0000-0000-0000-000000000004-0",
    "statistics/stat-00000000-0000-0000-0000-000000000005-0",
)
NEVER = (
    "README.md",
    "backup/manifest/manifest-00000000-0000-0000-0000-00000000000a-0",
    "schema/notes",
    "tag/notes",
    "service/primary-key-lookup",
    "metadata/v1.metadata.json",
    "dt=2024-01-01/data-00000000-0000-0000-0000-00000000000b-0.parquet",
    "dt=2024-01-01/bucket-0/deeper/data-00000000-0000-0000-0000-00000000000c-0.parquet",
    "other/bucket-0/data-00000000-0000-0000-0000-00000000000d-0.parquet",
)


@pytest.fixture
def peer() -> Any:
    return shared_peer()


def strays(table: Path) -> list[str]:
    """Names that Paimon would give, one in each place where it keeps files."""
    buckets = sorted({str(file.parent.relative_to(table)) for file in table.rglob("bucket-*/*")})[:2]
    inside = [
        f"{bucket}/data-00000000-0000-0000-0000-0000000000{number:02x}-0.orc" for number, bucket in enumerate(buckets)
    ]
    return [*STRAY, *inside, *(f"{bucket}/changelog-stray{number}.orc" for number, bucket in enumerate(buckets))]


@pytest.mark.parametrize("name", [name for name in ZOO if name != "external path"])
async def test_planted_orphans_are_found_exactly_and_java_agrees(name: str, peer: Any, tmp_path: Path) -> None:
    table = ZOO[name](peer, tmp_path / "warehouse")
    paimon.age(table.path)
    planted = strays(table.path)
    paimon.plant(table.path, *planted)
    # In a table with more levels than this Java takes a file from the level above; ours never does.
    paimon.plant(table.path, *(file for file in NEVER if name != "typed partitions" or not file.startswith("dt=")))
    young = paimon.plant(table.path, "manifest/manifest-young-0", "index/index-young-0", by=timedelta(hours=1))
    java = paimon.copy_of(table.path, tmp_path / "java")
    before = paimon.files_of(table.path)
    taken = peer("orphans", path=str(java))
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert run.outcome is Outcome.DONE, run.reason
    gone = before - paimon.files_of(table.path)
    # A rollback leaves files of its own behind.
    assert gone == set(planted) or (name == "rollback" and gone > set(planted))
    assert paimon.files_of(table.path) == paimon.files_of(java)
    assert taken["count"] == len(gone)
    assert all(file.exists() for file in young)
    assert {row.reason for row in paimon.candidates(run)} == {Reason.UNREFERENCED}
    assert run.plan is not None
    assert run.plan.verdicts[Verdict.YOUNG].files == 2
    ours = JavaTable(path=table.path, peer=peer)
    for number in ours.snapshots():
        assert ours("read", snapshot=number) == JavaTable(path=java, peer=peer)("read", snapshot=number)


async def test_files_of_a_writer_that_never_committed_go_when_they_are_old(peer: Any, tmp_path: Path) -> None:
    table = append(peer, tmp_path / "warehouse")
    before = paimon.files_of(table.path)
    table.write([9, "2024-01-09", "never"], abandon=True)
    lost = paimon.files_of(table.path) - before
    assert lost
    on = paimon.bench(tmp_path, tmp_path / "scratch")
    assert (await paimon.clean(table.path, on, ONLY_ORPHANS)).deletion.deleted.files == 0
    paimon.age(table.path)
    run = await paimon.clean(table.path, on, ONLY_ORPHANS)
    assert before - {"snapshot/LATEST"} <= paimon.files_of(table.path)
    assert not lost & paimon.files_of(table.path)
    assert run.deletion.deleted.files == len(lost)


async def test_snapshots_that_a_rollback_left_behind_are_orphans(peer: Any, tmp_path: Path) -> None:
    table = append(peer, tmp_path / "warehouse")
    table("rollback", snapshot=4)
    paimon.age(table.path)
    java = paimon.copy_of(table.path, tmp_path / "java")
    peer("orphans", path=str(java))
    await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert paimon.files_of(table.path) == paimon.files_of(java)


async def test_temporary_snapshot_files_go_and_do_not_disturb(peer: Any, tmp_path: Path) -> None:
    """Java's own listing breaks on the first of these."""
    table = primary_key(peer, tmp_path / "warehouse")
    latest = table.snapshots()[-1]
    temporary = paimon.plant(
        table.path,
        "snapshot/snapshot-900000000-0000-0000-0000-000000000001.tmp",
        f"snapshot/.snapshot-{latest + 1}.00000000-0000-0000-0000-000000000002.tmp",
        "tag/tag-x00000000-0000-0000-0000-000000000003.tmp",
    )
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert run.outcome is Outcome.DONE, run.reason
    assert [file.exists() for file in temporary] == [False, False, True]
    assert table.snapshots()[-1] == latest
    assert table("read")


async def test_a_table_that_was_never_committed_to_has_nothing_to_do(peer: Any, tmp_path: Path) -> None:
    table = create(peer, tmp_path / "warehouse", "empty")
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert (run.outcome, run.deletion.deleted.files) == (Outcome.DONE, 0)


async def test_orphans_in_an_external_path_are_found(peer: Any, tmp_path: Path) -> None:
    table = ZOO["external path"](peer, tmp_path / "warehouse")
    external = tmp_path / "warehouse" / "external"
    rows = table("read")
    paimon.age(tmp_path / "warehouse")
    before = paimon.files_of(external)
    bucket = next(iter(before)).rpartition("/")[0]
    paimon.plant(external, f"{bucket}/data-stray-0.parquet")
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.deletion.deleted.files == 1
    assert paimon.files_of(external) == before
    assert table("read") == rows


async def test_only_long_empty_partition_directories_go(peer: Any, tmp_path: Path) -> None:
    table = append(peer, tmp_path / "warehouse")
    old, recent = table.path / "dt=2000-01-01" / "bucket-0", table.path / "dt=2000-01-02" / "bucket-0"
    other = table.path / "notes" / "empty"
    for directory in (old, recent, other):
        directory.mkdir(parents=True)
    for directory in (old, old.parent, other, other.parent):
        os.utime(directory, (1, 1))
    java = paimon.copy_of(table.path, tmp_path / "java")
    peer("orphans", path=str(java))
    await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert not old.parent.exists()
    assert recent.exists()
    assert other.exists()
    assert (java / "dt=2000-01-02" / "bucket-0").exists()
    assert not (java / "dt=2000-01-01").exists()


async def test_an_external_path_outside_the_root_is_left_alone(peer: Any, tmp_path: Path) -> None:
    table = ZOO["external path"](peer, tmp_path / "warehouse")
    external = tmp_path / "warehouse" / "external"
    paimon.age(tmp_path / "warehouse")
    before = paimon.files_of(external)
    run = await paimon.clean(table.path, paimon.bench(table.path, tmp_path / "scratch"), ONLY_ORPHANS)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.plan is not None
    assert run.plan.missing_count == 0
    assert paimon.files_of(external) == before
