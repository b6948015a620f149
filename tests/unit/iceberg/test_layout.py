"""What an unreferenced object may be, by its name and place alone; and which places a table owns."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders.iceberg_metadata import MetadataTable
from tests.laws import examples

from lakesweep.formats.iceberg import layout, metadata
from lakesweep.formats.iceberg.layout import IcebergLayout
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy

HOME = "s3://lake/wh/db/t"
TENANT = Location.parse("s3://lake/wh/")


def parsed(*fields: str, location: str = HOME, **properties: str) -> metadata.TableMetadata:
    table = MetadataTable(location=location, partition_fields=fields)
    table.properties = {name.replace("_", "."): value for name, value in properties.items()}
    return metadata.parse(f"{location}/metadata/v1.metadata.json", json.dumps(table.document()).encode())


def layout_for(*fields: str, **properties: str) -> IcebergLayout:
    found = parsed(*fields, **properties)
    return layout.layout_of(found, layout.roots_of(found, TENANT)[0])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("data/00000-0-abc.parquet", "data"),
        ("stray.parquet", "data"),  # testAllValidFilesAreKept: strays at root, partition, nested, unknown places
        ("data/day=1/x.orc", "data"),
        ("unknown/deep/er/x.avro", "data"),
        ("data/0101/0110/1001/10010110/x.parquet", "data"),
        ("data/00000-deletes.parquet", "deletes"),
        ("data/00000-deletes.puffin", "deletes"),
        ("metadata/7d-m0.avro", "manifest"),
        ("metadata/7d-m12.avro", "manifest"),
        ("metadata/snap-12-1-7d.avro", "manifest_list"),
        ("metadata/20240101_000000-7d.stats", "statistics"),
        ("data/x.stats", "statistics"),
        ("metadata/y.puffin", "statistics"),
        ("metadata/partition-stats-1-7d.parquet", "statistics"),
        ("metadata/00001-7d.metadata.json", "metadata"),
        ("metadata/v1.metadata.json", "metadata"),
        ("metadata/v1.gz.metadata.json", "metadata"),
        ("metadata/v1.metadata.json.gz", "metadata"),
        ("nested/metadata/v1.metadata.json", "metadata"),
    ],
)
def test_names_that_iceberg_writes_may_go(name: str, kind: str):
    found = layout_for().classify(f"{HOME}/{name}")
    assert (found.kind, found.reserved, found.foreign) == (kind, False, False)


@pytest.mark.parametrize(
    "name", ["README.md", "data/part.csv", "data/000000_0", "metadata/", "data/x.parquet/", "x.PARQUET", "y.json"]
)
def test_names_that_no_iceberg_writer_uses_are_foreign(name: str):
    assert layout_for().classify(f"{HOME}/{name}").foreign


@pytest.mark.parametrize(
    "name",
    [
        "_temporary/0/x.parquet",
        ".hive-staging/x.parquet",
        "data/_x.parquet",
        "data/.x.parquet.crc",
        "data/_c2_trunc/file.parquet",  # testHiddenPathsStartingWithPartitionNamesAreIgnored
        "data/_other=1/x.parquet",
        "_SUCCESS",
        "metadata/version-hint.text",
    ],
)
def test_hidden_names_and_the_version_hint_are_reserved(name: str):
    assert layout_for("_c2_trunc").classify(f"{HOME}/{name}").reserved


@pytest.mark.parametrize("name", ["data/_c2_trunc=AA/x.parquet", "data/.day=1/_c2_trunc=B/x.parquet"])
def test_partition_fields_that_look_hidden_are_not(name: str):  # testHiddenPartitionPaths
    assert layout_for("_c2_trunc", ".day").classify(f"{HOME}/{name}").kind == "data"


def test_old_partition_specs_count_too():  # testHiddenPartitionPathsWithPartitionEvolution
    table = MetadataTable(location=HOME, partition_fields=("_new",))
    document = table.document()
    document["partition-specs"].append({"spec-id": 1, "fields": [{"name": "_old", "source-id": 1, "field-id": 1001}]})
    found = metadata.parse("s3://lake/x", json.dumps(document).encode())
    places = layout.layout_of(found, (Location.parse(HOME),))
    assert places.classify(f"{HOME}/data/_old=1/x.parquet").kind == "data"
    assert places.classify(f"{HOME}/data/_new=1/x.parquet").kind == "data"


def test_a_log_of_another_format_is_reserved_and_shown_as_metadata():
    for name in ("_delta_log/00000000000000000000.json", "sub/.hoodie/1.commit"):
        found = layout_for().classify(f"{HOME}/{name}")
        assert (found.kind, found.reserved) == ("metadata", True)
    assert layout_for().classify(f"{HOME}/_old/_delta_log/0.json").kind == "hidden"


def test_a_sibling_whose_name_begins_alike_is_not_ours():
    assert layout_for().classify(f"{HOME}2/data/x.parquet").foreign


def test_doubled_slashes_do_not_hide_or_show_anything():
    assert layout_for().classify(f"{HOME}//data//x.parquet").kind == "data"
    assert layout_for().classify(f"{HOME}//data//_x/y.parquet").reserved


def test_data_goes_before_manifests_and_metadata_goes_last():
    names = ["data/x.parquet", "metadata/x-m0.avro", "metadata/snap-1.avro", "metadata/1.metadata.json"]
    stages = [layout_for().classify(f"{HOME}/{name}").stage for name in names]
    assert stages == sorted(set(stages))


_PIECES = ["a", "_", ".", "_p=1", "-deletes.", "partition-stats-", "snapshot", "x.parquet", "/", "//", "snap-", ".avro"]


@settings(deadline=None, max_examples=examples(100, soak=3000))
@given(st.lists(st.sampled_from(_PIECES), max_size=6).map("".join), st.sampled_from(["", ".parquet", "x.parquet"]))
@example("data/_temporary/x", ".parquet")
@example("_x/a", ".parquet")
@example("data/.x", ".parquet")
@example("partition-stats-", "x.parquet")
@example("a-deletes.", "x.parquet")
def test_the_quick_answer_is_that_of_the_rules(text: str, end: str):
    found = layout_for("_p")
    assert found.classify(f"{HOME}/{text}{end}") == found._kind(layout._segments(text + end))


def test_the_layout_travels_to_other_processes():
    found = layout_for("_x")
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.match_by is MatchBy.ADDRESS


def roots(**properties: str) -> list[str]:
    return [root.raw for root in layout.roots_of(parsed(**properties), TENANT)[0]]


def test_the_location_alone_is_a_root_by_default():
    assert roots() == ["s3://lake/wh/db/t/"]


def test_paths_outside_the_location_are_roots_of_their_own():
    found = roots(write_data_path="s3a://lake/wh/objects", write_metadata_path="s3://lake/wh/meta/")
    assert sorted(found) == ["s3://lake/wh/db/t/", "s3://lake/wh/meta/", "s3://lake/wh/objects/"]


def test_no_root_lies_inside_another():
    assert roots(write_data_path=f"{HOME}/elsewhere") == ["s3://lake/wh/db/t/"]
    assert roots(write_data_path="s3://lake/wh/db") == ["s3://lake/wh/db/"]


@pytest.mark.parametrize("place", ["s3://other/place", "s3://lake/whale", "relative", "hdfs://nn/x"])
def test_places_outside_the_tenants_root_are_left_out(place: str):
    found, left_out = layout.roots_of(parsed(write_data_path=place), TENANT)
    assert [root.raw for root in found] == ["s3://lake/wh/db/t/"]
    assert left_out == (place,)


SHARED = {"write_data_path": "s3://lake/wh/shared"}
OWN = {"write_data_path": "s3://lake/wh/elsewhere/t"}


@pytest.mark.parametrize(
    "name",
    [
        "0101/0110/1001/10010110/db/t/day=1/x.parquet",
        "5f3a9c21/db/t/day=1/x.parquet",
        "db/t/x.parquet",
    ],
)
def test_below_a_shared_path_our_own_places_count(name: str):
    assert layout_for(**SHARED).classify(f"s3://lake/wh/shared/{name}").kind == "data"


@pytest.mark.parametrize(
    "name",
    [
        "x.parquet",
        "day=1/x.parquet",
        "0101/0110/1001/10010110/x.parquet",
        "0101/0110/1001/10010110-x.parquet",
        "0101/0110/1001/10010110/day=1/x.parquet",
    ],
)
def test_what_does_not_name_a_table_is_ours_only_in_a_path_that_does(name: str):
    assert layout_for(**OWN).classify(f"s3://lake/wh/elsewhere/t/{name}").kind == "data"
    for shared in ("shared", "t_archive", "t-archive", "not-t"):
        assert layout_for(write_data_path=f"s3://lake/wh/{shared}").classify(f"s3://lake/wh/{shared}/{name}").foreign


@pytest.mark.parametrize(
    ("location", "shared"),
    [
        ("s3://lake/wh/db/lake", "s3://lake/wh/shared"),
        ("s3://lake/wh/events/db/events", "s3://lake/wh/events/shared"),
        ("s3://other/wh/db/lake", "s3://lake/wh/shared"),
    ],
)
def test_a_bucket_or_a_directory_above_both_does_not_name_a_table(location: str, shared: str):
    found = parsed(location=location, write_data_path=shared)
    places = layout.layout_of(found, map(Location.parse, (location, shared)))
    assert places.classify(f"{shared}/x.parquet").foreign
    assert places.classify(f"{shared}/{'/'.join(location.split('/')[-2:])}/x.parquet").kind == "data"


def test_a_table_without_a_name_of_its_own_has_none_in_a_shared_path():
    """A whole bucket is its location."""
    found = parsed(location="s3://whole", **SHARED)
    nameless = layout.layout_of(found, map(Location.parse, ("s3://whole", "s3://lake/wh/shared")))
    assert nameless.classify("s3://lake/wh/shared/x.parquet").foreign


@pytest.mark.parametrize(
    "name",
    [
        "0101/0110/1001/10010110/db/other/x.parquet",
        "db/other/x.parquet",
        "other/x.parquet",
        "20240101/x.parquet",
        "0101/x.parquet",
        "10010110/day=1/x.parquet",
    ],
)
def test_below_a_shared_path_other_tables_places_are_foreign(name: str):
    for shared in ("shared", "elsewhere/t"):
        assert layout_for(write_data_path=f"s3://lake/wh/{shared}").classify(f"s3://lake/wh/{shared}/{name}").foreign


@pytest.mark.parametrize("name", ["_delta_log/0.json", ".hoodie/x.commit", "metadata/v1.metadata.json"])
def test_the_log_of_a_table_that_lives_in_a_shared_path_is_shown(name: str):
    kind = layout_for(**SHARED).classify(f"s3://lake/wh/shared/{name}")
    assert (kind.kind, kind.reserved) == ("metadata", True)
    assert layout_for(**SHARED).classify(f"s3://lake/wh/shared/other/{name}").foreign


def test_our_own_metadata_path_inside_a_shared_path_is_ours():
    found = layout_for(**SHARED, write_metadata_path="s3://lake/wh/shared/metadata")
    kind = found.classify("s3://lake/wh/shared/metadata/v1.metadata.json")
    assert (kind.kind, kind.reserved) == ("metadata", False)


def test_a_data_path_around_the_location_does_not_make_the_neighbours_ours():
    found = layout_for(write_data_path="s3://lake/wh")
    assert found.classify("s3://lake/wh/db/t/data/x.parquet").kind == "data"
    assert found.classify("s3://lake/wh/db/neighbour/data/x.parquet").foreign
    assert found.classify("s3://lake/wh/db/neighbour/metadata/v1.metadata.json").foreign
