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
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model import table as model
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TenantId

SERVICE = Path(__file__).resolve().parents[2] / "service" / "lakesweep"
TOUCHED = {"model/table.py", "formats/registry.py", "formats/markers.py"}
"""What adding a format touches besides its own package. `docs/add-a-format.md` says the same."""
POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=5), min_snapshots_to_keep=1)


@pytest.fixture
def registered(monkeypatch):
    """The lines that a real format would add to the three files."""
    monkeypatch.setitem(FormatName._value2member_map_, LEDGER.value, LEDGER)
    monkeypatch.setitem(model.FACTS, LEDGER, made_up_format.FACTS)
    monkeypatch.setitem(registry.FORMATS, LEDGER, made_up_format.__name__)
    marker = markers.Marker(format=LEDGER, directories=(made_up_format.LOG,), shown=f"in {made_up_format.LOG}/")
    monkeypatch.setattr(markers, "MARKERS", (*markers.MARKERS, marker))


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
    dataset = registry.open_format(spec, bench.storage, bench.clock, bench.writer)
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
    table = await registry.open_location(place.location, None, bench.storage, bench.clock)
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
    beside = {"formats/delta/uniform.py"} if name == "ICEBERG" else set()  # the seam that the import contract names
    assert found - beside == TOUCHED


def test_the_page_on_formats_names_what_a_format_touches():
    page = (SERVICE.parents[1] / "docs" / "add-a-format.md").read_text()
    assert {path for path in TOUCHED if f"`{path}`" not in page} == set()


def test_every_format_has_facts_a_line_and_a_marker():
    assert set(model.FACTS) == set(registry.FORMATS) == {one.format for one in markers.MARKERS} == set(FormatName)
