"""Manifests: containers, guards against short reads, names, liveness, merging, statistics, shapes."""

from __future__ import annotations

import copy
import io
import time
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc, parquet
from tests.builders.paimon_model import INDEX_SCHEMA, LIST_SCHEMA, MANIFEST_SCHEMA, STRING, DataFile

from lakesweep.formats import avro
from lakesweep.formats.paimon import commit_files, decode, manifests, merge
from lakesweep.formats.paimon.binaryrow import decode_row, encode_row
from lakesweep.formats.paimon.manifests import ManifestRecord
from lakesweep.formats.paimon.merge import Standing
from lakesweep.formats.paimon.options import ManifestOptions
from lakesweep.formats.paimon.schema import parse_type
from lakesweep.model.errors import Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource


def files(count: int, partition: str = "a") -> list[DataFile]:
    return [DataFile(name=f"data-{uuid.UUID(int=number)}-0.orc", partition=partition) for number in range(count)]


def entries(count: int, kind: int = 0) -> list[dict[str, Any]]:
    return [file.entry(kind) for file in files(count)]


def as_avro(rows: list[dict[str, Any]], codec: str = "zstandard") -> bytes:
    return avro.write(MANIFEST_SCHEMA, rows, codec=codec)


STATS = pa.struct([("_MIN_VALUES", pa.binary()), ("_MAX_VALUES", pa.binary()), ("_NULL_COUNTS", pa.list_(pa.int64()))])
COLUMNS = pa.schema(
    [
        *[(name, pa.int32()) for name in ("_VERSION", "_KIND")],
        ("_PARTITION", pa.binary()),
        *[(name, pa.int32()) for name in ("_BUCKET", "_TOTAL_BUCKETS")],
        (
            "_FILE",
            pa.struct(
                [
                    ("_FILE_NAME", pa.string()),
                    *[(name, pa.int64()) for name in ("_FILE_SIZE", "_ROW_COUNT")],
                    *[(name, pa.binary()) for name in ("_MIN_KEY", "_MAX_KEY")],
                    *[(name, STATS) for name in ("_KEY_STATS", "_VALUE_STATS")],
                    *[(name, pa.int64()) for name in ("_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER", "_SCHEMA_ID")],
                    ("_LEVEL", pa.int32()),
                    ("_EXTRA_FILES", pa.list_(pa.string())),
                    ("_CREATION_TIME", pa.timestamp("ms")),
                    ("_DELETE_ROW_COUNT", pa.int64()),
                    ("_EMBEDDED_FILE_INDEX", pa.binary()),
                    ("_FILE_SOURCE", pa.int32()),
                    ("_VALUE_STATS_COLS", pa.list_(pa.string())),
                    ("_EXTERNAL_PATH", pa.string()),
                ]
            ),
        ),
    ]
)


def as_columns(rows: list[dict[str, Any]], write: Any) -> bytes:
    sink = io.BytesIO()
    write(pa.Table.from_pylist(rows, schema=COLUMNS), sink)
    return sink.getvalue()


