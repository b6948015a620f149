"""A table whose features are not understood is refused by the feature's name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakesweep.formats.delta import protocol
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.model.errors import Refused


def _protocol(*features: str, reader: int = 3, writer: int = 7) -> Protocol:
    return Protocol.from_action(
        {"minReaderVersion": reader, "minWriterVersion": writer, "readerFeatures": [], "writerFeatures": list(features)}
    )


def _metadata(**properties: str) -> Metadata:
    configuration = {f"delta.{name}": value for name, value in properties.items()}
    return Metadata.from_action({"id": "t", "partitionColumns": [], "configuration": configuration})


@pytest.mark.parametrize(
    "feature",
    [
        "catalogManaged",
        "coordinatedCommits-preview",
        "adaptiveMetadata",
        "adaptiveMetadata-preview",
        "redirectReaderWriter-preview",
        "redirectWriterOnly-preview",
        "somethingNobodyHeardOf",
    ],
)
def test_a_feature_that_is_not_understood_is_refused_by_its_name(feature):
    with pytest.raises(Refused) as refusal:
        protocol.check(_protocol("appendOnly", feature))
    assert refusal.value.code == "unsupported_feature"
    assert feature in refusal.value.reason


def test_a_reader_feature_counts_as_much_as_a_writer_feature():
    with pytest.raises(Refused, match="catalogManaged"):
        protocol.check(
            Protocol.from_action(
                {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["catalogManaged"],
                    "writerFeatures": [],
                }
            )
        )


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (3, 8)])
def test_a_newer_protocol_is_refused(reader, writer):
    with pytest.raises(Refused) as refusal:
        protocol.check(_protocol(reader=reader, writer=writer))
    assert refusal.value.code == "unsupported_protocol"


@pytest.mark.parametrize("writer", range(1, 7))
def test_old_protocols_without_features_are_understood(writer):
    protocol.check(_protocol(reader=2, writer=writer))


def test_every_feature_we_have_code_for_is_understood():
    protocol.check(
        _protocol(
            "deletionVectors",
            "v2Checkpoint",
            "changeDataFeed",
            "inCommitTimestamp",
            "icebergCompatV2",
            "checkpointProtection",
            "columnMapping",
            "rowTracking",
            "domainMetadata",
            "clustering",
            "variantType",
            "typeWidening",
            "timestampNtz",
            "vacuumProtocolCheck",
        )
    )


def test_deltas_own_defaults_hold_where_a_property_is_not_set():
    found = protocol.properties(_metadata())
    assert found.log_retention == timedelta(days=30)
    assert found.deleted_file_retention == timedelta(weeks=1)
    assert found.log_cleanup_enabled
    assert not found.iceberg_metadata


@pytest.mark.parametrize("name", ["logRetentionDuration", "deletedFileRetentionDuration"])
@pytest.mark.parametrize("text", ["sixty days", "", "interval 1 month", "interval -1 day"])
def test_an_interval_that_cannot_be_understood_stops_the_table_and_is_named(name, text):
    with pytest.raises(Refused) as refusal:
        protocol.properties(_metadata(**{name: text}))
    assert f"delta.{name}" in refusal.value.reason
    assert repr(text) in refusal.value.reason


def test_a_switch_that_is_neither_true_nor_false_stops_the_table():
    with pytest.raises(Refused, match="enableExpiredLogCleanup"):
        protocol.properties(_metadata(enableExpiredLogCleanup="maybe"))


def test_uniform_is_recognised_among_other_formats():
    formats = {"delta.universalFormat.enabledFormats": "hudi, ICEBERG"}
    metadata = Metadata.from_action({"id": "t", "partitionColumns": [], "configuration": formats})
    assert protocol.properties(metadata).iceberg_metadata


def test_a_property_that_is_no_text_counts_all_the_same():
    """Some logs have a bare truth value or number where a text belongs."""
    switched = Metadata.from_action({"id": "t", "configuration": {"delta.enableExpiredLogCleanup": False}})
    assert not protocol.properties(switched).log_cleanup_enabled
    number = Metadata.from_action({"id": "t", "configuration": {"delta.logRetentionDuration": 30}})
    with pytest.raises(Refused, match="logRetentionDuration"):
        protocol.properties(number)
