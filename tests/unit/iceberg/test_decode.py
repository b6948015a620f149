"""Manifests and manifest lists: what they name, and that damage never looks like fewer files."""

from __future__ import annotations

import io
import json
import pickle

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import iceberg_metadata as build
from tests.builders.iceberg_metadata import ADDED, DELETED, EXISTING, Entry, Manifest

from lakesweep.cleanup.ports import REFERENCE_SCHEMA, ReferenceSource
from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns, decode
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
ROWS = columns.FAST_FROM_ROWS * 3


def source(data: bytes | None = None, entries: int | None = None) -> ReferenceSource:
    return ReferenceSource(
        location=Location.parse("memory://lake/m.avro"),
        format=FormatName.ICEBERG,
        kind=decode.MANIFEST,
        retained=True,
        size_bytes=None if data is None else len(data),
        entries=entries,
    )


def paths(data: bytes, entries: int | None = None) -> set[str]:
    batch = decode.decode(source(data, entries), data)
    assert batch.schema == REFERENCE_SCHEMA
    return set(batch.column("path").to_pylist())


def some(count: int, prefix: str = "f") -> list[Entry]:
    return [
        Entry(path=f"s3://lake/{prefix}{index}.parquet", status=index % 3, columns_with_statistics=index % 4)
        for index in range(count)
    ]


def live(entries: list[Entry]) -> set[str]:
    return {entry.path for entry in entries if entry.status != DELETED}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, ROWS])
@pytest.mark.parametrize("partition", [None, {"day": "2020-01-01"}], ids=["unpartitioned", "partitioned"])
def test_live_entries_are_references_and_deleted_ones_are_not(version, count, partition):
    entries = some(count)
    assert paths(build.manifest_bytes(entries, version=version, partition=partition), count) == live(entries)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [3, ROWS], ids=["few", "many"])
def test_every_codec_is_read(codec, count):
    entries = some(count)
    assert paths(build.manifest_bytes(entries, codec=codec), count) == live(entries)


def test_one_row_per_block_is_read_as_pyiceberg_writes_it():
    entries = some(ROWS)
    assert paths(build.manifest_bytes(entries, rows_per_block=1), ROWS) == live(entries)


@pytest.mark.parametrize("count", [4, ROWS], ids=["few", "many"])
def test_deletion_vectors_that_share_a_file_name_it_once(count):
    entries = [
        Entry(path="s3://lake/shared.puffin", content=1, file_format="PUFFIN", content_offset=index, status=EXISTING)
        for index in range(count)
    ]
    batch = decode.decode(source(), build.manifest_bytes(entries, version=3))
    assert batch.column("path").to_pylist() == ["s3://lake/shared.puffin"]


def test_a_shared_puffin_file_is_live_while_one_entry_is():
    entries = [Entry(path="s3://lake/p.puffin", status=DELETED), Entry(path="s3://lake/p.puffin", status=ADDED)]
    assert paths(build.manifest_bytes(entries, version=3)) == {"s3://lake/p.puffin"}


@pytest.mark.parametrize("count", [3, ROWS], ids=["few", "many"])
def test_fields_are_found_by_id_whatever_they_are_called(count):
    text = json.dumps(build.entry_schema(2, ("day",)))
    for old, new in (("file_path", "old_name"), ("data_file", "the_file"), ("status", "state"), ("day", "status")):
        text = text.replace(f'"name": "{old}"', f'"name": "{new}"')
    entries = some(count)
    records = []
    for entry in entries:
        record = build.entry_record(entry, 2, {"status": "x"})
        file = record.pop("data_file")
        records.append(record | {"state": record.pop("status"), "the_file": file | {"old_name": file.pop("file_path")}})
    assert paths(build.container(json.loads(text), records), count) == live(entries)


@pytest.mark.parametrize("missing", [0, 100])
def test_a_schema_without_the_needed_ids_is_unreadable(missing):
    text = json.dumps(build.entry_schema()).replace(f'"field-id": {missing},', '"field-id": 7777,', 1)
    data = build.container(json.loads(text), [build.entry_record(Entry(path="x"))])
    with pytest.raises(Unreadable, match=f"id {missing} "):
        decode.decode(source(), data)


@pytest.mark.parametrize("count", [3, ROWS], ids=["few", "many"])
def test_an_unknown_status_is_unreadable(count):
    entries = [*some(count - 1), Entry(path="s3://lake/x", status=3)]
    with pytest.raises(Unreadable, match="status"):
        decode.decode(source(), build.manifest_bytes(entries))


def test_values_that_no_calendar_knows_do_not_matter():
    schema = json.loads(
        json.dumps(build.entry_schema(2, ("day",))).replace(
            '{"name": "day", "field-id": 1000, "type": ["null", "string"]',
            '{"name": "day", "field-id": 1000, "type": ["null", {"type": "int", "logicalType": "date"}]',
        )
    )
    assert "logicalType" in json.dumps(schema)
    record = build.entry_record(Entry(path="s3://lake/far.parquet"))
    record["data_file"]["partition"] = {"day": 2**31 - 1}
    plain = json.loads(json.dumps(schema).replace(', "logicalType": "date"', ""))
    data = build.container(plain, [record] * 2)
    framed = avro.walk(data)
    assert paths(avro.reframe(data, framed, schema)) == {"s3://lake/far.parquet"}