CONTAINERS = {
    "zstd": as_avro,
    "deflate": lambda rows: as_avro(rows, "deflate"),
    "plain": lambda rows: as_avro(rows, "null"),
    "orc": lambda rows: as_columns(rows, orc.write_table),
    "parquet": lambda rows: as_columns(rows, parquet.write_table),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("count", [1, 39, 500])
def test_every_container_reads_alike_slow_and_fast(container: str, count: int) -> None:
    rows = entries(count)
    data = CONTAINERS[container](rows)
    table = manifests.read_columns(data, ("kind", "name", "partition", "level", "extra", "rows"), expected=count)
    assert table.column("name").to_pylist() == [row["_FILE"]["_FILE_NAME"] for row in rows]
    assert set(table.column("partition").to_pylist()) == {rows[0]["_PARTITION"]}
    read = manifests.read_entries(data, expected=count)
    assert [merge.identity(row) for row in read] == [merge.identity(row) for row in rows]


def test_missing_fields_are_null_and_unknown_fields_are_ignored() -> None:
    schema = copy.deepcopy(MANIFEST_SCHEMA)
    inner = schema["fields"][5]["type"]["fields"]
    inner[:] = [
        field for field in inner if field["name"] not in ("_EXTERNAL_PATH", "_FILE_SOURCE", "_VALUE_STATS_COLS")
    ]
    inner.append({"name": "_UNHEARD_OF", "type": ["null", "string"], "default": None})
    rows = entries(60)
    for row in rows:
        for name in ("_EXTERNAL_PATH", "_FILE_SOURCE", "_VALUE_STATS_COLS"):
            del row["_FILE"][name]
        row["_FILE"]["_UNHEARD_OF"] = "x"
    table = manifests.read_columns(avro.write(schema, rows), ("name", "external", "source"))
    assert table.column("external").null_count == table.column("source").null_count == 60


def test_a_record_inside_a_union_as_older_writers_wrote_it_is_read() -> None:
    rows = entries(100)
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(["null", MANIFEST_SCHEMA]), rows, codec="deflate")
    table = manifests.read_columns(sink.getvalue(), ("name",), expected=100)
    assert table.num_rows == 100


def source(data: bytes, kind: str = decode.MANIFEST, *, entries: int | None = None) -> ReferenceSource:
    return ReferenceSource(
        location=Location.parse("/t/manifest/manifest-x-0"),
        format=FormatName.PAIMON,
        kind=kind,
        retained=True,
        size_bytes=len(data),
        entries=entries,
    )


def names(batch: pa.RecordBatch) -> list[str]:
    return batch.column("path").to_pylist()


def test_added_names_and_their_extra_files_are_what_a_manifest_keeps() -> None:
    kept = DataFile(name="data-1.orc", partition="a", extras=("data-1.orc.index",))
    data = as_avro([kept.entry(0), *entries(3, kind=1)])
    assert sorted(names(decode.decode(source(data), data))) == ["data-1.orc", "data-1.orc.index"]


def test_a_delta_that_streams_read_keeps_its_adds_and_deletes() -> None:
    added, compacted = DataFile(name="a", partition="a"), DataFile(name="c", partition="a", source=1)
    deleted = DataFile(name="d", partition="a", extras=("d.index",))
    data = as_avro([added.entry(0), compacted.entry(0), deleted.entry(1)])
    batch = decode.decode(source(data, decode.DIFF), data)
    assert sorted(names(batch)) == ["a", "c", "d", "d.index"]
    assert batch.column("tolerated").to_pylist() == [True] * 4


def test_external_files_are_named_by_address_with_extra_files() -> None:
    row = DataFile(name="d.orc", partition="a", extras=("d.orc.index",)).entry(0)
    row["_FILE"]["_EXTERNAL_PATH"] = "FILE:/ext/dt=a/bucket-0/d.orc"
    data = as_avro([row, DataFile(name="e.orc", partition="a").entry(0)])
    assert names(decode.decode(source(data), data)) == [
        "FILE:/ext/dt=a/bucket-0/d.orc",
        "FILE:/ext/dt=a/bucket-0/d.orc.index",
        "e.orc",
    ]


def test_slices_of_a_compacted_changelog_keep_the_file_that_is_there() -> None:
    data = as_avro(
        [DataFile(name=f"compacted-changelog-x$0-9{tail}.cc-orc", partition="a").entry(0) for tail in ("", "-9-5")]
    )
    assert names(decode.decode(source(data), data)) == ["compacted-changelog-x$0-9.cc-orc"] * 2


def test_slices_of_a_compacted_changelog_on_an_external_path_keep_it_too() -> None:
    """Java gives every slice an address in the directory of the real file, under a name that is nowhere."""
    rows = []
    for name in ("compacted-changelog-x$0-9.cc-orc", "compacted-changelog-x$0-9-9-5.cc-orc"):
        rows.append(DataFile(name=name, partition="a").entry(0))
        rows[-1]["_FILE"]["_EXTERNAL_PATH"] = f"s3://b/ext/dt=a/bucket-0/{name}"
    data = as_avro(rows)
    real = "s3://b/ext/dt=a/bucket-0/compacted-changelog-x$0-9.cc-orc"
    assert names(decode.decode(source(data), data)) == [real, real]


