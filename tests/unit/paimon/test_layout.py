"""What a stored object is, by name and place, and in which order objects go."""

from __future__ import annotations

import pickle

import pytest

from lakesweep.formats.paimon.layout import PaimonLayout, make_layout
from lakesweep.model.location import Location
from lakesweep.ports.table import FileKind, MatchBy

ROOT = Location.parse("s3://b/wh/d.db/t")


def layout(levels: int = 1, directory: str | None = None, prefixes: tuple[str, ...] = ()) -> PaimonLayout:
    return make_layout(
        ROOT,
        external_roots=(Location.parse("s3://b/ext/"),),
        data_directory=directory,
        partition_levels=levels,
        data_prefixes=prefixes,
    )


def found(path: str, of: PaimonLayout | None = None) -> str:
    kind = (of or layout()).classify(f"s3://b/{path}" if path.startswith("ext/") else f"{ROOT.raw}/{path}")
    return "reserved" if kind.reserved else "foreign" if kind.foreign else kind.kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("manifest/manifest-1-0", "manifest"),
        ("manifest/manifest-1-changelog-0", "manifest"),
        ("manifest/manifest-list-1-0", "manifest_list"),
        ("manifest/manifest-list-1-changelog", "manifest_list"),
        ("manifest/index-manifest-1", "index_manifest"),
        ("manifest/.x.tmp", "temporary"),
        ("manifest/.0f.writing", "temporary"),
        ("manifest/other", "foreign"),
        ("manifest/manifest-1-0.avro.sidecar", "manifest"),
        ("index/index-1-0", "index"),
        ("index/bitmap-global-index-1.index", "index"),
        ("index/other", "foreign"),
        ("statistics/stat-1-0", "statistics"),
        ("statistics/other", "foreign"),
        ("snapshot/snapshot-7", "snapshot"),
        ("snapshot/LATEST", "reserved"),
        ("snapshot/EARLIEST", "reserved"),
        ("snapshot/.snapshot-8.x.tmp", "temporary"),
        ("snapshot/snapshot-9x.tmp", "temporary"),
        ("snapshot/notes", "foreign"),
        ("changelog/changelog-7", "changelog"),
        ("changelog/LATEST", "reserved"),
        ("schema/schema-0", "reserved"),
        ("schema/anything", "reserved"),
        ("tag/tag-x", "reserved"),
        ("consumer/consumer-x", "reserved"),
        ("branch/branch-b/snapshot/snapshot-1", "reserved"),
        ("branch/branch-b/snapshot/.snapshot-9.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.tmp", "temporary"),
        ("branch/branch-b/c/changelog/.LATEST.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.tmp", "temporary"),
        ("branch/branch-b/tag/tag-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f.tmp", "reserved"),
        ("branch/branch-b/snapshot/mine.tmp", "reserved"),
        ("branch/branch-b/snapshot/LATEST", "reserved"),
        ("branch/x", "reserved"),
        ("metadata/v1.metadata.json", "reserved"),
        ("service/x", "reserved"),
        ("_SUCCESS", "reserved"),
        ("dt=1/bucket-0/data-1-0.orc", "data"),
        ("dt=1/bucket-0/data-1-0.orc.index", "data"),
        ("dt=1/bucket-0/data--u-user-s-1-w-0.avro", "data"),
        ("dt=1/bucket-postpone/data-1-0.avro", "data"),
        ("dt=1/bucket-0/changelog-1-0.orc", "changelog_data"),
        ("dt=1/bucket-0/index-1-0", "index"),
        ("dt=1/bucket-0/compacted-changelog-x$0-9.cc-orc", "changelog_data"),
        ("dt=1/bucket-0/.data-1.tmp", "temporary"),
        ("dt=1/bucket-0/x.managed.blob", "reserved"),
        ("dt=1/bucket-0/data-1.managed.blob", "reserved"),
        ("dt=1/bucket-0/part-1.parquet", "foreign"),
        ("dt=1/data-1-0.orc", "reserved"),
        ("bucket-0/data-1-0.orc", "reserved"),
        ("dt=1/bucket-x/data-1-0.orc", "reserved"),
        ("dt=1/hh=2/bucket-0/data-1-0.orc", "reserved"),
        ("plain/bucket-0/data-1-0.orc", "reserved"),
        ("dt=1/bucket-0/deeper/data-1-0.orc", "reserved"),
        ("backup/manifest/manifest-1-0", "reserved"),
        ("ext/dt=1/bucket-0/data-1-0.orc", "data"),
        ("ext/data-1-0.orc", "reserved"),
        ("ext/g.index", "index"),
    ],
)
def test_names_and_places_say_what_an_object_is(path: str, kind: str) -> None:
    assert found(path) == kind


