"""Links and other odd files in a table's metadata directories: listings leave them out, readers do not."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.builders import paimon
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, open_table, sweep
from tests.builders.iceberg_flow import clean, directory
from tests.builders.paimon_model import ModelTable
from tests.builders.stores import LocalStorage

from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.errors import Indeterminate
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.storage.memory import bucket, forget


def move_behind_a_link(path: Path, elsewhere: Path) -> None:
    elsewhere.mkdir(parents=True, exist_ok=True)
    real = elsewhere / path.name
    shutil.move(path, real)
    path.symlink_to(real)


# Delta


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _writer(place: LocalPlace) -> DeltaWriter:
    """The newest commit adds a file that looks like an orphan to whoever does not see it."""
    writer = DeltaWriter(place)
    writer.create(days_ago(40))
    writer.add("old.parquet", at=days_ago(40))
    writer.add("newest.parquet", at=days_ago(39))
    return writer


@pytest.mark.parametrize("mode", list(VacuumMode))
async def test_a_commit_that_is_a_link_stops_the_table(place, mode):
    writer = _writer(place)
    writer.remove("old.parquet", at=days_ago(20))
    writer.add("old.parquet", at=days_ago(1), write=False)
    move_behind_a_link(place.path / "_delta_log" / f"{writer.version:020d}.json", place.path.parent / "elsewhere")
    swept = await sweep(place, execute=True, options=DeltaOptions(vacuum_mode=mode))
    assert swept.run.refusal.code == "indeterminate"
    assert f"{writer.version:020d}.json" in swept.run.reason
    assert "link" in swept.run.reason
    assert {"old.parquet", "newest.parquet"} <= place.names()


@pytest.mark.parametrize("kind", ["checkpoint", "sidecars", "pipe"])
async def test_anything_in_the_log_that_is_not_a_regular_file_stops_the_table(place, kind):
    writer = _writer(place)
    log = place.path / "_delta_log"
    place.put("orphan.parquet", b"", days_ago(40))
    if kind == "pipe":
        os.mkfifo(log / "unknown")
    else:
        writer.features = ("v2Checkpoint",)
        writer.commit([{"protocol": writer.protocol()}], days_ago(39))
        (name,) = writer.checkpoint("v2-parquet", at=days_ago(1))
        move_behind_a_link(log / ("_sidecars" if kind == "sidecars" else name), place.path.parent / "elsewhere")
    swept = await sweep(place, execute=True)
    assert swept.run.refusal.code == "indeterminate"
    assert "orphan.parquet" in place.names()


class _HidesTheNewest(LocalStorage):
    """A store whose listings do not show what can be read."""

    def __init__(self, hidden: str) -> None:
        super().__init__()
        self._hidden = hidden

    async def list(self, root: Location) -> Any:
        async for page in super().list(root):
            yield page.filter([not path.endswith(self._hidden) for path in page.column("path").to_pylist()])


async def test_a_next_commit_that_can_be_read_but_is_not_listed_stops_the_table(place):
    writer = _writer(place)
    hidden = f"{writer.version:020d}.json"
    with pytest.raises(Indeterminate, match=f"{hidden} can be read but is not listed"):
        await open_table(writer, _HidesTheNewest(hidden), SetClock(NOW)).load()


async def test_a_commit_that_came_after_the_listing_is_listed_again(place):
    writer = _writer(place)

    class Overtaken(LocalStorage):
        async def list(self, root: Location) -> Any:
            async for page in super().list(root):
                yield page
            if writer.version == 2:
                writer.add("later.parquet")

    state = await open_table(writer, Overtaken(), SetClock(NOW)).load()
    assert state.native.version == 3


# Iceberg


async def test_metadata_of_iceberg_that_is_a_link_stops_the_table(lake, bench):
    """Another catalog's newest state, which the guard against other histories would have found in the listing."""
    table = lake.create()
    table.history([1, 2, 3])
    metadata = directory(table) / "metadata"
    newest = max(metadata.glob("*.metadata.json"))
    hidden = metadata / "00099-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee.metadata.json"
    shutil.copy(newest, hidden)
    move_behind_a_link(hidden, lake.root / "elsewhere")
    orphan = directory(table) / "data" / "00000-0-orphan.parquet"
    orphan.write_bytes(b"orphan")
    run = await clean(bench, table)
    assert run.refusal.code == "indeterminate"
    assert hidden.name in run.reason
    assert orphan.exists()


async def test_linked_iceberg_metadata_beside_a_delta_log_stops_the_table(place, tmp_path):
    _writer(place)
    named = place.path / "metadata" / "v1.metadata.json"
    named.parent.mkdir()
    named.write_text("{}")
    move_behind_a_link(named, tmp_path / "elsewhere")
    place.put("orphan.parquet", b"", days_ago(40))
    swept = await sweep(place, execute=True)
    assert swept.run.refusal.code == "indeterminate"
    assert "orphan.parquet" in place.names()


# Paimon


@pytest.fixture
def model(tmp_path):
    """A small table, made in memory and put on disk."""
    name = f"linked-{uuid.uuid4().hex}"
    table = ModelTable(bucket(name), "wh/db.db/t", NOW)
    for partition in ("a", "b", "c"):
        table.append(partition)
    root = tmp_path / "wh" / "db.db" / "t"
    for key, held in bucket(name).objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held.data)
    paimon.age(root)
    yield root
    forget(name)


def _bench(root: Path) -> Bench:
    home = root.parent.parent
    return paimon.bench(home, home.parent / "scratch")


@pytest.mark.parametrize("linked", ["snapshot/snapshot-3", "schema/schema-0", "manifest"])
async def test_metadata_of_paimon_that_is_a_link_stops_the_table(model, linked):
    """The newest snapshot, a schema, or a manifest: with snapshot 3 unseen its files look like orphans."""
    place = min((model / "manifest").iterdir()) if linked == "manifest" else model / linked
    move_behind_a_link(place, model.parent.parent / "elsewhere")
    before = paimon.files_of(model)
    run = await paimon.clean(model, _bench(model), paimon.everything_old())
    assert run.refusal.code == "indeterminate", run.reason
    assert place.name in run.reason
    assert paimon.files_of(model) == before


@pytest.mark.parametrize(
    "directory", ["tag/tag-kept", "consumer/consumer-c", "changelog/changelog-1", "branch/branch-b"]
)
async def test_whatever_protects_files_in_paimon_may_not_be_a_link(model, directory):
    (model / directory).parent.mkdir(exist_ok=True)
    real = model.parent.parent / "elsewhere"
    shutil.copy(model / "snapshot" / "snapshot-1", real)
    (model / directory).symlink_to(real)
    before = paimon.files_of(model)
    run = await paimon.clean(model, _bench(model), paimon.everything_old())
    assert run.refusal.code == "indeterminate", run.reason
    assert paimon.files_of(model) == before


async def test_a_next_snapshot_of_paimon_that_is_not_listed_stops_the_table(model):
    class Bare(Bench):
        @property
        def storage(self) -> Any:
            return _HidesTheNewest("/snapshot-3")

    home = model.parent.parent
    (model / "snapshot" / "LATEST").unlink(missing_ok=True)
    on = Bare(root=home, clock=_bench(model).clock, scratch=home.parent / "scratch")
    before = paimon.files_of(model)
    run = await paimon.clean(model, on, paimon.everything_old())
    assert run.outcome is Outcome.FAILED
    assert "snapshot-3" in run.reason
    assert paimon.files_of(model) == before