def test_an_index_manifest_keeps_its_files() -> None:
    row = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": b"",
        "_BUCKET": 0,
        "_INDEX_TYPE": "HASH",
        "_FILE_NAME": "index-1",
        "_FILE_SIZE": 1,
        "_ROW_COUNT": 1,
        "_EXTERNAL_PATH": None,
    }
    data = avro.write(INDEX_SCHEMA, [row, row | {"_FILE_NAME": "index-2", "_EXTERNAL_PATH": "/ext/index-2"}])
    assert names(decode.decode(source(data, decode.INDEX), data)) == ["index-1", "/ext/index-2"]


@pytest.mark.parametrize("container", CONTAINERS)
def test_no_cut_and_no_flipped_byte_ever_gives_fewer_names(container: str) -> None:
    """With length and count recorded there is no short read, wherever the damage is."""
    whole = CONTAINERS[container](entries(2000))
    expected = sorted(names(decode.decode(source(whole, entries=2000), whole)))
    recorded = source(whole, entries=2000)
    for position in range(0, len(whole), max(1, len(whole) // 60)):
        with pytest.raises(Unreadable):
            decode.decode(recorded, whole[:position])
        flipped = bytearray(whole)
        flipped[position] ^= 0x55
        try:
            found = sorted(names(decode.decode(recorded, bytes(flipped))))
        except Unreadable:
            continue
        assert len(found) == len(expected)


def test_a_cut_behind_a_block_is_seen_by_the_count_alone() -> None:
    whole = as_avro(entries(3000), "null")
    blocks = avro.walk(whole).blocks
    assert len(blocks) > 1
    cut = whole[: blocks[0].end + 16]
    with pytest.raises(ValueError, match="its list records 3000"):
        manifests.read_columns(cut, ("name",), expected=3000)


@pytest.mark.parametrize(
    "data", [b"", b"Obj\x01", b"ORC", b"PAR1", b"not a manifest at all", b"Obj\x01" + b"\x00" * 40]
)
def test_what_is_no_container_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode.decode(source(data), data)


@pytest.mark.parametrize("version", [1, 3])
def test_an_unknown_manifest_version_is_refused(version: int) -> None:
    rows = [row | {"_VERSION": version} for row in entries(60)]
    with pytest.raises(Refused, match="unknown_manifest_version"):
        manifests.read_columns(as_avro(rows), ("name",))
    with pytest.raises(Unreadable, match=f"version {version}"):
        decode.decode(source(as_avro(rows)), as_avro(rows))


def test_an_entry_of_unknown_kind_is_damage() -> None:
    data = as_avro([row | {"_KIND": 2} for row in entries(60)])
    with pytest.raises(ValueError, match="unknown kind"):
        manifests.read_columns(data, ("name",))


# Liveness


def changes(*steps: tuple[int, DataFile]) -> tuple[decode.Change, ...]:
    table = manifests.read_columns(as_avro([file.entry(kind) for kind, file in steps]), decode.COLUMNS)
    suspects = pa.array(sorted({name for _, file in steps for name in (file.name, *file.extras)}), pa.string())
    return decode.concerning(table, suspects)


F = DataFile(name="f", partition="a", extras=("f.index",))
F5 = DataFile(name="f", partition="a", level=5, extras=("f.index",))


@pytest.mark.parametrize(
    ("steps", "live"),
    [
        ([(0, F), (1, F)], False),
        ([(1, F), (0, F)], True),
        ([(0, F), (1, F), (0, F5)], True),
        ([(0, F), (1, F), (0, F5), (1, F5)], False),
        ([(0, F), (0, F5), (1, F)], True),
        ([(1, F)], False),
    ],
)
def test_the_last_entry_of_an_identity_counts(steps: list[tuple[int, DataFile]], live: bool) -> None:
    found = decode.live_names([["m"]], [], {"m": changes(*steps)})
    assert found == ({"f", "f.index"} if live else set())


def test_no_field_for_extra_files_and_none_of_them_are_the_same() -> None:
    row = {"partition": b"", "bucket": 0, "level": 0, "name": "f", "embedded": None, "external": None}
    assert manifests.identity(row | {"extra": None}) == manifests.identity(row | {"extra": []})
    assert manifests.identity(row | {"extra": None}) != manifests.identity(row | {"extra": ["f.index"]})


def test_live_anywhere_is_live() -> None:
    known = {"m1": changes((0, F)), "m2": changes((1, F))}
    assert decode.live_names([["m1"], ["m1", "m2"]], [], known) == {"f", "f.index"}
    assert decode.live_names([["m1", "m2"]], [], known) == set()
    assert decode.live_names([["m2"], ["m2", "m1"]], [], known) == {"f", "f.index"}


def test_a_snapshot_that_does_not_extend_the_one_before_is_walked_anew() -> None:
    known = {"m1": changes((0, F)), "m2": changes((1, F)), "other": ()}
    assert decode.live_names([["m1", "m2"], ["other", "m1"]], [], known) == {"f", "f.index"}


def test_changelogs_keep_what_they_add_whatever_happened_later() -> None:
    known = {"m1": changes((0, F)), "m2": changes((1, F))}
    assert decode.live_names([["m1", "m2"]], ["m1"], known) == {"f", "f.index"}
    assert decode.live_names([["m1", "m2"]], ["m2"], known) == set()


def test_streams_read_what_a_delta_adds_and_what_it_deletes() -> None:
    known = {"m1": changes((0, F)), "m2": changes((1, F))}
    assert decode.mentioned_names(["m2"], known) == {"f", "f.index"}


def test_an_entry_concerns_a_suspect_by_its_extra_files_too() -> None:
    table = manifests.read_columns(as_avro([F.entry(0), *entries(50)]), decode.COLUMNS)
    assert len(decode.concerning(table, pa.array(["f.index"]))) == 1
    assert decode.concerning(table, pa.array(["nothing"])) == ()
    assert decode.mentioned_in_deletes(table) == set()


# Merging


def meta(
    name: str, size: int, added: int = 1, deleted: int = 0, partitions: tuple[str, ...] = ("a",)
) -> ManifestRecord:
    document = {
        "_PARTITION_STATS": commit_files.partition_stats([encode_row([value], STRING) for value in partitions], STRING)
    }
    return ManifestRecord(name=name, size_bytes=size, added=added, deleted=deleted, sidecars=(), document=document)


RULES = ManifestOptions(target_size=100, full_threshold=200, merge_min_count=3)


def grouped(plan: merge.MergePlan | None) -> list[list[str]] | None:
    return None if plan is None else [[one.name for one in group] for group in plan.groups]


def test_neighbours_merge_up_to_the_target_size_and_a_large_one_alone_stays() -> None:
    metas = [meta("a", 60), meta("b", 60), meta("c", 150), meta("d", 10), meta("e", 10)]
    assert grouped(merge.plan_minor(metas, RULES)) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_the_last_bit_merges_when_it_is_many() -> None:
    metas = [meta(name, 10) for name in "abc"]
    assert grouped(merge.plan_minor(metas, RULES)) == [["a", "b", "c"]]
    assert merge.plan_minor(metas[:2], RULES).empty
    assert merge.plan_minor([], ManifestOptions(target_size=1, full_threshold=1, merge_min_count=1)).empty


def test_a_full_merge_waits_for_its_threshold() -> None:
    small = [meta(f"m{number}", 50) for number in range(3)]
    assert not merge.wants_full(small, RULES)
    assert merge.wants_full([*small, meta("m3", 50)], RULES)
    assert not merge.wants_full([meta("large", 5000), *small], RULES)
    assert merge.wants_full([meta("large", 5000, deleted=1)], RULES)


def test_a_full_merge_leaves_large_manifests_that_no_delete_concerns() -> None:
    metas = [
        meta("far", 500, partitions=("x", "z")),
        meta("near", 500, partitions=("a", "c")),
        meta("new", 150, deleted=2),
    ]
    deleted = [encode_row(["b"], STRING)]
    assert grouped(merge.plan_full(metas, RULES, deleted, STRING)) == [["far"], ["near", "new"]]


def test_a_full_merge_that_gains_nothing_is_not_done() -> None:
    assert merge.plan_full([meta("a", 99), meta("b", 99)], RULES, [], STRING) is None
    assert merge.plan_full([meta("a", 50, deleted=1)], RULES, [], STRING) is None
    assert grouped(merge.plan_full([meta("a", 40), meta("b", 40)], RULES, [], STRING)) == [["a", "b"]]


def left(*groups: list[tuple[int, DataFile]]) -> list[tuple[int, str, int]]:
    standing, rows = Standing(), []
    for number, group in enumerate(groups):
        made = [file.entry(kind) for kind, file in group]
        standing.feed(str(number), [(row["_KIND"], merge.identity(row)) for row in made])
        rows += [(str(number), index, row) for index, row in enumerate(made)]
    kept = [row for name, index, row in rows if standing.keeps(name, index, row)]
    return [(row["_KIND"], row["_FILE"]["_FILE_NAME"], row["_FILE"]["_LEVEL"]) for row in kept]


def test_an_add_and_its_delete_cancel_and_an_unmatched_delete_stays() -> None:
    assert left([(0, F)], [(1, F)]) == []
    assert left([(1, F)], [(0, F5)]) == [(1, "f", 0), (0, "f", 5)]
    assert left([(0, F)], [(1, F), (0, F5)]) == [(0, "f", 5)]


def test_a_delete_and_an_add_of_one_identity_stay_in_order() -> None:
    assert left([(1, F)], [(0, F)]) == [(1, "f", 0), (0, "f", 0)]


def test_a_second_add_of_one_identity_is_damage() -> None:
    with pytest.raises(ValueError, match="f is added twice"):
        left([(0, F)], [(0, F)])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=14))
