"""A zoo of Paimon tables, each built by Paimon's own Java code: every kind of table a cleaner must not hurt."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Peer = Callable[..., Any]
FIELDS = [["k", "INT"], ["dt", "STRING"], ["v", "STRING"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaTable:
    """One table that Java made, and the hand that can go on with it."""

    path: Path
    peer: Peer

    def __call__(self, verb: str, **arguments: Any) -> Any:
        return self.peer(verb, path=str(self.path), **arguments)

    def write(self, *rows: list[Any], **arguments: Any) -> int:
        return self("write", rows=list(rows), **arguments)

    def snapshots(self) -> list[int]:
        return sorted(
            int(file.name.removeprefix("snapshot-"))
            for file in (self.path / "snapshot").iterdir()
            if file.name.removeprefix("snapshot-").isdecimal()
        )

    def tags(self) -> list[str]:
        return sorted(file.name.removeprefix("tag-") for file in self.path.glob("tag/tag-*"))

    def branches(self) -> list[str]:
        return sorted(file.name.removeprefix("branch-") for file in self.path.glob("branch/branch-*"))

    def consumer(self, name: str, following: int) -> None:
        """A consumer that will read this snapshot next."""
        (self.path / "consumer").mkdir(exist_ok=True)
        (self.path / "consumer" / f"consumer-{name}").write_text(json.dumps({"nextSnapshot": following}))


def create(peer: Peer, warehouse: Path, name: str, **arguments: Any) -> JavaTable:
    """An empty table `<warehouse>/d.db/<name>`."""
    settings = {"fields": FIELDS, "partition_keys": [], "primary_keys": [], "options": {}} | arguments
    location = peer("create", warehouse=str(warehouse), database="d", table=name, **settings)
    return JavaTable(path=Path(location.removeprefix("file:")), peer=peer)


def append(peer: Peer, warehouse: Path, **options: str) -> JavaTable:
    """Appends, a partition overwritten, and more appends."""
    options = {"bucket": "-1"} | options
    table = create(peer, warehouse, "append", partition_keys=["dt"], options=options)
    for number in range(3):
        table.write([number, "2024-01-01", "a"], [number, "2024-01-02", "b"])
    table.write([100, "2024-01-01", "new"], overwrite={"dt": "2024-01-01"})
    for number in range(3, 6):
        table.write([number, "2024-01-03", "c"])
    return table


def primary_key(peer: Peer, warehouse: Path, **options: str) -> JavaTable:
    """Updates with compactions: files move up in level under the same name, and are merged away."""
    table = create(
        peer,
        warehouse,
        "pk",
        partition_keys=["dt"],
        primary_keys=["k", "dt"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3"} | options,
    )
    for number in range(7):
        table.write([1, "2024-01-01", f"v{number}"], [number, "2024-01-02", "w"], compact=number in (2, 5))
    return table


def unpartitioned(peer: Peer, warehouse: Path, **options: str) -> JavaTable:
    table = create(
        peer,
        warehouse,
        "plain",
        fields=[["k", "INT"], ["v", "STRING"]],
        primary_keys=["k"],
        options={"bucket": "2"} | options,
    )
    for number in range(6):
        table.write([number, "x"], [number + 1, "y"], compact=number == 3)
    return table


def dynamic_bucket(peer: Peer, warehouse: Path) -> JavaTable:
    """Hash index files beside the data."""
    table = create(
        peer, warehouse, "dynamic", primary_keys=["k", "dt"], partition_keys=["dt"], options={"bucket": "-1"}
    )
    for number in range(5):
        table.write([number, "2024-01-01", "a"], bucket=number % 2)
    return table


def with_tags(peer: Peer, warehouse: Path) -> JavaTable:
    table = primary_key(peer, warehouse)
    table("tag", name="early", snapshot=2)
    table("tag", name="late", snapshot=5)
    return table


def with_branch(peer: Peer, warehouse: Path) -> JavaTable:
    """A branch from a tag, with a commit of its own."""
    table = append(peer, warehouse)
    table("tag", name="base", snapshot=3)
    table("branch", name="dev", tag="base")
    table.write([7, "2024-02-01", "branch"], on_branch="dev")
    return table


def with_consumer(peer: Peer, warehouse: Path) -> JavaTable:
    table = append(peer, warehouse)
    table.consumer("reader", 4)
    return table


def rolled_back(peer: Peer, warehouse: Path) -> JavaTable:
    """Snapshot ids that are used a second time."""
    table = append(peer, warehouse)
    table("rollback", snapshot=4)
    table.write([50, "2024-01-05", "again"])
    table.write([51, "2024-01-05", "again"])
    return table


def with_statistics(peer: Peer, warehouse: Path) -> JavaTable:
    table = append(peer, warehouse)
    table("analyze", rows=8)
    table.write([60, "2024-01-06", "more"])
    return table


def special_partitions(peer: Peer, warehouse: Path) -> JavaTable:
    """NULL, empty and blank values share a directory; others need escapes."""
    table = create(peer, warehouse, "special", partition_keys=["dt"], options={"bucket": "-1"})
    values = [None, "", " ", "a/b:c d", "100%", "käse=ü", "__DEFAULT_PARTITION__", "longer than seven bytes"]
    for number, value in enumerate(values):
        table.write([number, value, "v"])
    table.write([90, "100%", "new"], overwrite={"dt": "100%"})
    return table


def typed_partitions(peer: Peer, warehouse: Path) -> JavaTable:
    fields = [
        ["k", "INT"],
        ["i", "INT"],
        ["d", "DATE"],
        ["t", "TIMESTAMP(6)"],
        ["n", "DECIMAL(20, 2)"],
        ["b", "BOOLEAN"],
    ]
    table = create(
        peer, warehouse, "typed", fields=fields, partition_keys=["i", "d", "t", "n", "b"], options={"bucket": "-1"}
    )
    table.write([1, -5, "2020-01-01", "2020-01-01T10:00:00.123456", "1.23", True])
    table.write([2, 7, "2021-06-01", "2021-06-01T00:00:00", "-12345678901234567.89", False])
    table.write([3, None, None, None, None, None])
    table.write([4, 7, "2021-06-01", "2021-06-01T00:00:00", "-12345678901234567.89", False])
    return table


def external_path(peer: Peer, warehouse: Path) -> JavaTable:
    """Data files outside of the table's directory."""
    return append(
        peer,
        warehouse,
        **{
            "data-file.external-paths": f"file://{warehouse}/external",
            "data-file.external-paths.strategy": "round-robin",
            "bucket": "-1",
        },
    )


