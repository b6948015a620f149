"""The laws of taking back, over random histories of every format, with faults at any call on either way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from tests.builders.cycles import Bench
from tests.builders.faults import Faults, Killed
from tests.laws.every_format import every_format, fresh, laws, trashing
from tests.laws.worlds import Kind

from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.trash import TRASH_NAME
from lakesweep.storage import memory

LAWS = laws(12, soak=500)
_WRITTEN_ANEW = ("EARLIEST", "LATEST", "catalog.db")
"""Hints and a catalog, which an expiry changes in their place."""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def files(world) -> dict[str, bytes]:
    """Every file outside the trash with its bytes."""
    root = Location.parse(str(root_of(world)))
    if not root.is_local:
        objects = memory.bucket(root.authority).objects
        return {key: held.data for key, held in objects.items() if f"/{TRASH_NAME}/" not in key}
    found = [path for path in Path(root.path).rglob("*") if path.is_file() and TRASH_NAME not in path.parts]
    return {str(path): path.read_bytes() for path in found}


async def taken_back(world, store, faults: Faults) -> int:
    """Restore every run there was, the newest first. How many files came back."""
    bench = getattr(world, "bench", None)
    scratch = bench.scratch if bench else world.home / "scratch"
    ours = Bench(root=root_of(world), clock=store.database._clock, scratch=scratch, faults=faults, store=store)
    runs = [run for run in await store.list_runs(limit=200) if run["restored"] is None]
    results = [await ours.restore(run) for run in runs]
    return sum(one.restored.files for one in results)


def root_of(world) -> Path | str:
    """Paimon's world is in memory, the others are on the disk."""
    bench = getattr(world, "bench", None)
    return bench.root if bench else world.home / "lake"


@every_format
@LAWS
@given(
    data=st.data(),
    where=st.floats(0, 1),
    back_at=st.floats(0, 1),
    kill=st.booleans(),
    after=st.booleans(),
    disturbed=st.booleans(),
)
async def test_a_restore_gives_back_every_byte_whatever_fails_on_either_way(
    home: Path, kind: Kind, data, where: float, back_at: float, kill: bool, after: bool, disturbed: bool
) -> None:
    with trashing(), closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        if disturbed:
            counting = Faults()
            await world.cycle(counting, world.new_store())
            world.rewind()
        store, before = world.new_store(), files(world)
        try:
            at = int(where * (len(counting.calls) - 1)) if disturbed else None
            await world.cycle(Faults(at=at, kill=kill, after=after), store)
        except* (Killed, LakesweepError):
            note(f"the run is gone: call {at}")
        try:
            await taken_back(world, store, Faults(at=int(back_at * 60), kill=kill, after=after))
        except* (Killed, LakesweepError):
            note("the restore is gone")
        await taken_back(world, store, Faults())
        now = files(world)
        for name, content in before.items():
            assert name in now, f"{name} is lost"
            assert now[name] == content or name.rpartition("/")[2] in _WRITTEN_ANEW, f"{name} has other bytes"
        assert await taken_back(world, store, Faults()) == 0
        assert files(world) == now
