"""What Paimon's files say, decoded: options, types, rows, names, snapshots, times."""

# ruff: noqa: DTZ001 - partition values are wall-clock times without a zone

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.paimon import names, partitions
from lakesweep.formats.paimon.binaryrow import Timestamp, decode_row, encode_row, sort_key
from lakesweep.formats.paimon.options import parse_duration, parse_size, read_options
from lakesweep.formats.paimon.schema import Field, FieldType, Kind, check_ours, parse_schema, parse_type
from lakesweep.formats.paimon.snapshots import parse_snapshot
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location

HERE = Location.parse("/t/snapshot/snapshot-1")


# Options


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 h", timedelta(hours=1)),
        ("30min", timedelta(minutes=30)),
        ("500", timedelta(milliseconds=500)),
        ("2 d", timedelta(days=2)),
        ("7 days", timedelta(days=7)),
        ("1 ms", timedelta(milliseconds=1)),
        ("90 s", timedelta(seconds=90)),
        ("1000 micros", timedelta(milliseconds=1)),
    ],
)
def test_durations_have_javas_units(text: str, found: timedelta) -> None:
    assert parse_duration(text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("8 mb", 8 << 20), ("16MB", 16 << 20), ("1 b", 1), ("2kb", 2048), ("7", 7)]
)
def test_sizes_have_javas_units(text: str, found: int) -> None:
    assert parse_size(text) == found


@pytest.mark.parametrize("text", ["3650000 d", "99999999999999999999 d", "9223372036854775807"])
def test_forever_is_a_duration_inside_the_calendar(text: str) -> None:
    assert datetime.now(UTC) - parse_duration(text) < datetime(1100, 1, 1, tzinfo=UTC)


def test_without_options_the_documented_defaults_apply() -> None:
    options = read_options({})
    assert (options.retention.num_min, options.retention.time) == (None, None)
    assert (options.retention.num_max, options.retention.limit) == (2**31 - 1, 10)
    manifest = options.manifest
    assert (manifest.target_size, manifest.full_threshold, manifest.merge_min_count) == (8 << 20, 16 << 20, 30)
    assert (options.partitions.max_num, options.partitions.batch_size) == (100, 100)
    assert not options.decoupled


@pytest.mark.parametrize(
    "options",
    [
        {"snapshot.num-retained.min": "0"},
        {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "4"},
        {"snapshot.expire.limit": "-1"},
        {"snapshot.num-retained.min": "-1"},
        {"snapshot.num-retained.max": "-1"},
        {"snapshot.time-retained": "-1"},
        {"changelog.num-retained.min": "-1"},
        {"changelog.num-retained.max": "-1"},
        {"changelog.num-retained.min": "9", "changelog.num-retained.max": "8"},
        {"changelog.time-retained": "-1 d"},
        {"partition.expiration-time": "-1 d"},
        {"partition.expiration-max-num": "-1"},
        {"snapshot.time-retained": "soon"},
        {"snapshot.num-retained.max": "many"},
        {"manifest.target-file-size": "big"},
        {"partition.legacy-name": "maybe"},
    ],
)
def test_an_option_that_makes_no_sense_refuses_the_table_and_is_named(options: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        read_options(options)
    assert refused.value.code == "bad_table_options"
    assert any(name in refused.value.reason for name in options)


@pytest.mark.parametrize(
    ("options", "decoupled"),
    [
        ({}, False),
        ({"changelog.num-retained.min": "11"}, True),
        ({"changelog.num-retained.min": "10"}, False),
        ({"changelog.time-retained": "2 h"}, True),
        ({"snapshot.time-retained": "3 h", "changelog.time-retained": "2 h"}, False),
        ({"snapshot.num-retained.max": "20", "changelog.num-retained.max": "21"}, True),
    ],
)
def test_changelogs_are_decoupled_where_they_outlive_snapshots(options: dict[str, str], decoupled: bool) -> None:
    assert read_options(options).decoupled is decoupled


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"type": "format-table"}, "unsupported_table_type"),
        ({"type": "object-table"}, "unsupported_table_type"),
        ({"metastore": "rest"}, "rest_managed"),
        ({"chain-table.enabled": "true"}, "chain_table"),
        ({"metadata.iceberg.storage": "table-location"}, "iceberg_compatible"),
        ({"metadata.iceberg.storage": "hadoop-catalog"}, "iceberg_compatible"),
    ],
)
def test_tables_under_other_rules_are_refused_by_their_options(options: dict[str, str], code: str) -> None:
    with pytest.raises(Refused) as refused:
        check_ours(options)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "options", [{}, {"type": "table"}, {"type": "TABLE"}, {"metadata.iceberg.storage": "disabled"}]
)
def test_ordinary_tables_are_ours(options: dict[str, str]) -> None:
    check_ours(options)
    assert read_options(options)