def test_a_merge_means_the_same_to_every_reader(steps: list[tuple[int, int]]) -> None:
    """Read in order, merged entries on top of anything give what the unmerged ones give."""
    for before in (set(), {"f0", "f1"}):
        legal, plain, merged = [], set(before), set(before)
        for kind, number in steps:
            file = DataFile(name=f"f{number}", partition="a")
            if kind == 0 and file.name in plain:
                continue  # an add of something that stands is damage, which has its own test
            plain = plain | {file.name} if kind == 0 else plain - {file.name}
            legal.append((kind, file))
        for kind, name, _ in left(legal):
            merged = merged | {name} if kind == 0 else merged - {name}
        assert merged == plain


@given(st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=4), max_size=5))
def test_a_manifest_that_a_merge_leaves_whole_may_stand_in_front(groups: list[list[tuple[int, int]]]) -> None:
    for before in (set(), {"f0", "f1"}):
        plain, standing = set(before), Standing()
        whole: list[dict[str, Any]] = []
        rest: list[dict[str, Any]] = []
        made: list[list[dict[str, Any]]] = []
        for steps in groups:
            made.append([])
            for kind, number in steps:
                if (kind == manifests.DELETE) == (f"f{number}" in plain):
                    plain ^= {f"f{number}"}
                    made[-1].append(DataFile(name=f"f{number}", partition="a").entry(kind))
            standing.feed(str(len(made)), [(row["_KIND"], merge.identity(row)) for row in made[-1]])
        unmixed = [
            meta(str(number), 500, added=len(rows))
            for number, rows in enumerate(made, start=1)
            if all(row["_KIND"] == manifests.ADD for row in rows)
        ]
        in_front = {one.name for one in standing.left_whole(unmixed)}
        for number, rows in enumerate(made, start=1):
            if str(number) in in_front:
                whole += rows
            else:
                rest += [row for index, row in enumerate(rows) if standing.keeps(str(number), index, row)]
        read = set(before)
        for row in (*whole, *rest):
            name = {row["_FILE"]["_FILE_NAME"]}
            read = read | name if row["_KIND"] == manifests.ADD else read - name
        assert read == plain
        assert len(standing) == len(whole) + len(rest)


