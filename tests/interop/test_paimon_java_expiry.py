"""Java is the judge: on two copies of a table its own expiry and ours leave the same files, and Java reads the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders import paimon
from tests.builders.paimon_java import (
    ZOO,
    JavaTable,
    append,
    create,
    decoupled,
    fast_forwarded,
    primary_key,
    with_tags,
)
from tests.peers.paimon import shared_peer

from lakesweep.model.run import Outcome

DECOUPLED = {"changelog_retain_min": 50, "changelog_retain_max": 100}


@pytest.fixture
def peer() -> Any:
    return shared_peer()


def reads(table: JavaTable) -> dict[str, list[str]]:
    """Everything that can be read of a table, by Java."""
    found = {f"snapshot {number}": table("read", snapshot=number) for number in table.snapshots()}
    found |= {f"tag {name}": table("read", tag=name) for name in table.tags()}
    return found | {f"branch {name}": table("read", on_branch=name) for name in table.branches()}


def still_reads(table: JavaTable, before: dict[str, list[str]]) -> None:
    after = reads(table)
    assert after
    assert {what: rows for what, rows in before.items() if what in after} == after


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("keep", [3, 1])
async def test_our_expiry_leaves_the_same_files_as_javas(name: str, keep: int, peer: Any, tmp_path: Path) -> None:
    table = ZOO[name](peer, tmp_path / "warehouse")
    before = reads(table)
    java, ours = paimon.copy_of(table.path, tmp_path / "java"), paimon.copy_of(table.path, tmp_path / "ours")
    external = tmp_path / "warehouse" / "external"
    saved = shutil.copytree(external, tmp_path / "saved") if external.exists() else None
    extra = DECOUPLED if name.startswith("decoupled") else {}
    expired = peer("expire", path=str(java), retain_min=keep, retain_millis=0, **extra)
    outside = paimon.files_of(external)
    if saved:
        shutil.rmtree(external)
        shutil.copytree(saved, external)
    run = await paimon.clean(ours, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old(keep))
    assert run.outcome is Outcome.DONE, run.reason
    assert len(run.expired_snapshots) == expired > 0
    left, javas = paimon.files_of(ours), paimon.files_of(java)
    # Without a producer we keep what compactions wrote and deleted as well, as long as a changelog names it.
    assert left >= javas if name == "decoupled none" else left == javas
    assert all("/bucket-0/data-" in file for file in left - javas)
    assert paimon.files_of(external) == outside
    assert (ours / "snapshot" / "EARLIEST").read_text() == (java / "snapshot" / "EARLIEST").read_text()
    still_reads(JavaTable(path=ours, peer=peer), before)


@pytest.mark.parametrize("name", ["append parquet", "primary key", "deletion vectors", "dynamic bucket", "tags"])
async def test_java_goes_on_committing_after_our_expiry(name: str, peer: Any, tmp_path: Path) -> None:
    table = ZOO[name](peer, tmp_path / "warehouse")
    on = paimon.bench(tmp_path, tmp_path / "scratch")
    await paimon.clean(table.path, on, paimon.everything_old())
    rows = table("read")
    bucket = {"bucket": 0} if name == "dynamic bucket" else {}
    latest = table.write([77, "2024-03-01", "later"], **bucket)
    assert table("read") == sorted([*rows, "77|2024-03-01|later"])
    again = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert again.outcome is Outcome.DONE
    assert table.snapshots() == [latest]
    assert table("read") == sorted([*rows, "77|2024-03-01|later"])


async def test_a_second_expiry_finds_nothing(peer: Any, tmp_path: Path) -> None:
    table = with_tags(peer, tmp_path)
    on = paimon.bench(tmp_path, tmp_path / "scratch")
    assert (await paimon.clean(table.path, on, paimon.everything_old())).expired_snapshots
    left = paimon.files_of(table.path)
    again = await paimon.clean(table.path, on, paimon.everything_old())
    assert (again.outcome, again.expired_snapshots, again.deletion.deleted.files) == (Outcome.DONE, (), 0)
    assert paimon.files_of(table.path) == left


async def test_a_branch_whose_tag_is_gone_survives_our_expiry_and_not_javas(peer: Any, tmp_path: Path) -> None:
    table = primary_key(peer, tmp_path / "warehouse")
    table("tag", name="base", snapshot=2)
    table("branch", name="dev", tag="base")
    rows = table("read", on_branch="dev")
    (table.path / "tag" / "tag-base").unlink()
    (table.path / "branch" / "branch-dev" / "tag" / "tag-base").unlink()
    java = JavaTable(path=paimon.copy_of(table.path, tmp_path / "java"), peer=peer)
    java("expire", retain_min=1, retain_millis=0)
    with pytest.raises(RuntimeError):
        java("read", on_branch="dev")
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert len(run.expired_snapshots) == 9
    assert table("read", on_branch="dev") == rows


async def test_a_fast_forwarded_branch_survives_our_expiry_and_not_javas(peer: Any, tmp_path: Path) -> None:
    """After a fast-forward branch and main table share their snapshots; Java's expiry knows only the main table."""
    table = fast_forwarded(peer, tmp_path / "warehouse")
    before = reads(table)
    java = JavaTable(path=paimon.copy_of(table.path, tmp_path / "java"), peer=peer)
    java("expire", retain_min=1, retain_millis=0)
    with pytest.raises(RuntimeError):
        java("read", on_branch="dev")
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert len(run.expired_snapshots) == 6
    still_reads(table, before)
    assert paimon.files_of(table.path) > paimon.files_of(java.path)