@pytest.mark.parametrize("count", [5, ROWS], ids=["few", "many"])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_manifest_cut_anywhere_is_never_a_smaller_manifest(count, codec):
    data = build.manifest_bytes(some(count), codec=codec, rows_per_block=2)
    ends = {block.end + 16 for block in avro.walk(data).blocks} | {avro.walk(data).body}
    for end in sorted({*range(0, len(data), 101), *(end + step for end in ends for step in (-17, -1, 0, 1))}):
        if end >= len(data):
            continue
        with pytest.raises(Unreadable):
            decode.decode(source(data, count), data[:end])
        with pytest.raises(Unreadable):
            decode.decode(source(entries=count), data[:end])


def test_a_cut_at_a_block_end_is_noticed_by_length_or_by_count_alone():
    data = build.manifest_bytes(some(10), rows_per_block=2)
    cut = data[: avro.walk(data).blocks[2].end + 16]
    assert len(paths(cut)) > 0, "the container itself looks whole"
    with pytest.raises(Unreadable, match="bytes"):
        decode.decode(source(data), cut)
    with pytest.raises(Unreadable, match="entries"):
        decode.decode(source(entries=10), cut)


@pytest.mark.parametrize("count", [10, ROWS], ids=["few", "many"])
def test_a_flipped_sync_marker_is_noticed(count):
    data = bytearray(build.manifest_bytes(some(count), rows_per_block=2))
    data[avro.walk(bytes(data)).blocks[1].end + 3] ^= 1
    with pytest.raises(Unreadable):
        decode.decode(source(bytes(data), count), bytes(data))


@pytest.mark.parametrize("count", [10, ROWS], ids=["few", "many"])
def test_a_wrong_block_count_is_noticed(count):
    """The first block says one row less than it holds."""
    data = bytearray(build.manifest_bytes(some(count), rows_per_block=2, codec="null"))
    body = avro.walk(bytes(data)).body
    assert data[body] == 4  # two rows, zig-zag
    data[body] = 2
    with pytest.raises(Unreadable):
        decode.decode(source(bytes(data), count), bytes(data))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"Obj\x01", b"\x00" * 100])
def test_what_is_no_container_is_unreadable(data):
    with pytest.raises(Unreadable, match="memory://lake/m"):
        decode.decode(source(), data)


def test_the_decoder_travels_to_other_processes():
    assert pickle.loads(pickle.dumps(decode.decode)) is decode.decode
    assert pickle.loads(pickle.dumps(source(b"x", 1))) == source(b"x", 1)


entries_of_all_kinds = st.lists(
    st.builds(
        Entry,
        path=st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()),
        status=st.integers(0, 2),
        content=st.integers(0, 2),
        columns_with_statistics=st.integers(0, 3),
    ),
    max_size=columns.FAST_FROM_ROWS * 2,
)


@settings(max_examples=60, deadline=None)
@given(
    entries=entries_of_all_kinds,
    version=st.integers(1, 3),
    codec=st.sampled_from(CODECS),
    partitioned=st.booleans(),
    rows_per_block=st.sampled_from([0, 1, 7]),
)
def test_the_fast_reader_and_fastavro_see_the_same(entries, version, codec, partitioned, rows_per_block):
    partition = {"day": "x"} if partitioned else None
    rows = rows_per_block if codec != "zstandard" else 0
    data = build.manifest_bytes(entries, version=version, codec=codec, partition=partition, rows_per_block=rows)
    wanted = {0: pa.field("status", pa.int32(), nullable=False), 100: pa.field("path", pa.string(), nullable=False)}
    container = avro.walk(data)
    schema = columns.Plain(container.schema, wanted)
    slow = columns.read_slowly(data, container, schema)
    fast = columns.read_fast(data, container, schema)
    assert slow.column("path").to_pylist() == [entry.path for entry in entries]
    assert slow.column("status").to_pylist() == [entry.status for entry in entries]
    if entries:
        assert fast is not None, "the fast reader must not give up on what Iceberg writers write"
        assert fast.select(["status", "path"]).to_pydict() == slow.select(["status", "path"]).to_pydict()


# Manifest lists


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
def test_a_list_cut_right_behind_its_header_is_noticed_when_the_summary_counts_anything(summary):
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


def test_an_exact_count_of_manifests_proves_a_list_whole_although_totals_drifted():
    summary = {"total-data-files": "13", "manifests-created": "1", "manifests-kept": "3"}
    assert len(decode.decode_list(ADDRESS, build.list_bytes(manifests(4)), summary)) == 4


@pytest.mark.parametrize("text", ["", "-1", "many", "1e3", "²"])
def test_a_total_that_is_no_number_checks_nothing(text):
    assert len(decode.decode_list(ADDRESS, build.list_bytes(manifests(1)), {"total-data-files": text})) == 1


def test_fastavro_itself_reads_what_the_builder_writes():
    data = build.list_bytes(manifests(2))
    assert [row["manifest_length"] for row in fastavro.reader(io.BytesIO(data))] == [1, 2]