# Types and rows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INT NOT NULL", FieldType(kind=Kind.INT)),
        ("STRING", FieldType(kind=Kind.STRING)),
        ("VARCHAR(20)", FieldType(kind=Kind.STRING)),
        ("CHAR(3) NOT NULL", FieldType(kind=Kind.STRING)),
        ("DECIMAL(20, 2)", FieldType(kind=Kind.DECIMAL, precision=20, scale=2)),
        ("DECIMAL(5,0)", FieldType(kind=Kind.DECIMAL, precision=5)),
        ("TIMESTAMP", FieldType(kind=Kind.TIMESTAMP, precision=6)),
        ("TIMESTAMP(3) NOT NULL", FieldType(kind=Kind.TIMESTAMP, precision=3)),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", FieldType(kind=Kind.TIMESTAMP_LTZ, precision=9)),
        ("TIMESTAMP_LTZ(3)", FieldType(kind=Kind.TIMESTAMP_LTZ, precision=3)),
        ("BINARY(4)", FieldType(kind=Kind.BYTES)),
        ("TIME(0)", FieldType(kind=Kind.TIME)),
    ],
)
def test_types_are_read_as_schemas_spell_them(text: str, found: FieldType) -> None:
    assert parse_type(text) == found


@pytest.mark.parametrize("text", ["ROW<a INT>", "ARRAY<INT>", "GEOMETRY", {"type": "ARRAY"}, ""])
def test_a_partition_key_of_an_unknown_type_refuses_the_table(text: Any) -> None:
    with pytest.raises(ValueError, match="type"):
        parse_type(text)
    document = {"id": 0, "fields": [{"name": "p", "type": text}], "partitionKeys": ["p"], "options": {}}
    with pytest.raises(Refused, match="unsupported_partition_key"):
        parse_schema(json.dumps(document).encode())


def _type(text: str) -> FieldType:
    return parse_type(text)


VECTORS = [
    ([], [], "000000000000000000000000"),
    (["INT"], [7], "0000000100000000000000000700000000000000"),
    (["INT"], [None], "0000000100010000000000000000000000000000"),
    (["STRING"], ["abc"], "0000000100000000000000006162630000000083"),
    (["STRING"], ["12345678"], "00000001000000000000000008000000100000003132333435363738"),
    (["DATE"], [date(2024, 1, 1)], "0000000100000000000000000b4d000000000000"),
    (["DECIMAL(20, 2)"], [Decimal("1.23")], "00000001000000000000000001000000100000007b" + "00" * 15),
]


@pytest.mark.parametrize(("types", "values", "hexed"), VECTORS)
def test_rows_are_laid_out_as_other_writers_do(types: list[str], values: list[Any], hexed: str) -> None:
    kinds = [_type(text) for text in types]
    assert decode_row(bytes.fromhex(hexed), kinds) == tuple(values)
    assert encode_row(values, kinds).hex() == hexed


def test_two_spellings_of_a_null_decode_alike() -> None:
    """Java reserves room for a null of a wide type, other writers leave the slot empty."""
    wide = [_type("TIMESTAMP(6)")]
    java = bytes.fromhex("00000001" + "0001000000000000" + "0000000010000000" + "00" * 8)
    other = bytes.fromhex("00000001" + "0001000000000000" + "00" * 8)
    assert decode_row(java, wide) == decode_row(other, wide) == (None,)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "DATE": st.dates(),
    "TIME": st.times().map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)),
    "STRING": st.text(max_size=30),
    "BYTES": st.binary(max_size=30),
    "TIMESTAMP(3)": st.integers(-(10**14), 10**14).map(Timestamp),
    "TIMESTAMP(9)": st.builds(Timestamp, st.integers(-(10**14), 10**14), st.integers(0, 999_999)),
    "DECIMAL(10, 2)": st.integers(-(10**9), 10**9).map(lambda number: Decimal(f"{number}E-2")),
    "DECIMAL(38, 10)": st.integers(-(10**37), 10**37).map(lambda number: Decimal(f"{number}E-10")),
}