@pytest.mark.parametrize("producer", ["input", "none"])
async def test_lasting_changelogs_expire_like_javas(producer: str, peer: Any, tmp_path: Path) -> None:
    table = decoupled(peer, tmp_path / "warehouse", producer)
    table("expire", retain_min=1, retain_millis=0, **DECOUPLED)
    limits = {"changelog.num-retained.min": "5", "changelog.num-retained.max": "5"}
    table("alter", options={**limits, "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    java, ours = paimon.copy_of(table.path, tmp_path / "java"), paimon.copy_of(table.path, tmp_path / "ours")
    gone = peer(
        "expire_changelogs",
        path=str(java),
        retain_min=1,
        retain_max=2,
        retain_millis=0,
        changelog_retain_min=5,
        changelog_retain_max=5,
        changelog_retain_millis=0,
    )
    run = await paimon.clean(ours, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert run.outcome is Outcome.DONE, run.reason
    assert len(run.expired_snapshots) == gone > 0
    assert all(name.startswith("changelog-") for name in run.expired_snapshots)
    left, javas = paimon.files_of(ours), paimon.files_of(java)
    assert javas <= left
    # Without a producer we keep what compactions wrote and deleted as well, as long as a changelog names it.
    assert producer == "none" or left == javas
    assert all("/bucket-0/data-" in name for name in left - javas)
    assert JavaTable(path=ours, peer=peer)("read") == table("read")


async def test_snapshots_expire_by_when_they_were_replaced(peer: Any, tmp_path: Path) -> None:
    """The documented difference: Java 1.4 goes by a snapshot's own age, and takes one that was current a moment ago."""
    table = append(peer, tmp_path, **{"snapshot.time-retained": "1 h", "snapshot.num-retained.min": "1"})
    for number in range(1, 6):
        file = table.path / "snapshot" / f"snapshot-{number}"
        file.write_text(_long_ago(file.read_text()))
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert run.expired_snapshots == ("1", "2", "3", "4")


def _long_ago(text: str) -> str:
    document = json.loads(text)
    return json.dumps(document | {"timeMillis": document["timeMillis"] - 7_200_000})


async def test_empty_partition_directories_go_when_the_table_wants_it(peer: Any, tmp_path: Path) -> None:
    options = {"bucket": "-1", "snapshot.clean-empty-directories": "true"}
    table = create(peer, tmp_path / "warehouse", "dirs", partition_keys=["dt"], options=options)
    table.write([1, "2024-01-01", "a"])
    table.write([2, "2024-01-02", "b"])
    table("drop_partitions", partitions=[{"dt": "2024-01-01"}])
    java = paimon.copy_of(table.path, tmp_path / "java")
    peer("expire", path=str(java), retain_min=1, retain_millis=0)
    await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    left = {path.name for path in table.path.iterdir() if path.name.startswith("dt=")}
    assert left == {path.name for path in java.iterdir() if path.name.startswith("dt=")} == {"dt=2024-01-02"}