@pytest.mark.parametrize("name", ["snapshot/snapshot-1", "schema/schema-0"])
def test_the_log_of_a_table_inside_a_partition_is_distinguished(name: str) -> None:
    for home in (f"{ROOT.raw}/dt=1", "s3://b/ext", "s3://b/ext/dt=1"):
        assert layout().classify(f"{home}/{name}") == FileKind(kind="metadata", reserved=True)
    assert layout().classify(f"{ROOT.raw}/dt=1/{name}x").kind == "other"


def test_data_begins_where_the_table_says() -> None:
    of = layout(directory="data")
    assert found("data/dt=1/bucket-0/data-1-0.orc", of) == "data"
    assert found("dt=1/bucket-0/data-1-0.orc", of) == "reserved"
    assert found("manifest/manifest-1-0", of) == "manifest"


def test_data_on_an_external_path_begins_where_the_table_says_or_said() -> None:
    of = layout(directory="data")
    assert found("ext/data/dt=1/bucket-0/data-1-0.orc", of) == "data"
    assert found("ext/dt=1/bucket-0/data-1-0.orc", of) == "data"
    assert found("ext/global-1.index", of) == "index"
    for path in ("ext/data/other.index", "ext/more/dt=1/bucket-0/data-1-0.orc", "ext/data/bucket-0/data-1-0.orc"):
        assert found(path, of) == "reserved"


def test_a_prefix_of_the_tables_own_is_known() -> None:
    assert found("dt=1/bucket-0/mine-1-0.orc") == "foreign"
    assert found("dt=1/bucket-0/mine-1-0.orc", layout(prefixes=("mine-",))) == "data"


def test_a_table_without_partitions_has_its_buckets_at_the_top() -> None:
    assert found("bucket-0/data-1-0.orc", layout(levels=0)) == "data"
    assert found("dt=1/bucket-0/data-1-0.orc", layout(levels=0)) == "reserved"


def test_snapshots_go_first_and_oldest_first_then_data_manifests_and_lists() -> None:
    order = [
        "snapshot/snapshot-9",
        "snapshot/snapshot-10",
        "changelog/changelog-100",
        f"snapshot/snapshot-{2**63 - 1}",
        "dt=1/bucket-0/data-1-0.orc",
        "manifest/manifest-1-0",
        "manifest/manifest-list-1-0",
    ]
    stages = [layout().classify(f"{ROOT.raw}/{path}").stage for path in order]
    assert stages == sorted(stages)
    assert len(set(stages)) == len(stages)
    assert layout().classify(f"{ROOT.raw}/snapshot/snapshot-{2**40}").stage < 2**31


def test_a_neighbour_whose_name_begins_alike_is_somewhere_else() -> None:
    assert layout().classify("s3://b/wh/d.db/t2/manifest/manifest-1-0").reserved


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("dt=1", True),
        ("dt=1/bucket-0", True),
        ("dt=1/bucket-postpone", True),
        ("bucket-0", False),
        ("dt=1/hh=2", False),
        ("manifest", False),
        ("branch/branch-b", False),
        ("plain/bucket-0", False),
        ("dt=1/bucket-0/deeper", False),
    ],
)
def test_only_partition_and_bucket_directories_are_ours_to_remove(path: str, ours: bool) -> None:
    assert layout().is_data_directory(f"{ROOT.raw}/{path}") is ours
    assert layout(directory="data").is_data_directory(f"{ROOT.raw}/data/{path}") is ours
    assert layout().is_data_directory(f"s3://b/ext/{path}") is ours
    assert layout(directory="data").is_data_directory(f"s3://b/ext/data/{path}") is ours
    assert layout(directory="data").is_data_directory(f"s3://b/ext/{path}") is ours


def test_layouts_travel_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(layout())) == layout()
    assert layout().match_by is MatchBy.NAME
