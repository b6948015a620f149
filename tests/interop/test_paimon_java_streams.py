"""Streams on tables whose changelogs outlive their snapshots, without a changelog producer, judged by Java.

Two copies of a table, Java cleans one and we the other: whatever Java can still read after its own cleaning, streams
from every changelog and snapshot, time travel, audit log, binlog and increments, it reads the same after ours. And
every stream from what we keep reads as it did before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders import paimon
from tests.builders.paimon_java import JavaTable, Peer, create, unanswered
from tests.peers.paimon import shared_peer

from lakesweep.model.run import Outcome

LASTING = {"changelog.num-retained.min": "50", "changelog.num-retained.max": "100"}
SHORT = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "changelog.num-retained.min": "4",
    "changelog.num-retained.max": "4",
}
"""Set when all is written: else Java's writers expire with every commit."""
BY_JAVA = {
    "retain_min": 1,
    "retain_max": 1,
    "retain_millis": 0,
    "changelog_retain_min": 4,
    "changelog_retain_max": 4,
    "changelog_retain_millis": 0,
}
OLD, NEW = "2024-01-01", "2024-01-02"


@pytest.fixture
def peer() -> Any:
    return shared_peer()


def keyed(peer: Peer, at: Path, **options: str) -> JavaTable:
    settings = {"bucket": "1", "num-sorted-run.compaction-trigger": "9"} | LASTING | options
    return create(peer, at, "keyed", partition_keys=["dt"], primary_keys=["k", "dt"], options=settings)


def written(table: JavaTable, *steps: str) -> JavaTable:
    """One commit per step, rows that tell which."""
    for number, step in enumerate(steps):
        match step:
            case "write":
                table.write([number, OLD, f"v{number}"], [1, NEW, f"w{number}"])
            case "compact":
                table.write([number, OLD, f"c{number}"], compact=True)
            case "overwrite":
                table.write([number, OLD, f"o{number}"], overwrite={"dt": OLD})
            case "overwrite all":
                table.write([number, OLD, f"o{number}"], overwrite={})
            case "drop":
                table("drop_partitions", partitions=[{"dt": OLD}])
            case "merge":
                table("compact_manifests")
            case "tag":
                table("tag", name=f"t{number}", snapshot=table.snapshots()[-1])
            case "consumer":
                table.consumer("slow", 2)
    table("alter", options=SHORT)
    return table


HISTORIES: dict[str, tuple[str, ...]] = {
    "overwritten": ("write", "write", "write", "overwrite", "write", "write"),
    "overwritten at last": ("write", "write", "write", "write", "write", "overwrite"),
    "overwritten twice": ("write", "write", "write", "overwrite", "overwrite", "write", "write"),
    "dropped partition": ("write", "write", "write", "write", "drop", "write", "write"),
    "dropped at last": ("write", "compact", "write", "write", "write", "drop"),
    "upgraded file": ("compact", "write", "write", "overwrite", "write", "compact"),
    "compacted and overwritten": ("write", "compact", "write", "compact", "overwrite all", "write", "write"),
    "merged manifests": ("write", "write", "write", "merge", "overwrite", "write", "merge"),
    "consumer at an old changelog": ("write", "write", "write", "overwrite", "write", "write", "consumer"),
    "tagged": ("write", "tag", "write", "write", "overwrite", "tag", "write", "drop", "write"),
}


@pytest.mark.parametrize("name", HISTORIES)
async def test_what_java_streams_after_its_own_cleaning_it_streams_after_ours(
    name: str, peer: Any, tmp_path: Path
) -> None:
    table = written(keyed(peer, tmp_path / "warehouse"), *HISTORIES[name])
    javas = JavaTable(path=paimon.copy_of(table.path, tmp_path / "java"), peer=peer)
    ours = JavaTable(path=paimon.copy_of(table.path, tmp_path / "ours"), peer=peer)
    javas("expire", **BY_JAVA)
    javas("expire_changelogs", **BY_JAVA)
    for _ in range(2):  # snapshots become changelogs, and the oldest of those go next time
        run = await paimon.clean(ours.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
        assert run.outcome is Outcome.DONE, run.reason
    before, after = table("everything"), ours("everything")
    assert unanswered(javas("everything"), after) == {}
    streams = {question for question in after if question.startswith("stream")}
    assert any(before[question] for question in streams)
    assert unanswered({question: before[question] for question in streams}, after) == {}
