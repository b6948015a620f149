"""The subjects of stories from `profiles.LATER` on, by format. Each has a place that no other subject ever gets.

`extras` names what a model adds to the world of such a story: see `formats/delta_more.py` and `formats/paimon_more.py`.
"""

from __future__ import annotations

from tests.sim.profiles import Profile

_WHILE_DELETING = (
    *("save_plan", "begin_batch", "begin_batch", "finish_batch", "update_run", "delete", "delete", "delete"),
    *("sweeping: read", "sweeping: list", "sweeping: stat"),
)
_AT_ANY_REQUEST = (*_WHILE_DELETING, "stat_together", "stat_together", "sweeping: stat_together")
_WHILE_PLANNING = ("start_run", "list", "list", "read", "read", "save_plan", "begin_batch")


def _delta(*prefers: str, **leans: object) -> Profile:
    return Profile(prefers={"delta": prefers}, **leans)  # type: ignore[arg-type]


def _paimon(*prefers: str, **leans: object) -> Profile:
    return Profile(prefers={"paimon": prefers}, **leans)  # type: ignore[arg-type]


_DELTA: dict[str, tuple[int, Profile]] = {
    "queries that run for long": (
        0,
        _delta(
            *("begin_scan", "remove", "overwrite", "checkpoint", "other_log_cleanup"),
            extras=frozenset({"scans", "short logs"}),
            many_cycles=True,
        ),
    ),
    "dead files of the log come back": (
        1,
        _delta(
            *("restore_far", "commit_late_job", "replace_commit", "begin_job", "remove", "overwrite"),
            extras=frozenset({"returns", "long logs"}),
            small_batches=True,
            between=_AT_ANY_REQUEST,
            last_moment=True,
        ),
    ),
    "damaged checkpoints": (
        2,
        _delta(
            *("break_checkpoint", "half_checkpoint", "remove_checkpoint", "append", "checkpoint", "overwrite"),
            extras=frozenset({"checkpoints", "short logs"}),
            between=_WHILE_DELETING,
        ),
    ),
    "logs from a backup": (
        3,
        _delta(
            *("set_back", "set_back_whole", "lose_commit", "append", "overwrite", "checkpoint", "stray"),
            extras=frozenset({"backups", "long logs"}),
            many_cycles=True,
        ),
    ),
    "Iceberg beside the log": (
        4,
        _delta(
            *("iceberg_commit", "iceberg_takes_back", "iceberg_expires", "remove", "overwrite", "optimize"),
            extras=frozenset({"iceberg"}),
            small_batches=True,
            between=_WHILE_DELETING,
        ),
    ),
    "commits that are not listed": (
        5,
        _delta(
            *("hide_commit", "restore", "remove", "commit_job", "begin_job", "mend"),
            extras=frozenset({"unlisted"}),
        ),
    ),
    "vacuums by the log alone": (
        6,
        _delta("restore", "remove", "overwrite", "checkpoint", extras=frozenset({"lite", "long logs"})),
    ),
    "clones that nobody here knows": (
        7,
        _delta("clone", "write_to_clone", "remove", "overwrite", "optimize", extras=frozenset({"far clones"})),
    ),
    "commits that look old": (
        8,
        _delta("append", "remove", "checkpoint", extras=frozenset({"odd clocks", "short logs"})),
    ),
    "commits that are announced": (
        9,
        _delta("announce", "stray", "foreign", "other_vacuum"),
    ),
    "short retentions": (
        10,
        _delta(
            "remove",
            "remove",
            "checkpoint",
            "checkpoint",
            extras=frozenset({"short retentions"}),
            between=_WHILE_PLANNING,
        ),
    ),
}
_PAIMON: dict[str, tuple[int, Profile]] = {
    "partitions that expire": (
        0,
        _paimon(
            *("write_to_old_partition", "append", "rollback", "merge", "hash_index", "analyze"),
            extras=frozenset({"partitions"}),
            between=("save_plan", "set_pending_expiry", "put", "put", "list", "read"),
            faults=("put",),
        ),
    ),
    "snapshots that were to go come back": (
        1,
        _paimon(
            *("roll_back_and_commit", "commit_late_job", "consume_again", "consume_closed", "begin_job", "tag"),
            *("overwrite", "compact"),
            extras=frozenset({"returns"}),
            small_batches=True,
            between=_AT_ANY_REQUEST,
            last_moment=True,
        ),
    ),
    "lists and snapshots that are lost": (
        2,
        _paimon(
            "lose_list", "lose_snapshots", "stray", "append", "overwrite", extras=frozenset({"lists"}), many_cycles=True
        ),
    ),
    "snapshots that are not listed": (
        3,
        _paimon("hide_snapshot", "stray", "append", "as_latest", extras=frozenset({"unlisted"}), many_cycles=True),
    ),
    "a later release writes": (
        4,
        _paimon(
            *("commit_by_a_later_release", "commit_with_sketches", "stray"),
            extras=frozenset({"later release", "partitions"}),
        ),
    ),
    "commits of our own that are overtaken": (
        6,
        _paimon(
            *("rollback", "append", "write_to_old_partition"),
            extras=frozenset({"partitions", "rollbacks"}),
            between=("put", "put", "put", "set_pending_expiry"),
            many_cycles=True,
        ),
    ),
    "commits at the last moment": (
        8,
        _paimon(
            *("commit_late_job", "begin_job"),
            extras=frozenset({"returns", "late jobs"}),
            small_batches=True,
            between=("asking last: read", "asking last: list", "asking last: list", "asking last: stat"),
            last_moment=True,
            last_words=True,
            many_cycles=True,
        ),
    ),
    "rollbacks to what is being deleted": (
        7,
        _paimon(
            *("cross_rollback", "append", "overwrite"),
            extras=frozenset({"crossing"}),
            small_batches=True,
            between=("asking last: stat_together",),
            last_moment=True,
            many_cycles=True,
        ),
    ),
    "a table in a partition": (
        5,
        _paimon("move_into_a_partition", "append", "stray", extras=frozenset({"inner table"})),
    ),
}
SUBJECTS: dict[str, dict[str, tuple[int, Profile]]] = {"delta": _DELTA, "paimon": _PAIMON}
