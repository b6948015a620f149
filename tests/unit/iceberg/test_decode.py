"""Manifests and manifest lists: what they name, and that damage never looks like fewer files."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import iceberg_manifests as build
from tests.builders.iceberg_manifests import ADDED, DELETED, EXISTING, Entry

from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns, decode
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import REFERENCE_SCHEMA, ReferenceSource

CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
ROWS = 400


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
    ids = {0: pa.field("status", pa.int32()), 100: pa.field("path", pa.string())}
    rows = columns.read_slowly(avro.inflate(data, avro.walk(data)), 2, columns.Plain(schema, ids))
    assert rows["path"].to_pylist() == ["s3://lake/far.parquet"] * 2


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


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_flipped_bits_end_in_an_error_or_in_as_many_rows(codec):
    """Never in a hang, a crash or fewer rows. What a flipped path costs, the check for missing files notices."""
    good = build.manifest_bytes(some(ROWS), codec=codec, rows_per_block=30)
    dice = random.Random(7)
    for _ in range(300):
        bad = bytearray(good)
        bad[dice.randrange(avro.walk(good).body, len(bad))] ^= 1 << dice.randrange(8)
        try:
            assert columns.read(bytes(bad), decode._ENTRY_FIELDS).num_rows == ROWS
        except (avro.ContainerError, pa.ArrowInvalid):
            continue


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
    max_size=200,
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
    slow = columns.read_slowly(avro.inflate(data, container), container.rows, schema)
    assert schema.program is not None, "the fast reader must not give up on what Iceberg writers write"
    fast = avro.read_fast(data, container, schema.program)
    assert fast is not None
    assert slow["path"].to_pylist() == [entry.path for entry in entries]
    assert slow["status"].to_pylist() == [entry.status for entry in entries]
    assert fast == slow


@pytest.mark.parametrize(("more_bytes", "more_entries"), [(7, 0), (-7, 0), (0, 3), (0, -3)])
def test_a_whole_manifest_is_believed_if_its_length_or_its_count_fits(more_bytes, more_entries):
    """Some writers record one of the two wrongly. A cut then still contradicts the other."""
    entries = some(10)
    data = build.manifest_bytes(entries, rows_per_block=2)
    recorded = replace(source(entries=10 + more_entries), size_bytes=len(data) + more_bytes)
    assert set(decode.decode(recorded, data).column("path").to_pylist()) == live(entries)
    for block in avro.walk(data).blocks[:-1]:
        with pytest.raises(Unreadable, match="records"):
            decode.decode(recorded, data[: block.end + 16])


def test_a_manifest_of_another_length_and_another_count_is_damaged():
    data = build.manifest_bytes(some(10))
    with pytest.raises(Unreadable, match=r"bytes.*entries"):
        decode.decode(replace(source(entries=11), size_bytes=len(data) + 1), data)


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("claimed", [1, 3])
def test_a_wrong_row_count_of_a_block_is_found(codec, claimed):
    data = bytearray(build.manifest_bytes(some(10), rows_per_block=2, codec=codec))
    body = avro.walk(bytes(data)).body
    assert data[body] == 4
    data[body] = claimed * 2
    with pytest.raises(Unreadable):
        decode.decode(source(bytes(data), 10), bytes(data))
