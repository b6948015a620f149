"""What an unreferenced object is, by its name and place only."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.delta.layout import DeltaLayout

PREFIX = "s3://lake/t/"
VECTOR = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"


def _layout(**more) -> DeltaLayout:
    return DeltaLayout(**{"prefix": PREFIX, "partition_columns": (), "iceberg_metadata": False, **more})


def _verdict(relative: str, **more) -> str:
    kind = _layout(**more).classify(PREFIX + relative)
    return "reserved" if kind.reserved else "foreign" if kind.foreign else kind.kind


@pytest.mark.parametrize(
    ("relative", "verdict"),
    [
        ("part-0.snappy.parquet", "data"),
        ("k=1/j=2/part-0.parquet", "data"),
        ("Xq/part-0.parquet", "data"),
        ("k=e%3Af/abc def/#1.parquet", "data"),
        (VECTOR, "deletion_vector"),
        (f"ab/{VECTOR}", "deletion_vector"),
        ("_change_data/cdc-0.parquet", "change_data"),
        ("_change_data/k=1/cdc-0.parquet", "change_data"),
        ("metadata/x.parquet", "data"),
        ("notes.txt", "foreign"),
        ("part-0", "foreign"),
        ("deletion_vector_x.bin", "foreign"),
        ("metadata/v1.metadata.json", "foreign"),
        (".part-0.parquet.crc", "reserved"),
        ("_SUCCESS", "reserved"),
        ("_temporary/0/part-0.parquet", "reserved"),
        ("sub/_tmp/x.parquet", "reserved"),
        ("sub/.x.parquet", "reserved"),
        ("_spark_metadata/x.parquet", "reserved"),
        (".hoodie/x.parquet", "reserved"),
        ("_k=1/x.parquet", "reserved"),
        ("_change_data_of_2025/cdc-0.parquet", "reserved"),
        ("_delta_index/part-0.snappy.parquet.index.v1.parquet", "reserved"),
        ("k=1/_delta_index/part-0.snappy.parquet.index.v1.parquet", "reserved"),
        ("nested/_delta_log/00000000000000000000.json", "reserved"),
    ],
)
def test_hidden_names_stay_at_every_level_and_unknown_ones_are_foreign(relative, verdict):
    assert _verdict(relative) == verdict


def test_another_tables_log_is_distinguished_from_what_is_hidden():
    assert _layout().classify(f"{PREFIX}nested/_delta_log/{0:020d}.json").kind == "metadata"
    assert _layout().classify(f"{PREFIX}_backup/t/_delta_log/{0:020d}.json").kind == "hidden"


def test_a_partition_column_may_begin_like_a_hidden_name():
    assert _verdict("_k=1/x.parquet", partition_columns=("_k",)) == "data"
    assert _verdict("_k2=1/x.parquet", partition_columns=("_k",)) == "reserved"
    assert _verdict("_k=1/_tmp/x.parquet", partition_columns=("_k",)) == "reserved"


def test_a_partition_column_never_exposes_the_log():
    assert _verdict("_delta_log/00000000000000000000.json", partition_columns=("_delta_log", "_d")) == "foreign"
    assert _verdict("_delta_log/x.parquet", partition_columns=("_d",)) == "reserved"


def test_icebergs_metadata_is_hidden_while_uniform_is_on():
    assert _verdict("metadata/x.parquet", iceberg_metadata=True) == "reserved"
    assert _verdict("k=1/metadata/x.parquet", iceberg_metadata=True) == "reserved"


@pytest.mark.parametrize(
    "name",
    ["_last_checkpoint", "_last_vacuum_info", "_autostats/x.json", "0.json", "x.tmp", "_commits/x.json", ".tmp.x"],
)
def test_unknown_names_in_the_log_stay(name):
    assert _verdict(f"_delta_log/{name}") == "reserved"


def test_a_known_name_in_the_log_never_goes_by_its_age():
    """Only the walk can name it; without that it is foreign."""
    for name in ("00000000000000000000.json", "00000000000000000000.crc", "_sidecars/x.parquet"):
        assert _verdict(f"_delta_log/{name}") == "foreign"


def test_shallow_clones_keep_all_data():
    assert _verdict("part-0.parquet", keep_data=True) == "reserved"
    assert _verdict(VECTOR, keep_data=True) == "reserved"
    assert _verdict("_delta_log/00000000000000000000.json", keep_data=True) == "foreign"


def test_nothing_outside_the_root_is_ever_ours():
    assert _layout().classify("s3://lake/t10/part-0.parquet").reserved
    assert _layout().classify("s3://lake/t/").reserved


def _stage(name: str) -> int:
    return _layout().classify(f"{PREFIX}_delta_log/{name}").stage


def test_the_log_goes_first_ascending_and_commits_before_their_checkpoints():
    order = [
        _stage(f"{0:020d}.json"),
        _stage(f"{999:020d}.checkpoint.parquet"),
        _stage(f"{1000:020d}.json"),
        _stage(f"{1999:020d}.checkpoint.x.json"),
        _stage(f"{10**15:020d}.json"),
        _stage(f"{10**19:020d}.checkpoint.parquet"),
        _stage("_sidecars/x.parquet"),
        _layout().classify(f"{PREFIX}part-0.parquet").stage,
    ]
    assert order == sorted(set(order))
    assert order[0] >= -(2**31)
    assert order[-2] < 0 == order[-1]  # below 0 is what closes history
    assert _stage(f"{5:020d}.crc") == _stage(f"{0:020d}.{9:020d}.compacted.json") == _stage(f"{5:020d}.json")


def test_a_layout_travels_to_worker_processes():
    layout = _layout(partition_columns=("_k",))
    assert pickle.loads(pickle.dumps(layout)) == layout


_SEGMENTS = st.sampled_from(["a", "k=1", "metadata", "_x", ".x", "_k=1", "", "a_b", "a.b", "_change_data", "snapshot"])


@given(st.lists(_SEGMENTS, max_size=3), st.sampled_from(["p", "_p", ".p", "_k=p", ""]), st.booleans(), st.booleans())
def test_a_data_file_may_go_unless_a_segment_of_its_path_is_hidden(directories, name, uniform, keep_data):
    segments = [*directories, f"{name}.parquet"]
    hidden = any(
        (uniform and segment == "metadata")
        or (segment.startswith(("_", ".")) and not segment.startswith(("_change_data", "_k=")))
        for segment in segments
    )
    found = _verdict("/".join(segments), partition_columns=("k", "_k"), iceberg_metadata=uniform, keep_data=keep_data)
    kind = "change_data" if segments[0] == "_change_data" else "data"
    assert found == ("reserved" if hidden or keep_data else kind)
