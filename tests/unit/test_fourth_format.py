"""A made-up fourth format cleans its tables, and a format touches no more of the service than the docs say."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import made_up_format
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, MemoryPlace, days_ago
from tests.builders.made_up_format import LEDGER, LedgerWriter

from lakesweep.formats import markers, registry
from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.iceberg.layout import IcebergLayout
from lakesweep.formats.paimon.layout import make_layout
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model import table as model
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TenantId

SERVICE = Path(__file__).resolve().parents[2] / "service" / "lakesweep"
TOUCHED = {"model/table.py", "formats/registry.py", "formats/markers.py"}
"""What adding a format touches besides its own package. `docs/add-a-format.md` says the same."""
POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=5), min_snapshots_to_keep=1)


def add_marker(monkeypatch, directory):
    """All that a real format would add to `markers.py`."""
    marker = markers.Marker(
        format=LEDGER,
        directories=(directory,),
        files=rf"{directory}/\d+\.list",
        parts=(f"{directory}/",),
        shown=f"in {directory}/",
    )
    monkeypatch.setattr(markers, "MARKERS", (*markers.MARKERS, marker))
    monkeypatch.setattr(markers, "SIGNS", markers.Signs(markers.MARKERS))


@pytest.fixture
def registered(monkeypatch):
    """The lines that a real format would add to the three files."""
    monkeypatch.setitem(FormatName._value2member_map_, LEDGER.value, LEDGER)
    monkeypatch.setitem(model.FACTS, LEDGER, made_up_format.FACTS)
    monkeypatch.setitem(registry.FORMATS, LEDGER, made_up_format.__name__)
    add_marker(monkeypatch, made_up_format.LOG)


@pytest.fixture
def place():
    place = MemoryPlace()
    writer = LedgerWriter(place=place)
    writer.commit("a.data", at=days_ago(40))
    writer.commit("a.data", "b.data", at=days_ago(30))
    writer.commit("b.data", "c.data", at=days_ago(20))
    for name in ("orphan.data", "notes.txt"):
        place.put(name, b"x", days_ago(40))
    place.put("young.data", b"x", NOW)
    return place


LEFT = {"b.data", "c.data", "young.data", "notes.txt", "_ledger/3.list"}


async def test_a_made_up_format_cleans_a_table_end_to_end(registered, place, tmp_path):
    bench = Bench(root=f"memory://{place.bucket}", clock=SetClock(NOW), scratch=tmp_path)
    home = Location.parse(place.location.raw.rpartition("/")[0])
    spec = DatasetSpec(tenant=TenantId("acme"), tenant_root=home, dataset="d", format=LEDGER, location=home)
    dataset = registry.open_format(spec, Tools(storage=bench.storage, clock=bench.clock, writer=bench.writer))
    (ref,) = await dataset.tables()
    planned = await bench.run(await dataset.open(ref), POLICY, execute=False)
    assert planned.outcome is Outcome.DRY_RUN, planned.reason
    assert "a.data" in place.names()
    run = await bench.run(await dataset.open(ref), POLICY)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == ("1", "2")
    assert {name for name in place.names() if not name.endswith(".head")} == LEFT


async def test_a_bare_location_is_recognised_by_its_marker(registered, place, tmp_path):
    bench = Bench(root=f"memory://{place.bucket}", clock=SetClock(NOW), scratch=tmp_path)
    table = await registry.open_location(place.location, None, Tools(storage=bench.storage, clock=bench.clock))
    assert table.ref.format is LEDGER
    assert len((await table.load()).snapshots) == 3


@pytest.mark.parametrize("name", [one.name for one in FormatName])
def test_a_format_touches_its_package_and_three_files(name):
    """Whoever names a format would have to be changed for a new one. The demo shows the three that there are."""
    names = re.compile(rf"FormatName\.{name}\b|formats[./]{name.lower()}\b")
    own = (SERVICE / "formats" / name.lower(), SERVICE / "cli" / "demo")
    files = [path for path in SERVICE.rglob("*.py") if not any(path.is_relative_to(package) for package in own)]
    assert len(files) > 100
    found = {path.relative_to(SERVICE).as_posix() for path in files if names.search(path.read_text())}
    beside = {"python/sources.py"}  # the public API takes tables of pyiceberg and deltalake
    # What is known of the places of former tables. Of a format that they do not name, they keep more.
    beside |= {"daemon/ghost_files.py", "formats/ghost_layout.py"}
    if name == "ICEBERG":
        beside.add("formats/delta/uniform.py")  # the seam that the import contract names
        beside.add("formats/ghost_metadata.py")  # Iceberg metadata beside any format's
        beside.add("daemon/ghosts.py")  # the name of a ghost of which only data files are left
    assert found - beside == TOUCHED


def test_the_page_on_formats_names_what_a_format_touches():
    page = (SERVICE.parents[1] / "docs" / "add-a-format.md").read_text()
    assert {path for path in TOUCHED if f"`{path}`" not in page} == set()


def test_every_format_has_facts_a_line_and_a_marker():
    assert set(model.FACTS) == set(registry.FORMATS) == {one.format for one in markers.MARKERS} == set(FormatName)


ROOT = "s3://lake/wh/db/t"
LAYOUTS = {
    FormatName.DELTA: DeltaLayout(prefix=f"{ROOT}/", partition_columns=(), iceberg_metadata=False),
    FormatName.ICEBERG: IcebergLayout(home=f"{ROOT}/", outposts=(), context=("db", "t"), plain_prefixes=()),
    FormatName.PAIMON: make_layout(Location.parse(ROOT), external_roots=(), data_directory=None, partition_levels=1),
}
METADATA = {
    FormatName.DELTA: "_delta_log/00000000000000000007.json",
    FormatName.ICEBERG: "metadata/00007-0.metadata.json",
    FormatName.PAIMON: "schema/schema-7",
}
"""A file of a table's metadata, for each format."""


def found_inside(format, path):
    kind = LAYOUTS[format].classify(f"{ROOT}/dt=1/{path}")
    assert kind.reserved
    return kind.kind


@pytest.mark.parametrize("format", FormatName)
def test_each_format_notices_a_table_of_any_other_inside_its_own(format):
    assert set(LAYOUTS) == set(METADATA) == set(FormatName)
    for other in set(FormatName) - {format}:
        # In a partition of a Paimon table nothing but its own buckets can hold candidates.
        assert found_inside(format, METADATA[other]) == ("other" if format is FormatName.PAIMON else "metadata"), other


@pytest.mark.parametrize("directory", ["_ledger", "ledger"])
@pytest.mark.parametrize("format", [FormatName.DELTA, FormatName.ICEBERG])
def test_a_marker_alone_makes_a_new_format_known_to_the_others(format, directory, monkeypatch):
    add_marker(monkeypatch, directory)
    assert found_inside(format, f"{directory}/7.list") == "metadata"
    assert directory in markers.SIGNS.directories
