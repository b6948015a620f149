"""Which stream a history tells of, writer by writer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.cleanup import guards
from lakesweep.formats import streams
from lakesweep.formats.paimon.layout import make_layout
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import TableState

JOB, OPERATOR = "f615bf1e49d7868e3fdaa58b5747dbf2", "90bea66de1c231edf33913ecd54406c1"
HERE = Location.parse("memory://lake/t")
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def state(*, stream: str | None = None, minimum_age: timedelta = timedelta(0)) -> TableState:
    return TableState(
        ref=TableRef(tenant=TenantId("acme"), dataset="d", name="t", format=FormatName.PAIMON),
        head="1",
        table_uuid="u",
        location=HERE,
        roots=(HERE.as_directory(),),
        snapshots=(),
        layout=make_layout(HERE, external_roots=(), data_directory=None, partition_levels=0),
        minimum_age=minimum_age,
        stream=stream,
    )


def test_a_summary_names_the_job_and_the_operator_of_flink():
    summary = {"flink.job-id": JOB, "flink.operator-id": OPERATOR, "flink.max-committed-checkpoint-id": "4"}
    assert streams.of_summary(summary) == (f"Flink job {JOB}, operator {OPERATOR}",)
    del summary["flink.operator-id"]
    assert streams.of_summary(summary) == (f"Flink job {JOB}",)


def test_a_summary_names_each_kafka_connect_sink_whose_offsets_it_has():
    summary = {"kafka.connect.offsets.control.b": "{}", "kafka.connect.offsets.control.a": "{}"}
    assert streams.of_summary(summary) == ("Kafka Connect sink control.a", "Kafka Connect sink control.b")
    assert streams.of_summary({"kafka.connect.commit-id": "1"}) == ("a Kafka Connect sink",)


def test_a_summary_names_the_query_of_spark_structured_streaming():
    summary = {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "7", "spark.app.id": "local-1"}
    assert streams.of_summary(summary) == ("Spark streaming query q",)


def test_a_batch_is_no_stream():
    assert streams.of_summary({"operation": "append", "spark.app.id": "local-1", "engine-name": "flinkish"}) == ()
    assert streams.of_commit({"commitUser": "u", "commitIdentifier": 2**63 - 1}) is None
    assert streams.of_operation("WRITE") is None
    assert streams.of_properties({"delta.appendOnly": "true"}) is None


def test_a_paimon_commit_with_a_number_of_its_own_is_a_streams():
    told = streams.of_commit({"commitUser": "u", "commitIdentifier": 3})
    assert told == "the stream of commit user u"


def test_a_delta_table_that_forgets_transactions_has_a_stream():
    assert "setTransactionRetentionDuration" in (
        streams.of_properties({"delta.setTransactionRetentionDuration": "interval 1 day"}) or ""
    )


@pytest.mark.parametrize(
    ("name", "job"),
    [
        (f"{JOB}-{OPERATOR}-00000-0-5-00005.avro", f"Flink job {JOB}, operator {OPERATOR}"),
        (f"{JOB}-{OPERATOR}-00012-3-123456-100001.avro", f"Flink job {JOB}, operator {OPERATOR}"),
        (f"{JOB}-{OPERATOR}-00000-0-5-00005.avro.crc", None),
        ("9b5515ee-5f92-411a-bd59-75eab17a14c9-m0.avro", None),
        ("snap-7981154133627448193-1-2982278d-60c9-411f-9fb2-4e34474cf566.avro", None),
        ("00000-0-a6c8cd23-07dc-4bb8-9fe6-6c35e3e2ac9f-00002.avro", None),
    ],
)
def test_a_pending_manifest_is_known_by_its_name(name: str, job: str | None):
    assert streams.pending_manifest(name) == job


def test_files_of_a_table_with_a_stream_wait_for_its_state():
    policy = CleanupPolicy()
    assert guards.grace(policy, state()) == timedelta(hours=24)
    assert guards.grace(policy, state(stream="Flink job 1")) == timedelta(hours=168)
    assert "Flink job 1" in (guards.grace_sentence(policy, state(stream="Flink job 1")) or "")
    assert guards.grace_sentence(policy, state()) is None


def test_the_longest_of_all_waits_counts():
    short = CleanupPolicy(stream_state=timedelta(0))
    assert guards.grace(short, state(stream="Flink job 1")) == timedelta(hours=24)
    longer = state(stream="Flink job 1", minimum_age=timedelta(days=30))
    assert guards.grace(CleanupPolicy(), longer) == timedelta(days=30)
    assert guards.grace_sentence(CleanupPolicy(), longer) is None


def test_a_table_that_becomes_a_streams_while_it_is_listed_is_refused():
    assert guards.check_stayed(state(), state()) is None
    assert guards.check_stayed(state(stream="Flink job 1"), state()) is None
    refusal = guards.check_stayed(state(), state(stream="Flink job 1"))
    assert refusal is not None
    assert refusal.code == "table_changed"


def test_a_negative_stream_state_is_no_policy():
    with pytest.raises(ValueError, match="stream_state_hours"):
        CleanupPolicy(stream_state=timedelta(hours=-1))
