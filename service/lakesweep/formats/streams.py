"""Which streams write to a table, as its history shows: the only place that decides it. Pure.

A stream that stopped goes on from its own state (a savepoint, offsets in a topic) and from the newest commit that it
made itself. It cannot do without the table's history, in which it looks for that commit: where it finds none it commits
again what is committed already, or fails. Nor without its files: what was written before it stopped is named by its
state alone, and is committed when it goes on. So both stay for `stream_state_hours`. A stream is identified by a label
such as `Flink job 4f, operator 9a`: equal labels are one stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NO_STREAM = 2**63 - 1
"""The commit identifier of Paimon commits that belong to no stream."""
STREAMING_UPDATE = "STREAMING UPDATE"
"""The operation that Spark's and Flink's sinks give to a commit to a Delta table."""
FLINK_MANIFESTS = "flink.manifests.location"
"""The Iceberg property that says where Flink puts manifests before it commits them."""

_FORGETFUL = "delta.setTransactionRetentionDuration"
_FLINK = "flink."
_KAFKA_CONNECT = "kafka.connect."
_OFFSETS = "kafka.connect.offsets."
_SPARK_QUERY = "spark.sql.streaming.queryId"

_PENDING = re.compile(r"([0-9a-f]{32})-([^/]+)-\d+-\d+-\d+-\d+\.avro$")
"""Job, operator, subtask, attempt, checkpoint and a counter: a manifest that Flink wrote and may not have committed."""


def of_summary(summary: Mapping[str, str]) -> tuple[str, ...]:
    """The streams whose state is in an Iceberg snapshot's summary."""
    sinks = (name.removeprefix(_OFFSETS) for name in sorted(summary) if name.startswith(_OFFSETS))
    found = [f"Kafka Connect sink {sink}" for sink in sinks]
    if not found and any(name.startswith(_KAFKA_CONNECT) for name in summary):
        found.append("a Kafka Connect sink")
    if any(name.startswith(_FLINK) for name in summary):
        found.append(_flink(summary.get("flink.job-id"), summary.get("flink.operator-id")))
    if _SPARK_QUERY in summary:
        found.append(f"Spark streaming query {summary[_SPARK_QUERY]}")
    return tuple(found)


def of_commit(document: Mapping[str, Any]) -> str | None:
    """The stream that made a Paimon commit; None for a batch."""
    if document.get("commitIdentifier", NO_STREAM) == NO_STREAM:
        return None
    return f"the stream of commit user {document.get('commitUser')}"


def of_application(application: object) -> str:
    """The stream whose progress a `txn` action of a Delta log records. A checkpoint has the newest one of each, and the
    log that stays begins with a checkpoint: no cleanup loses one."""
    return f"application {application}"


def of_operation(operation: object) -> str | None:
    """The same by what a Delta commit calls itself."""
    return "a streaming query" if operation == STREAMING_UPDATE else None


def of_properties(configuration: Mapping[str, str]) -> str | None:
    """The same of a Delta table whose checkpoints forget old `txn` actions: only streams have any use for that."""
    named = next((name for name in configuration if name.lower() == _FORGETFUL.lower()), None)
    return f"a stream ({named} is set)" if named else None


def pending_manifest(name: str) -> str | None:
    """The stream that a manifest is named after, if it is one of those that Flink writes before it commits."""
    found = _PENDING.fullmatch(name)
    return _flink(found[1], found[2]) if found else None


def newest_commit(stream: str, place: str, hours: str) -> str:
    return f"newest commit of {stream}{place}, less than {hours} ago (stream_state_hours)"


def on_the_way(stream: str, place: str) -> str:
    """Why a snapshot between the newest one and a stream's stays."""
    return f"{stream} looks back through it for its newest commit{place} (stream_state_hours)"


def _flink(job: str | None, operator: str | None) -> str:
    """An operator that an older Flink has not recorded is every operator of the job."""
    return f"Flink job {job or '?'}" + (f", operator {operator}" if operator else "")