@given(st.data(), st.lists(st.sampled_from(sorted(VALUES)), max_size=6))
def test_every_row_survives_a_round_trip(data: st.DataObject, types: list[str]) -> None:
    values = [data.draw(st.none() | VALUES[text]) for text in types]
    kinds = [_type(text) for text in types]
    assert decode_row(encode_row(values, kinds), kinds) == tuple(values)


@given(st.binary(max_size=60), st.lists(st.sampled_from(sorted(VALUES)), max_size=3))
def test_damaged_rows_are_an_error_and_never_anything_else(data: bytes, types: list[str]) -> None:
    kinds = [_type(text) for text in types]
    try:
        found = decode_row(data, kinds)
    except ValueError:
        return
    assert len(found) == len(kinds)


def test_text_is_ordered_by_its_bytes() -> None:
    assert sorted(["b", "é", "a", "z", "\U0001f600", "￿"], key=sort_key) == ["a", "b", "z", "é", "￿", "\U0001f600"]


# Names


def _path(values: list[Any], types: list[str], *, legacy: bool = True, default: str = "__DEFAULT_PARTITION__") -> str:
    keys = [Field(name=f"k{number}", type=_type(text)) for number, text in enumerate(types)]
    return names.partition_path(keys, values, default=default, legacy=legacy)


@pytest.mark.parametrize(
    ("value", "type_", "found"),
    [
        ("a/b:c d", "STRING", "k0=a%2Fb%3Ac d"),
        ("100%", "STRING", "k0=100%25"),
        ("käse=ü", "STRING", "k0=käse%3Dü"),
        (None, "STRING", "k0=__DEFAULT_PARTITION__"),
        ("", "STRING", "k0=__DEFAULT_PARTITION__"),
        (" ", "STRING", "k0=__DEFAULT_PARTITION__"),
        (date(2024, 1, 1), "DATE", "k0=19723"),
        (True, "BOOLEAN", "k0=true"),
        (Timestamp(1704067200000), "TIMESTAMP(3)", "k0=2024-01-01T00%3A00"),
        (Timestamp(1704067205120), "TIMESTAMP(3)", "k0=2024-01-01T00%3A00%3A05.120"),
        (Decimal("1.20"), "DECIMAL(10, 2)", "k0=1.20"),
        (-5, "INT", "k0=-5"),
        ("\x01", "STRING", "k0=%01"),
    ],
)
def test_directories_are_named_as_java_names_them(value: Any, type_: str, found: str) -> None:
    assert _path([value], [type_]) == found


def test_new_style_names_spell_dates_as_dates() -> None:
    assert _path([date(2024, 1, 1), 7], ["DATE", "INT"], legacy=False) == "k0=2024-01-01/k1=7"
    assert _path([Timestamp(1704067200000)], ["TIMESTAMP(0)"], legacy=False) == "k0=2024-01-01 00%3A00%3A00"
    assert _path([None], ["INT"], default="__HIVE__") == "k0=__HIVE__"
    assert _path([], []) == ""


@pytest.mark.parametrize(
    ("name", "prefix", "number"),
    [
        ("snapshot-7", "snapshot", 7),
        ("snapshot-7.tmp", "snapshot", None),
        ("changelog-7", "snapshot", None),
        ("snapshot-900000000-0000-0000-0000-000000000001.tmp", "snapshot", None),
        (".snapshot-8.x.tmp", "snapshot", None),
        ("LATEST", "snapshot", None),
        ("schema-0", "schema", 0),
        ("snapshot--1", "snapshot", None),
    ],
)
def test_only_whole_numbers_are_ids(name: str, prefix: str, number: int | None) -> None:
    assert names.numbered(name, prefix) == number


def test_slices_of_a_compacted_changelog_are_the_file_that_holds_them() -> None:
    real = "compacted-changelog-8e049c65-5ce4-4ce7-b1b0-78ce694ab351$0-39253.cc-parquet"
    fake = "compacted-changelog-8e049c65-5ce4-4ce7-b1b0-78ce694ab351$0-39253-39253-35699.cc-parquet"
    assert names.stored_name(fake) == names.stored_name(real) == real
    assert names.stored_name("data-x-0.orc") == "data-x-0.orc"


