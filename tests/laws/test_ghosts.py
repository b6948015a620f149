"""The laws of ghosts, over random lakes, with a fault or the end of the process at any call on either way.

What is claimed, or referred to by any known metadata, stays byte for byte. An approved plan removes exactly its files.
A restore gives all of them back.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from tests.builders.faults import Faults, Killed
from tests.builders.small_lake import LONG_AGO, LocalLake, small_table, write_local
from tests.laws import examples

from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import LakesweepError
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings
from lakesweep.state.memory import MemoryStateStore
from lakesweep.state.schema import leases
from lakesweep.storage import registry as storages

LAWS = settings(
    deadline=None,
    max_examples=examples(2, soak=100),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
)
ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")


@dataclass(frozen=True, kw_only=True)
class Story:
    """What lies beside the known tables, and who uses it."""

    ghosts: tuple[str, ...]
    """Delta tables that nobody registered, by name."""
    left: tuple[str, ...]
    """Directories in which only data files are left."""
    borrowed: str | None
    """A ghost of which a known table uses a file."""
    notes: str | None
    """A ghost that holds a name which no format writes."""
    trash: bool


NAMES = st.sampled_from(["a", "b", "deep/er/c", "x%20y", "é", "data"])
STORIES = st.builds(
    Story,
    ghosts=st.lists(NAMES, unique=True, max_size=3).map(tuple),
    left=st.lists(st.sampled_from(["l", "m/n"]), unique=True, max_size=1).map(tuple),
    borrowed=st.one_of(st.none(), NAMES),
    notes=st.one_of(st.none(), NAMES),
    trash=st.booleans(),
)


def aged(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))


def build(home: Path, story: Story) -> LocalLake:
    lake = LocalLake(root=home)
    lake.add("acme", ["kept", "clone"])
    old = home / "lake" / "acme" / "old"
    for number, name in enumerate(story.ghosts):
        write_local(old / name / "t", small_table(f"ghost {name}", orphans=1, begin=f"g{number}"))
    for name in story.left:
        aged(old / name / "data" / "f.parquet", name.encode())
    if story.borrowed in story.ghosts:
        name = f"g{story.ghosts.index(story.borrowed)}-00001-live.parquet"
        path = f"file://{old / story.borrowed / 't' / name}"
        add = {"path": path, "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True}
        log = lake.directory("acme/d/clone") / "_delta_log" / f"{1:020}.json"
        aged(log, json.dumps({"add": add}).encode() + b"\n")
    if story.notes in story.ghosts:
        aged(old / story.notes / "t" / "notes.txt", b"mine")
    return lake


def content(lake: LocalLake) -> dict[str, bytes]:
    found = [path for path in (lake.root / "lake").rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found if ".lakesweep-trash" not in path.parts}


@asynccontextmanager
async def process(lake: LocalLake, story: Story, store: list[MemoryStateStore], faults: Faults) -> AsyncIterator[App]:
    """A process that knows what those before it have stored. Their leases have ended."""
    rules = {"dry_run": True, "batch_size": 2, "deletion": "trash" if story.trash else "delete"}
    values = lake.settings(
        orphan_cleanup=rules, state={"url": "memory://"}, storage={"local": {"age_by": "modification"}}
    )
    kinds = ("open_storage", "open_deleter", "open_mover")
    real = {kind: getattr(storages, kind) for kind in kinds}
    with mock.patch.multiple(
        storages, **{kind: lambda *a, of=real[kind], **k: faults.storage(of(*a, **k)) for kind in kinds}
    ):
        async with App.open(Settings.model_validate(values)) as app:
            store[:] = store or [app.state]
            await store[0].database.run(lambda connection: connection.execute(sa.delete(leases)))
            app.state = faults.state(store[0])
            app._open_trails()
            yield app


async def approve_all(app: App) -> dict[str, list[str]]:
    """By run: the paths of its plan."""
    plans = {}
    works = app.ghost_search("acme")
    for one in await app.ghosts("acme"):
        run = await app.plan(works.work(one))
        if run.plan is None:  # one that went whole, but for a name that no format writes
            place = Path(one.location.removeprefix("file://"))
            assert [path.name for path in place.rglob("*") if path.is_file()] == ["notes.txt"], run.reason
            continue
        if run.outcome is Outcome.REFUSED:  # else the approval of before still holds
            await app.approve(run.id, by="ada", digest=run.plan.digest)
        plans[run.table.label] = [row.path async for rows in app.candidates(run) for row in rows]
    return plans


async def execute_all(app: App) -> list[str]:
    """The labels of those that went."""
    runs = [await app.run(work, execute=True, trigger=ADA) for work in await app.ghost_search("acme").approved()]
    return [run.table.label for run in runs if run.outcome is Outcome.DONE]


async def restore_all(app: App) -> None:
    for run in await app.state.list_runs(limit=100):
        if run["restored"] is None and run["trash"]:
            await app.restoring(run["run_id"], [], ADA).execute(new_run_id())


@LAWS
@given(story=STORIES, where=st.floats(0, 1), back_at=st.floats(0, 1), kill=st.booleans(), after=st.booleans())
@example(
    story=Story(ghosts=("a", "b"), left=("l",), borrowed="b", notes="a", trash=True),
    where=0.9, back_at=0.5, kill=True, after=True,
)  # fmt: skip
async def test_ghosts_go_as_approved_come_back_whole_and_nothing_else_goes(
    story: Story, where: float, back_at: float, kill: bool, after: bool
) -> None:
    with tempfile.TemporaryDirectory() as home:
        lake, store, counting = build(Path(home), story), [], Faults()
        before = content(lake)
        async with process(lake, story, store, Faults()) as app:
            plans = await approve_all(app)
        assert content(lake) == before
        planned = {path.removeprefix("file://") for paths in plans.values() for path in paths}
        free = {name for name in story.ghosts if name != story.borrowed}
        assert len(plans) == len(free) + len(story.left)
        mine = {path for path in before if not path.endswith("notes.txt") and is_free(path, lake, free, story)}
        assert planned == mine

        async with process(lake, story, store, Faults(at=int(where * 400), kill=kill, after=after)) as app:
            try:
                await execute_all(app)
            except* (Killed, LakesweepError):
                note("the run is gone")
        async with process(lake, story, store, Faults()) as app:
            check_kept(lake, before, planned)
            again = await approve_all(app)  # what was cut off is a ghost again
            assert {path.removeprefix("file://") for paths in again.values() for path in paths} <= planned
            await execute_all(app)
        check_kept(lake, before, planned)
        assert not planned & content(lake).keys(), "an approved plan leaves nothing of its own"
        if story.trash:
            async with process(lake, story, store, Faults(at=int(back_at * 200), kill=kill, after=after)) as app:
                try:
                    await restore_all(app)
                except* (Killed, LakesweepError):
                    note("the restore is gone")
            async with process(lake, story, store, counting) as app:
                await restore_all(app)
            assert content(lake) == before


def is_free(path: str, lake: LocalLake, free: set[str], story: Story) -> bool:
    old = lake.root / "lake" / "acme" / "old"
    return any(path.startswith(f"{old / name}/t/") for name in free) or any(
        path.startswith(f"{old / name}/data/") for name in story.left
    )


def check_kept(lake: LocalLake, before: dict[str, bytes], planned: set[str]) -> None:
    now = content(lake)
    for path, data in before.items():
        if path not in planned:
            assert now.get(path) == data, f"{path} is lost"