def decoupled(peer: Peer, warehouse: Path, producer: str) -> JavaTable:
    """Changelogs that outlive their snapshots."""
    return primary_key(
        peer,
        warehouse,
        **{"changelog-producer": producer, "changelog.num-retained.min": "50", "changelog.num-retained.max": "100"},
    )


def fast_forwarded(peer: Peer, warehouse: Path) -> JavaTable:
    """A branch that became the main table: its snapshots stand where others of the same ids stood."""
    table = append(peer, warehouse)
    table("tag", name="base", snapshot=3)
    table("branch", name="dev", tag="base")
    for number in range(3):
        table.write([70 + number, "2024-02-01", "branch"], on_branch="dev")
    table("fast_forward", name="dev")
    # Java leaves a hint behind that hides the oldest snapshots from its own expiry; without it Java lists them.
    (table.path / "snapshot" / "EARLIEST").unlink(missing_ok=True)
    table.write([80, "2024-02-02", "main again"])
    return table


def with_deleted_tag(peer: Peer, warehouse: Path) -> JavaTable:
    """Java deletes what only the tag still held."""
    table = with_tags(peer, warehouse)
    table("expire", retain_min=4, retain_millis=0)
    table("delete_tag", name="early")
    return table


def postponed(peer: Peer, warehouse: Path) -> JavaTable:
    """Files that have no bucket yet."""
    table = create(
        peer, warehouse, "postponed", primary_keys=["k", "dt"], partition_keys=["dt"], options={"bucket": "-2"}
    )
    for number in range(4):
        table.write([number, "2024-01-01", "a"], bucket=-2)
    return table


ZOO: dict[str, Callable[[Peer, Path], JavaTable]] = {
    "append parquet": lambda peer, at: append(peer, at, **{"file.format": "parquet"}),
    "append orc": lambda peer, at: append(peer, at, **{"file.format": "orc"}),
    "append avro": lambda peer, at: append(peer, at, **{"file.format": "avro"}),
    "append with merged manifests": lambda peer, at: append(peer, at, **{"manifest.merge-min-count": "2"}),
    "primary key": primary_key,
    "primary key with merged manifests": lambda peer, at: primary_key(peer, at, **{"manifest.merge-min-count": "2"}),
    "primary key fully merged": lambda peer, at: primary_key(
        peer, at, **{"manifest.full-compaction-threshold-size": "1 b"}
    ),
    "unpartitioned": unpartitioned,
    "changelog input": lambda peer, at: primary_key(peer, at, **{"changelog-producer": "input"}),
    "changelog lookup": lambda peer, at: primary_key(peer, at, **{"changelog-producer": "lookup"}),
    "changelog full compaction": lambda peer, at: primary_key(peer, at, **{"changelog-producer": "full-compaction"}),
    "deletion vectors": lambda peer, at: primary_key(peer, at, **{"deletion-vectors.enabled": "true"}),
    "dynamic bucket": dynamic_bucket,
    "extra files": lambda peer, at: primary_key(
        peer, at, **{"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    ),
    "embedded index": lambda peer, at: primary_key(peer, at, **{"file-index.bloom-filter.columns": "v"}),
    "data directory": lambda peer, at: append(peer, at, **{"data-file.path-directory": "data"}),
    "own prefix": lambda peer, at: primary_key(
        peer, at, **{"data-file.prefix": "mine-", "changelog-file.prefix": "log-", "changelog-producer": "input"}
    ),
    "row tracking": lambda peer, at: append(peer, at, **{"row-tracking.enabled": "true"}),
    "data evolution": lambda peer, at: append(
        peer, at, **{"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    ),
    "index beside the data": lambda peer, at: primary_key(
        peer, at, **{"deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"}
    ),
    "postponed buckets": postponed,
    "tags": with_tags,
    "deleted tag": with_deleted_tag,
    "branch": with_branch,
    "consumer": with_consumer,
    "rollback": rolled_back,
    "statistics": with_statistics,
    "special partitions": special_partitions,
    "typed partitions": typed_partitions,
    "external path": external_path,
    "decoupled input": lambda peer, at: decoupled(peer, at, "input"),
    "decoupled none": lambda peer, at: decoupled(peer, at, "none"),
}


def unanswered(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Questions that Java answered before and not, or otherwise, afterwards. See the peer's `everything`."""
    answered = {question: rows for question, rows in before.items() if isinstance(rows, list)}
    return {question: after.get(question) for question, rows in answered.items() if after.get(question) != rows}
