"""An Iceberg table in the place of a Delta table goes on while we clean: what it commits meanwhile counts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from tests.builders.delta_neighbours import ROWS, Shared
from tests.builders.iceberg import SCHEMA

from lakesweep.formats.delta.table import DeltaTable
from lakesweep.formats.delta.uniform import UniformMetadata
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.ports.storage import Storage


class _Raced(DeltaTable):
    """Something happens between the plan and the first batch."""

    happens: Callable[[], object] = int

    async def head(self) -> str:
        self.happens()
        self.happens = int
        return await super().head()


@pytest.mark.parametrize("begins", [True, False])
async def test_what_is_committed_to_iceberg_after_the_plan_is_spared(tmp_path, begins):
    """As a migration in place does it: the log stands still, and another table takes the files over."""
    shared = Shared(tmp_path)
    (both,) = [path for path in shared.root.glob("*.parquet") if path.name != "part-orphan.parquet"]
    write_deltalake(str(shared.root), ROWS, mode="overwrite")
    ice = shared.ice
    if begins:
        shutil.rmtree(shared.root / "metadata")
        shutil.rmtree(shared.root / "data")
        ice = shared.lake.catalog.create_table("db.migrated", SCHEMA, location=f"file://{shared.root}/")
        shutil.move(shared.root / "metadata", tmp_path / "not yet")

    def happens() -> None:
        if begins:
            shutil.move(tmp_path / "not yet", shared.root / "metadata")
        ice.add_files([f"file://{both}"])

    bench = shared.bench
    table = _Raced((await shared.open(bench)).ref, Location.parse(str(shared.root)), bench.storage, bench.clock)
    table.happens = happens
    run = await bench.run(table, CleanupPolicy())
    assert run.outcome is Outcome.DONE, run.reason
    assert both.exists()
    assert not (shared.root / "part-orphan.parquet").exists()


class _Overtaken:
    """Storage in which something happens when a file of this kind is about to be read."""

    def __init__(self, storage: Storage, suffix: str, happens: Callable[[], object]) -> None:
        self._storage, self._suffix, self._happens = storage, suffix, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def read(self, place: Location, limit: int | None = None) -> bytes:
        if place.raw.endswith(self._suffix):
            self._happens()
        return await self._storage.read(place, limit)


@pytest.mark.parametrize("suffix", [".metadata.json", ".avro"])
@pytest.mark.parametrize("commits", [1, 1000])
async def test_files_removed_by_an_iceberg_commit_are_found_in_its_metadata(tmp_path, suffix, commits):
    shared = Shared(tmp_path)
    storage, root = shared.bench.storage, Location.parse(str(shared.root))
    named = await UniformMetadata(storage, root).named()
    left = list(range(commits))

    def rewrite() -> None:
        """All manifest lists are written anew, and the old ones and their metadata are gone."""
        if not left:
            return
        *_, newest = metadata = shared.iceberg("*.metadata.json")
        document = json.loads(newest.read_text())
        for snapshot in document["snapshots"]:
            old = Path(snapshot["manifest-list"].removeprefix("file://"))
            snapshot["manifest-list"] = f"file://{old.rename(old.with_name(f'{left[0]}{old.name}'))}"
        for path in metadata:
            path.unlink()
        newest.with_name(f"{left.pop(0) + 100:05d}-aaaaaaaa-0000.metadata.json").write_text(json.dumps(document))

    reading = UniformMetadata(_Overtaken(storage, suffix, rewrite), root).named()
    if commits == 1:
        assert await reading == named
    else:
        with pytest.raises(Unreadable, match="faster"):
            await reading