# Statistics and shapes


def test_partition_statistics_are_of_values_and_not_of_bytes() -> None:
    types = [parse_type("INT"), parse_type("STRING")]
    rows = [encode_row(values, types) for values in ([2, "b"], [-1, "é"], [10, None], [10, None])]
    found = commit_files.partition_stats(rows, types)
    assert decode_row(found["_MIN_VALUES"], types) == (-1, "b")
    assert decode_row(found["_MAX_VALUES"], types) == (10, "é")
    assert found["_NULL_COUNTS"] == [0, 2]


def test_only_nulls_and_bytes_have_no_range() -> None:
    types = [parse_type("INT"), parse_type("BYTES")]
    found = commit_files.partition_stats([encode_row([None, b"x"], types)], types)
    assert decode_row(found["_MIN_VALUES"], types) == (None, None)
    assert found["_NULL_COUNTS"] == [1, 0]


def test_a_list_record_has_the_optional_fields_of_its_list_and_no_others() -> None:
    fields = [field["name"] for field in LIST_SCHEMA["fields"]]
    record = commit_files.list_record("m", 5, [*entries(2), *entries(1, kind=1)], STRING, fields)
    assert set(record) == set(fields)
    assert (record["_NUM_ADDED_FILES"], record["_NUM_DELETED_FILES"], record["_MAX_LEVEL"]) == (2, 1, 0)
    assert "_MIN_BUCKET" not in commit_files.list_record("m", 5, entries(1), STRING, fields[:7])


