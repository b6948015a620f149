"""metadata.json to values: everything that names a file is found, and nothing malformed is guessed at."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats.iceberg import metadata, unsupported
from lakesweep.model.errors import Refused, Unreadable

ADDRESS = "memory://lake/wh/db/t/metadata/00001.metadata.json"


def document(**changes: Any) -> bytes:
    table = MetadataTable(version=2, partition_fields=("day", "_hidden"))
    first = table.commit(table.path("data/a.parquet"), at_ms=1000)
    table.commit(table.path("data/b.parquet"), at_ms=2000)
    table.tag("v1", first, max_ref_age_ms=5)
    table.add_statistics(first)
    table.add_statistics(first, partition=True)
    table.metadata_log.append({"metadata-file": "memory://lake/old.metadata.json", "timestamp-ms": 1})
    whole = table.document() | changes
    return json.dumps({key: value for key, value in whole.items() if value != "absent"}).encode()


def test_every_file_that_the_document_names_is_found():
    found = metadata.parse(ADDRESS, document())
    assert [entry.manifest_list is not None for entry in found.snapshots] == [True, True]
    assert found.metadata_log == ("memory://lake/old.metadata.json",)
    assert [entry.path.rpartition(".")[2] for entry in found.statistics_files] == ["stats", "parquet"]
    assert found.partition_fields == ("day", "_hidden")
    assert [(str(ref), ref.max_ref_age_ms) for ref in found.refs] == [("branch main", None), ("tag v1", 5)]


@pytest.mark.parametrize("name", ["plain", "gzip"])
def test_compressed_and_plain_documents_read_alike(name: str):
    data = document() if name == "plain" else gzip.compress(document())
    assert len(metadata.parse(ADDRESS, data).snapshots) == 2


def test_without_refs_main_is_the_current_snapshot():
    found = metadata.parse(ADDRESS, document(refs="absent"))
    assert [(ref.name, ref.snapshot_id) for ref in found.refs] == [("main", found.current_snapshot_id)]


@pytest.mark.parametrize("value", [-1, None, "absent"])
def test_a_table_without_a_current_snapshot_has_no_main(value: Any):
    found = metadata.parse(ADDRESS, document(refs="absent", snapshots=[], **{"current-snapshot-id": value}))
    assert found.current_snapshot_id is None
    assert found.refs == ()


def test_version_1_inline_manifests_are_read():
    snapshot = {"snapshot-id": 1, "timestamp-ms": 1, "manifests": ["memory://lake/m1.avro", "memory://lake/m2.avro"]}
    found = metadata.parse(
        ADDRESS, document(**{"format-version": 1, "snapshots": [snapshot], "refs": {}, "current-snapshot-id": 1})
    )
    assert found.snapshots[0].manifests == ("memory://lake/m1.avro", "memory://lake/m2.avro")
    assert found.snapshots[0].manifest_list is None


def test_a_newer_format_version_is_refused():
    with pytest.raises(Refused, match="format version 4") as caught:
        metadata.parse(ADDRESS, document(**{"format-version": 4}))
    assert caught.value.code == "unsupported"


SNAPSHOT = {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "memory://lake/l.avro"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format-version": "absent"}, "format-version"),
        ({"format-version": "2"}, "format-version"),
        ({"location": "absent"}, "location"),
        ({"location": "relative/place"}, "location"),
        ({"snapshots": {}}, "snapshots"),
        ({"snapshots": [{}]}, r"snapshots\[0\].snapshot-id"),
        ({"snapshots": [SNAPSHOT | {"timestamp-ms": "yesterday"}]}, r"snapshots\[0\].timestamp-ms"),
        ({"snapshots": [SNAPSHOT | {"timestamp-ms": 10**18}]}, r"snapshots\[0\].timestamp-ms"),
        ({"snapshots": [SNAPSHOT | {"manifest-list": None}]}, r"snapshots\[0\].manifest-list"),
        ({"snapshots": [SNAPSHOT | {"manifest-list": ["a"]}]}, r"snapshots\[0\].manifest-list"),
        ({"snapshots": [SNAPSHOT, SNAPSHOT]}, "snapshots contains a duplicate snapshot id"),
        ({"current-snapshot-id": 99, "refs": {}}, "current-snapshot-id"),
        ({"current-snapshot-id": True}, "current-snapshot-id"),
        ({"refs": {"v": {"type": "bookmark", "snapshot-id": 1}}}, "refs.v.type"),
        ({"refs": {"main": {"type": "branch", "snapshot-id": 1}}}, "refs.main"),
        ({"refs": []}, "refs"),
        ({"metadata-log": [{"timestamp-ms": 1}]}, r"metadata-log\[0\].metadata-file"),
        ({"statistics": [{"snapshot-id": 1}]}, r"statistics\[0\].statistics-path"),
        ({"properties": {"history.expire.max-snapshot-age-ms": "5 days"}}, "history.expire.max-snapshot-age-ms"),
        ({"partition-specs": [{"spec-id": 0, "fields": [{}]}]}, r"partition-specs\[0\].fields\[0\].name"),
    ],
)
def test_what_is_malformed_is_unreadable_and_says_where(changes: dict[str, Any], field: str):
    with pytest.raises(Unreadable, match=field) as caught:
        metadata.parse(ADDRESS, document(**changes))
    assert caught.value.address == ADDRESS


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", document()[:-1], gzip.compress(document())[:-9], b"\x1f\x8bxx"],
    ids=["empty", "brace", "list", "null", "cut", "cut gzip", "no gzip"],
)
def test_half_a_file_is_unreadable(data: bytes):
    with pytest.raises(Unreadable):
        metadata.parse(ADDRESS, data)


def test_half_a_document_is_never_a_smaller_table():
    whole = document()
    for end in range(0, len(whole), 97):
        with pytest.raises(Unreadable):
            metadata.parse(ADDRESS, whole[:end])


@pytest.mark.parametrize("value", ["false", "FALSE", "no", ""])
def test_a_table_with_garbage_collection_off_is_refused(value: str):  # testGarbageCollectionDisabled
    found = metadata.parse(ADDRESS, document(properties={"gc.enabled": value}))
    with pytest.raises(Refused, match=r"gc\.enabled=false") as caught:
        unsupported.refuse_uncleanable(found)
    assert caught.value.code == "gc_disabled"


def test_a_boolean_in_place_of_a_text_means_the_same():
    found = metadata.parse(ADDRESS, document(properties={"gc.enabled": False}))
    with pytest.raises(Refused):
        unsupported.refuse_uncleanable(found)


@pytest.mark.parametrize("properties", [{"gc.enabled": "false", "nessie.commit.id": "x"}, {"nessie.catalog": "y"}])
def test_a_nessie_table_is_refused_and_the_reason_names_its_tool(properties: dict[str, str]):
    found = metadata.parse(ADDRESS, document(properties=properties))
    with pytest.raises(Refused, match="Nessie GC") as caught:
        unsupported.refuse_uncleanable(found)
    assert caught.value.code == "gc_disabled"


KEYED = {"snapshots": [SNAPSHOT | {"key-id": "k"}], "refs": {}, "current-snapshot-id": -1}


@pytest.mark.parametrize("changes", [{"encryption-keys": [{"key-id": "k"}]}, KEYED])
def test_an_encrypted_table_is_refused(changes: dict[str, Any]):
    found = metadata.parse(ADDRESS, document(**changes))
    with pytest.raises(Refused) as caught:
        unsupported.refuse_uncleanable(found)
    assert caught.value.code == "encrypted"


def test_a_plain_table_may_be_cleaned():
    assert unsupported.refuse_uncleanable(metadata.parse(ADDRESS, document(properties={"gc.enabled": "TRUE"}))) is None


@pytest.mark.parametrize("name", ["max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"])
def test_a_negative_retention_refuses_the_table_and_is_named(name: str):
    """People mean "never" by it; a rule that compares ages would expire everything."""
    own = {"snapshots": [SNAPSHOT], "current-snapshot-id": SNAPSHOT["snapshot-id"]}
    main = {"snapshot-id": SNAPSHOT["snapshot-id"], "type": "branch"}
    by_table = document(**own | {"refs": {"main": main}, "properties": {f"history.expire.{name}": "-1"}})
    by_ref = document(**own | {"refs": {"main": main, "v1": main | {"type": "tag", name: -1}}})
    for data, said in ((by_table, f"history.expire.{name} is -1"), (by_ref, f"{name} of tag v1 is -1")):
        with pytest.raises(Refused, match=said) as caught:
            unsupported.refuse_uncleanable(metadata.parse(ADDRESS, data))
        assert caught.value.code == "unreadable_property"
    zero = document(**own | {"refs": {"main": main}, "properties": {f"history.expire.{name}": "0"}})
    unsupported.refuse_uncleanable(metadata.parse(ADDRESS, zero))


@pytest.mark.parametrize("field", ["view-uuid", "versions"])
def test_the_metadata_of_a_view_is_no_empty_table(field: str):
    view = {
        "format-version": 1,
        "location": "memory://lake/wh/db/v",
        "schemas": [],
        field: [] if field == "versions" else "u",
    }
    with pytest.raises(Unreadable, match="of a view"):
        metadata.parse(ADDRESS, json.dumps(view).encode())
