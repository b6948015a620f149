"""What the streams of a table need to recover stays: the newest snapshot of each, and the way to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.builders.iceberg_retention import HOUR, NOW, branch, gone, table, tag, why

from lakesweep.formats.iceberg import retention
from lakesweep.formats.iceberg.metadata import Ref, TableMetadata
from lakesweep.formats.iceberg.retention import stream_writer
from lakesweep.model.policy import CleanupPolicy

POLICY = CleanupPolicy(max_snapshot_age=timedelta(hours=24), grace_period=timedelta(0), allow_short_grace=True)
"""What was current a moment ago is left to its own tests."""


def flink(job: str = "j", operator: str | None = "o", checkpoint: int = 1) -> dict[str, str]:
    own = {"flink.operator-id": operator} if operator else {}
    return {"flink.job-id": job, "flink.max-committed-checkpoint-id": str(checkpoint), **own}


KAFKA = {"kafka.connect.offsets.control.g": "{}", "kafka.connect.commit-id": "c"}
SPARK = {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "7"}


def streamed(
    snapshots: dict[int, tuple[int | None, int, dict[str, str]]], refs: list[Ref], **history: int
) -> TableMetadata:
    """Snapshots as id -> (parent, age in hours, summary)."""
    made = table({one: (parent, age) for one, (parent, age, _) in snapshots.items()}, refs, **history)
    entries = tuple(replace(entry, summary=snapshots[entry.id][2]) for entry in made.snapshots)
    return replace(made, snapshots=entries)


def test_the_newest_commit_of_a_job_outlives_the_snapshots_age():
    line = {1: (None, 100, flink()), 2: (1, 60, flink(checkpoint=2)), 3: (2, 1, {})}
    plan = retention.plan(streamed(line, [branch("main", 3)]), POLICY, NOW)
    assert gone(plan) == {1}
    assert why(plan, 2) == (
        "newest commit of Flink job j, operator o on branch main, less than 168 h ago (stream_state_hours)"
    )


def test_what_a_stream_walks_through_to_its_newest_commit_stays():
    line = {1: (None, 100, flink()), 2: (1, 90, {}), 3: (2, 80, {}), 4: (3, 1, {})}
    plan = retention.plan(streamed(line, [branch("main", 4)]), POLICY, NOW)
    assert gone(plan) == set()
    assert why(plan, 2).startswith("Flink job j, operator o looks back through it")
    assert why(plan, 4) == "head of branch main"


def test_a_stream_that_stopped_longer_ago_holds_nothing():
    line = {1: (None, 169, flink()), 2: (1, 30, {}), 3: (2, 1, {})}
    assert gone(retention.plan(streamed(line, [branch("main", 3)]), POLICY, NOW)) == {1, 2}
    exactly = {1: (None, 168, flink()), 2: (1, 30, {}), 3: (2, 1, {})}
    assert gone(retention.plan(streamed(exactly, [branch("main", 3)]), POLICY, NOW)) == set()


def test_the_setting_says_how_long():
    line = {1: (None, 40, flink()), 2: (1, 30, {}), 3: (2, 1, {})}
    longer = replace(POLICY, stream_state=timedelta(hours=40))
    shorter = replace(POLICY, stream_state=timedelta(hours=39))
    assert gone(retention.plan(streamed(line, [branch("main", 3)]), longer, NOW)) == set()
    assert gone(retention.plan(streamed(line, [branch("main", 3)]), shorter, NOW)) == {1, 2}


def test_each_job_operator_sink_and_query_has_its_own_newest_commit():
    line = {
        1: (None, 110, {}),
        2: (1, 100, flink("a", "x")),
        3: (2, 90, flink("a", "y")),
        4: (3, 80, flink("b", "x")),
        5: (4, 70, KAFKA),
        6: (5, 60, SPARK),
        7: (6, 50, flink("c", None)),
        8: (7, 1, {}),
    }
    plan = retention.plan(streamed(line, [branch("main", 8)]), POLICY, NOW)
    assert gone(plan) == {1}
    for one, named in {
        2: "Flink job a, operator x",
        3: "Flink job a, operator y",
        4: "Flink job b, operator x",
        5: "Kafka Connect sink control.g",
        6: "Spark streaming query q",
        7: "Flink job c",
    }.items():
        assert why(plan, one).startswith(f"newest commit of {named} on branch main"), one


def test_each_branch_has_its_own_newest_commit():
    line = {1: (None, 100, flink()), 2: (1, 90, flink()), 3: (1, 80, flink()), 4: (2, 1, {}), 5: (3, 1, {})}
    plan = retention.plan(streamed(line, [branch("main", 4), branch("audit", 5)]), POLICY, NOW)
    assert gone(plan) == {1}
    assert "on branch main" in why(plan, 2)
    assert "on branch audit" in why(plan, 3)


def test_a_rolled_back_commit_of_a_stream_stays_too():
    line = {1: (None, 100, flink()), 2: (1, 90, flink()), 3: (1, 1, {})}
    plan = retention.plan(streamed(line, [branch("main", 3)]), POLICY, NOW)
    assert gone(plan) == set()
    assert "on no branch" in why(plan, 2)


def test_what_lies_behind_a_gap_holds_nothing_if_a_branch_has_newer():
    line = {1: (None, 100, flink()), 3: (2, 60, flink()), 4: (3, 1, {})}
    assert gone(retention.plan(streamed(line, [branch("main", 4)]), POLICY, NOW)) == {1}


def test_a_branch_that_a_stream_writes_to_outlives_its_age():
    line = {1: (None, 100, {}), 2: (1, 90, flink()), 3: (1, 1, {})}
    plan = retention.plan(streamed(line, [branch("main", 3), branch("b", 2)], max_ref_age_ms=HOUR), POLICY, NOW)
    assert plan.drop_refs == ()


def test_a_branch_made_from_a_streams_main_goes_by_its_age():
    line = {1: (None, 100, flink()), 2: (1, 90, {}), 3: (1, 1, flink())}
    refs = [branch("main", 3), branch("b", 2), tag("t", 2)]
    plan = retention.plan(streamed(line, refs, max_ref_age_ms=HOUR), POLICY, NOW)
    assert plan.drop_refs == ("b", "t")
    assert gone(plan) == {1, 2}


def test_a_table_without_streams_expires_as_before():
    line = {1: (None, 100, {"spark.app.id": "x"}), 2: (1, 90, {}), 3: (2, 1, {})}
    assert gone(retention.plan(streamed(line, [branch("main", 3)]), POLICY, NOW)) == {1, 2}


def test_the_stream_that_committed_last_is_named():
    line = {1: (None, 100, flink()), 2: (1, 50, KAFKA), 3: (2, 1, {})}
    assert stream_writer(streamed(line, []).snapshots) == "Kafka Connect sink control.g"
    assert stream_writer(table({1: (None, 1)}, []).snapshots) is None