# Snapshots


def _document(**changes: Any) -> bytes:
    document = {
        "version": 3,
        "id": 1,
        "schemaId": 0,
        "baseManifestList": "manifest-list-a-0",
        "deltaManifestList": "manifest-list-a-1",
        "commitUser": "u",
        "commitIdentifier": 1,
        "commitKind": "APPEND",
        "timeMillis": 1000,
    } | changes
    return json.dumps({name: value for name, value in document.items() if value is not ...}).encode()


def test_snapshots_of_old_and_new_writers_read_alike() -> None:
    old = parse_snapshot(_document(changelogManifestList=None, logOffsets={}, indexManifest=None), HERE)
    new = parse_snapshot(_document(baseManifestListSize=7, uuid="x", operation="WRITE", unheard_of={"a": 1}), HERE)
    assert (old.changelog_list, old.index_manifest, old.sizes) == (None, None, {})
    assert (new.base_list, new.sizes) == (old.base_list, {"manifest-list-a-0": 7})
    assert new.document["unheard_of"] == {"a": 1}


def test_a_snapshots_identity_is_its_content() -> None:
    one, other = parse_snapshot(_document(), HERE), parse_snapshot(_document(timeMillis=2000), HERE)
    assert one.id == other.id
    assert one.key != other.key


@pytest.mark.parametrize("version", [4, 99, 0, "3", None])
def test_an_unknown_snapshot_version_is_refused(version: Any) -> None:
    with pytest.raises(Refused, match="unknown_snapshot_version"):
        parse_snapshot(_document(version=version), HERE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        _document(baseManifestList=...),
        _document(id="x"),
        _document(deltaManifestList="../x"),
        _document(commitKind=...),
        _document(schemaId=None),
        _document(baseManifestList=""),
    ],
)
def test_a_damaged_snapshot_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_snapshot(data, HERE)


# Times


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-01-02", datetime(2024, 1, 2)),
        ("2024-1-2", datetime(2024, 1, 2)),
        ("2024-01-02 03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
        ("2024-01-02 24:00:00", datetime(2024, 1, 3)),
        ("2024-13-01", datetime(2025, 1, 1)),
        ("20240102", None),
        ("19723", None),
        ("", None),
        ("2024-01-02T03:04", None),
        ("0000-00-00", None),
        ("99999999-01-01", None),
    ],
)
def test_without_a_formatter_dates_read_as_in_java(text: str, found: datetime | None) -> None:
    assert partitions.default_time(text) == found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("yyyyMMdd", "20240102", datetime(2024, 1, 2)),
        ("yyyyMMdd HH:mm:ss", "20240102 03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
        ("yyyy-MM-dd'T'HH", "2024-01-02T07", datetime(2024, 1, 2, 7)),
        ("yyMMdd", "240102", datetime(2024, 1, 2)),
        ("yyyy-MM-dd[ HH:mm]", "2024-01-02", datetime(2024, 1, 2)),
        ("d/M/yyyy", "2/1/2024", datetime(2024, 1, 2)),
        ("yyyyMMdd", "2024-01-02", None),
        ("yyyyMMdd", "20241302", None),
        ("uuuu.MM.dd", "2024.01.02", datetime(2024, 1, 2)),
        ("yyyyMMddHHmmssSSS", "20240102030405006", datetime(2024, 1, 2, 3, 4, 5, 6000)),
    ],
)
def test_javas_patterns_are_understood(pattern: str, text: str, found: datetime | None) -> None:
    assert partitions.time_parser(pattern)(text) == found


@pytest.mark.parametrize(
    "pattern", ["yyyyMM", "dd MMM yyyy", "yyyy-MM-dd a", "yyyy-MM-dd{", "YYYY-MM-dd", "yyyy-MM-dd[", "x"]
)
def test_a_pattern_that_is_not_understood_is_an_error_and_not_a_silent_never(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        partitions.time_parser(pattern)


def test_time_of_day_is_a_key_like_any_other() -> None:
    assert _path([time(1, 2, 3)], ["TIME"]) == "k0=3723000"
    assert _path([time(1, 2, 3)], ["TIME"], legacy=False) == "k0=01%3A02%3A03"