def test_a_new_file_mirrors_the_fields_of_the_old_ones_known_or_not() -> None:
    wide = copy.deepcopy(MANIFEST_SCHEMA)
    wide["fields"][5]["type"]["fields"].append({"name": "_UNHEARD_OF", "type": ["null", "string"], "default": None})
    rows = [row | {"_FILE": row["_FILE"] | {"_UNHEARD_OF": "kept"}} for row in entries(2)]
    shape = commit_files.joined(
        [commit_files.shape_of(as_avro(entries(1))), commit_files.shape_of(avro.write(wide, rows))]
    )
    written = manifests.read_entries(commit_files.write(shape, [*entries(1), *rows]))
    assert [row["_FILE"]["_UNHEARD_OF"] for row in written] == [None, "kept", "kept"]
    assert [merge.identity(row) for row in written[:1]] == [merge.identity(row) for row in entries(1)]


def test_a_field_without_a_place_is_an_error_and_never_dropped() -> None:
    shape = commit_files.shape_of(as_avro(entries(1)))
    with pytest.raises(ValueError, match="_NEW"):
        commit_files.write(shape, [entries(1)[0] | {"_NEW": 1}])


def test_orc_manifests_are_written_as_orc_with_the_same_fields() -> None:
    data = CONTAINERS["orc"](entries(3))
    shape = commit_files.shape_of(data)
    written = commit_files.write(shape, manifests.read_entries(data))
    assert written[:3] == b"ORC"
    assert manifests.read_entries(written) == manifests.read_entries(data)
    with pytest.raises(ValueError, match="side by side"):
        commit_files.joined([shape, commit_files.shape_of(as_avro(entries(1)))])


def test_creation_times_are_wall_clocks_and_survive_any_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        data = as_avro(entries(1))
        again = commit_files.write(commit_files.shape_of(data), manifests.read_entries(data))
    finally:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
    read = [
        manifests.read_columns(one, ("created",)).column("created").cast(pa.int64()).to_pylist()
        for one in (data, again)
    ]
    assert read == [[1_700_000_000_000]] * 2
