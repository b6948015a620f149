"""Laws of streams over any history: whoever looks for its newest commit finds the same one after an expiry as before.

Each law plays the sink itself: it walks as Flink, Kafka Connect, Spark and Paimon walk.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.iceberg_retention import HOUR, NOW, NOW_MS, tables
from tests.laws import examples

from lakesweep.formats.iceberg import retention
from lakesweep.formats.iceberg.metadata import Ref, RefKind, TableMetadata
from lakesweep.formats.paimon import retention as paimon_retention
from lakesweep.formats.paimon.options import read_options
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, parse_snapshot
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy

laws = settings(max_examples=examples(60, soak=20_000), deadline=None, suppress_health_check=list(HealthCheck))

SINKS = (
    {"flink.job-id": "a", "flink.operator-id": "x", "flink.max-committed-checkpoint-id": "1"},
    {"flink.job-id": "a", "flink.operator-id": "y", "flink.max-committed-checkpoint-id": "1"},
    {"flink.job-id": "b", "flink.operator-id": "x", "flink.max-committed-checkpoint-id": "1"},
    {"kafka.connect.offsets.control.g": "{}"},
    {"kafka.connect.offsets.control.h": "{}"},
    {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "1"},
)
SUMMARIES = st.one_of(st.just({}), st.sampled_from(SINKS), st.just(SINKS[0] | SINKS[3]))
POLICIES = st.builds(
    lambda age, keep, state: CleanupPolicy(
        max_snapshot_age=timedelta(hours=age),
        min_snapshots_to_keep=keep,
        stream_state=timedelta(hours=state),
        grace_period=timedelta(0),
        allow_short_grace=True,
    ),
    st.integers(0, 6),
    st.integers(1, 3),
    st.integers(0, 12),
)


@st.composite
def streamed(draw: st.DrawFn) -> TableMetadata:
    made = draw(tables())
    return replace(made, snapshots=tuple(replace(one, summary=draw(SUMMARIES)) for one in made.snapshots))


def newest_commit(found: TableMetadata, branch: Ref, sink: dict[str, str]) -> int | None:
    """From the head back through the parents: the first snapshot with the sink's own id."""
    mine = {key: value for key, value in sink.items() if not key.endswith(("checkpoint-id", "epochId"))}
    at, seen = found.snapshot(branch.snapshot_id), set()
    while at is not None and at.id not in seen:
        if mine.items() <= at.summary.items():
            return at.id
        seen.add(at.id)
        at = found.snapshot(at.parent)
    return None


@laws
@given(streamed(), POLICIES)
def test_every_sink_finds_its_newest_commit_on_every_branch_after_an_expiry(found: TableMetadata, policy):
    plan = retention.plan(found, policy, NOW)
    going = {int(one.id) for one in plan.expire}
    after = replace(found, snapshots=tuple(one for one in found.snapshots if one.id not in going))
    since_ms = NOW_MS - policy.stream_state // timedelta(hours=1) * HOUR
    for branch in found.refs:
        for sink in SINKS if branch.kind is RefKind.BRANCH and branch.name not in plan.drop_refs else ():
            newest = found.snapshot(newest_commit(found, branch, sink))
            if newest is not None and newest.timestamp_ms >= since_ms:
                assert newest_commit(after, branch, sink) == newest.id


@laws
@given(streamed(), POLICIES)
def test_the_newest_commit_of_each_sink_stays_wherever_it_is(found: TableMetadata, policy):
    going = {int(one.id) for one in retention.plan(found, policy, NOW).expire}
    since_ms = NOW_MS - policy.stream_state // timedelta(hours=1) * HOUR
    for sink in SINKS:
        mine = {key: value for key, value in sink.items() if not key.endswith(("checkpoint-id", "epochId"))}
        commits = [one for one in found.snapshots if mine.items() <= one.summary.items()]
        latest = max((one.timestamp_ms for one in commits), default=-1)
        if latest >= since_ms:
            assert {one.id for one in commits if one.timestamp_ms == latest} - going


PAIMON_NOW = datetime(2026, 1, 10, tzinfo=UTC)


def commit(number: int, age: timedelta, user: str | None) -> PaimonSnapshot:
    document = {
        "version": 3,
        "id": number,
        "schemaId": 0,
        "baseManifestList": "b",
        "deltaManifestList": "d",
        "commitUser": user or "batch",
        "commitIdentifier": number if user else 2**63 - 1,
        "commitKind": "APPEND",
        "timeMillis": int((PAIMON_NOW - age).timestamp() * 1000),
    }
    return parse_snapshot(json.dumps(document).encode(), Location.parse(f"/t/snapshot/snapshot-{number}"))


@laws
@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([None, "one", "two"])), min_size=1, max_size=8),
    POLICIES,
    st.sampled_from(["1", "2", "2147483647"]),
)
def test_every_commit_user_finds_its_newest_snapshot_after_an_expiry(commits, policy, most):
    snapshots = tuple(commit(1 + at, timedelta(hours=age), user) for at, (age, user) in enumerate(commits))
    log = Log(
        head="h",
        schemas=(),
        other_schemas=(),
        snapshots=snapshots,
        tags=(),
        changelogs=(),
        branched=(),
        consumers={},
        table_id="t",
    )
    options = read_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": most})
    state = PaimonState(log=log, options=options, partitions=(), partitions_checked_at=PAIMON_NOW, released=frozenset())
    gone = {int(one.id) for one in paimon_retention.plan_expiry(state, "h", policy, PAIMON_NOW).expire}
    for user in ("one", "two"):
        newest = next((one for one in reversed(snapshots) if one.document["commitUser"] == user), None)
        if newest is not None and PAIMON_NOW - newest.committed_at <= policy.stream_state:
            assert not {one.id for one in snapshots if one.id >= newest.id} & gone
