"""Manifest lists: what they record, and that one cut short is noticed although nothing records its length."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest
from tests.builders import iceberg_manifests as build
from tests.builders.iceberg import Lake
from tests.builders.iceberg_manifests import Entry, Manifest

from lakesweep.formats import avro
from lakesweep.formats.iceberg import decode
from lakesweep.model.errors import Unreadable
from lakesweep.model.snapshot import ExpiryPlan

ROWS = 400


def manifests(count: int, content: int = 0) -> list[Manifest]:
    entries = tuple(Entry(path=f"s3://lake/{content}/{index}.parquet") for index in range(3))
    return [
        Manifest(path=f"s3://lake/{content}-{index}-m0.avro", entries=entries, data=b"x" * (index + 1), content=content)
        for index in range(count)
    ]


ADDRESS = "memory://lake/snap-1.avro"


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, ROWS])
def test_a_manifest_list_names_its_manifests_with_lengths_and_counts(version, count):
    rows = decode.decode_list(ADDRESS, build.list_bytes(manifests(count), version=version), {})
    assert [row.path for row in rows] == [one.path for one in manifests(count)]
    assert [row.length for row in rows] == [len(one.data) for one in manifests(count)]
    assert {(row.entries, row.live, row.content, row.encrypted) for row in rows} <= {(3, 3, 0, False)}


def test_older_names_of_the_counts_are_found_by_id():
    text = json.dumps(build.list_schema(1))
    for kind in ("added", "existing", "deleted"):
        text = text.replace(f'"{kind}_files_count"', f'"{kind}_data_files_count"')
    row = {key.replace("_files_", "_data_files_"): value for key, value in manifests(1)[0].row().items()}
    assert decode.decode_list(ADDRESS, build.container(json.loads(text), [row]), {})[0].entries == 3


def test_counts_that_are_not_recorded_are_unknown_and_not_zero():
    row = manifests(1)[0].row() | {"added_files_count": None}
    schema = json.loads(
        json.dumps(build.list_schema(1)).replace(
            '"name": "added_files_count", "field-id": 504, "type": "int"',
            '"name": "added_files_count", "field-id": 504, "type": ["null", "int"]',
        )
    )
    found = decode.decode_list(ADDRESS, build.container(schema, [row]), {"total-data-files": "99"})
    assert found[0].entries is None


def test_an_encrypted_manifest_is_marked():
    row = manifests(1)[0].row() | {"key_metadata": b"k"}
    assert decode.decode_list(ADDRESS, build.container(build.list_schema(2), [row]), {})[0].encrypted


def test_an_unknown_content_is_unreadable():
    row = manifests(1)[0].row() | {"content": 2}
    with pytest.raises(Unreadable, match="content 2"):
        decode.decode_list(ADDRESS, build.container(build.list_schema(2), [row]), {})


@pytest.mark.parametrize(
    "summary",
    [
        {"total-data-files": "3", "total-delete-files": "0"},
        {"added-data-files": "1"},
        {"total-delete-files": "1"},
        {"manifests-created": "1", "manifests-kept": "0"},
    ],
)
def test_a_list_truncated_after_its_header_is_noticed_by_the_summary(summary):
    data = build.list_bytes(manifests(1) + manifests(1, content=1))
    cut = data[: avro.walk(data).body]
    assert decode.decode_list(ADDRESS, cut, {}) == (), "nothing else gives it away"
    with pytest.raises(Unreadable, match="summary counts"):
        decode.decode_list(ADDRESS, cut, summary)


def test_a_list_cut_at_any_block_end_is_noticed_by_the_totals():
    whole = manifests(6)
    data = build.list_bytes(whole, rows_per_block=2)
    for block in avro.walk(data).blocks[:-1]:
        with pytest.raises(Unreadable, match="18"):
            decode.decode_list(ADDRESS, data[: block.end + 16], {"total-data-files": "18"})
    assert len(decode.decode_list(ADDRESS, data, {"total-data-files": "18"})) == 6


def test_missing_delete_manifests_are_noticed_although_all_data_is_there():
    data = build.list_bytes(manifests(2) + manifests(2, content=1), rows_per_block=2)
    cut = data[: avro.walk(data).blocks[0].end + 16]
    with pytest.raises(Unreadable, match="delete files"):
        decode.decode_list(ADDRESS, cut, {"total-data-files": "6", "total-delete-files": "6"})


def test_a_list_with_a_wrong_block_count_is_noticed():
    data = bytearray(build.list_bytes(manifests(4), rows_per_block=2, codec="null"))
    data[avro.walk(bytes(data)).body] = 2
    with pytest.raises(Unreadable):
        decode.decode_list(ADDRESS, bytes(data), {"total-data-files": "12"})


def test_totals_that_a_writer_started_anew_are_no_damage():
    """pyiceberg begins at zero behind a snapshot without a summary: the list then holds more than the total."""
    assert len(decode.decode_list(ADDRESS, build.list_bytes(manifests(4)), {"total-data-files": "3"})) == 4


def test_an_exact_manifest_count_proves_a_list_whole():
    summary = {"total-data-files": "13", "manifests-created": "1", "manifests-kept": "3"}
    assert len(decode.decode_list(ADDRESS, build.list_bytes(manifests(4)), summary)) == 4


def test_a_miscount_does_not_hide_missing_delete_manifests():
    summary = {
        "manifests-created": "1",
        "manifests-kept": "1",
        "entries-processed": "6",
        "total-data-files": "7",
        "total-delete-files": "6",
    }
    data = build.list_bytes(manifests(2) + manifests(2, content=1), rows_per_block=2)
    assert len(decode.decode_list(ADDRESS, data, {**summary, "total-data-files": "6"})) == 4
    cut = data[: avro.walk(data).blocks[0].end + 16]
    with pytest.raises(Unreadable, match="delete files"):
        decode.decode_list(ADDRESS, cut, summary)


@pytest.mark.parametrize("text", ["", "-1", "many", "1e3", "²"])
def test_a_total_that_is_no_number_checks_nothing(text):
    assert len(decode.decode_list(ADDRESS, build.list_bytes(manifests(1)), {"total-data-files": text})) == 1


def test_fastavro_itself_reads_what_the_builder_writes():
    data = build.list_bytes(manifests(2))
    assert [row["manifest_length"] for row in fastavro.reader(io.BytesIO(data))] == [1, 2]


async def test_pyiceberg_restarts_totals_after_a_missing_summary(tmp_path: Path):
    table = Lake.make(tmp_path).create()
    table.history([1, 2])
    head = Path(table.table.metadata_location.removeprefix("file://"))
    document = json.loads(head.read_text())
    for snapshot in document["snapshots"]:
        del snapshot["summary"]
    head.write_text(json.dumps(document))
    table.append(3)
    handle = await table.open()
    state = await handle.load()
    assert state.native.metadata.snapshots[-1].summary["total-data-files"] == "1"
    assert len((await state.references(ExpiryPlan(head=state.head))).sources) == 3
