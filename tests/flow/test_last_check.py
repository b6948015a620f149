"""A writer takes an old file into its table again before any call of the sweep: whoever came in time keeps the file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, days_ago
from tests.builders.faults import Faults
from tests.builders.iceberg import Lake, later
from tests.builders.paimon_steps import Step, handle, world

from lakesweep.formats.delta.table import DeltaTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.references import References
from lakesweep.ports.table import TableView
from lakesweep.storage import memory

POLICY = CleanupPolicy(
    max_snapshot_age=timedelta(days=1), min_snapshots_to_keep=1, batch_size=2, max_concurrent_deletions=1
)
SWEEPING = "update_run"
"""The call of the state store with which a cycle goes from its expiry to its sweep."""


@dataclass(kw_only=True)
class Meanwhile(Faults):
    """Real adapters, and something that happens just before one of their calls, counted from the start of the sweep."""

    moment: int | None = None
    happens: Callable[[], object] = int
    moments: list[str] = field(default_factory=list)
    sweeping: bool = field(default=False)

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        super().hit(name, error, after=after)
        if after:
            self.sweeping = self.sweeping or name == SWEEPING
        elif self.sweeping:
            if len(self.moments) == self.moment:
                self.happens()
            self.moments.append(name)


class Counted:
    """A table whose own questions are moments too."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        return self._faults.wrap(self._inner, RuntimeError).__getattr__(name) if name == "head" else member

    async def load(self) -> TableView:
        view = await self._faults.wrap(self._inner, RuntimeError).load()
        kind, faults = type(view), self._faults

        class CountedView(kind):  # type: ignore[misc, valid-type]
            __slots__ = ()

            async def references(self, *arguments: Any) -> References:
                faults.hit("references", RuntimeError, after=False)
                found = await kind.references(self, *arguments)
                faults.hit("references", RuntimeError, after=True)
                return found

        object.__setattr__(view, "__class__", CountedView)
        return view


@dataclass(kw_only=True)
class Came:
    """What became of one cycle and of the writer."""

    moments: list[str]
    run: CleanupRun
    lost: set[str]


async def iceberg(home: Path, moment: int | None) -> Came:
    lake = Lake.make(home / "lake")
    table = lake.create()
    table.append(1)
    (old,) = [path for path in lake.files() if path.endswith(".parquet")]
    table.overwrite(2)
    faults = Meanwhile(moment=moment, happens=lambda: _if_there(old, lambda: table.refresh().add_files([old])))
    bench = Bench(root=home / "lake", clock=SetClock(later(days=10)), scratch=home / "scratch", faults=faults)
    opened = lake.format(storage=bench.storage, writer=bench.writer)
    run = await bench.run(Counted(await opened.open((await table.open()).ref), faults), POLICY)
    named = {task.file.file_path for task in table.refresh().scan().plan_files()}
    return Came(moments=faults.moments, run=run, lost=named - lake.files())


def _if_there(path: str, commit: Callable[[], object]) -> None:
    if Path(Location.parse(path).path).exists():
        commit()


async def delta(home: Path, moment: int | None, *, replaced: bool = False, set_back: bool = False) -> Came:
    place = MemoryPlace()
    writer = DeltaWriter(place)
    writer.create(days_ago(40))
    writer.add("old.parquet", "new.parquet", at=days_ago(40))
    writer.remove("old.parquet", at=days_ago(30))
    place.put("orphan.parquet", b"data", days_ago(40))

    def add_again() -> None:
        if "old.parquet" in place.names():
            writer.add("old.parquet", write=False)

    def convert() -> None:
        """Another table takes over the files that lie there, as CONVERT TO DELTA does."""
        nonlocal writer
        for name in writer.logged():
            place.delete(f"_delta_log/{name}")
        writer = DeltaWriter(place, table_id="another")
        writer.create()
        writer.add(*(name for name in place.names() if name.endswith(".parquet")), write=False)

    def take_back_the_newest() -> None:
        """And go on: another commit has its version."""
        if "old.parquet" in place.names():
            place.delete(f"_delta_log/{writer.version:020d}.json")
            writer.version -= 1
            writer.add("old.parquet", write=False)

    happens = convert if replaced else take_back_the_newest if set_back else add_again
    faults = Meanwhile(moment=moment, happens=happens)
    root: Any = f"memory://{place.bucket}/lake"
    bench = Bench(root=root, clock=SetClock(NOW), scratch=home / "scratch", faults=faults)
    ref = TableRef(tenant=TenantId("acme"), dataset="bronze", name="t", format=FormatName.DELTA)
    table = DeltaTable(ref, place.location, bench.storage, bench.clock)
    run = await bench.run(Counted(table, faults), POLICY)
    return Came(moments=faults.moments, run=run, lost={path for path, _ in writer.live} - place.names())


async def paimon(home: Path, moment: int | None, *, replaced: bool = False) -> Came:
    with world([Step("append", ("a",)), Step("overwrite", ("a",)), Step("append", ("b",))]) as (table, bench):
        table.stray("old", old=True)

        anew: dict[str, memory.Held] = {}

        def create_anew() -> None:
            table.recreate()
            table.append("a")
            anew.update(table.bucket.objects)

        faults = bench.faults = Meanwhile(moment=moment, happens=create_anew if replaced else table.restore)
        policy = CleanupPolicy(
            max_snapshot_age=timedelta(0), min_snapshots_to_keep=1, batch_size=2, max_concurrent_deletions=1
        )
        run = await bench.run(Counted(handle(table, bench), faults), policy)
        other = {key for key, held in anew.items() if table.bucket.objects.get(key) != held}
        return Came(moments=faults.moments, run=run, lost=table.lost() | other)


FORMATS = {"iceberg": iceberg, "delta": delta, "paimon": paimon}
assert FORMATS.keys() == set(FormatName), "a format without this check"
MOMENTS = {"iceberg": 40, "delta": 20, "paimon": 79}
"""At least so many are tried; 79 in all were tried by hand."""


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_file_taken_up_again_behind_the_journal_stays(tmp_path, kind):
    """When everything is written down and the deleter has been called, and before the last call of the look that it
    asks for: the latest moments but the request itself."""
    untouched = await FORMATS[kind](tmp_path / "untouched", None)
    assert untouched.run.outcome is Outcome.DONE, untouched.run.reason
    called = [number for number, name in enumerate(untouched.moments) if name == "delete"]
    await _campaign(tmp_path, kind, called + ([] if kind == "iceberg" else _last_of_looks(untouched.moments)))


@pytest.mark.soak
@pytest.mark.parametrize("kind", FORMATS)
async def test_a_file_taken_up_again_before_any_call_of_the_sweep_stays(tmp_path, kind, capsys):
    untouched = await FORMATS[kind](tmp_path / "untouched", None)
    moments = len(untouched.moments)
    await _campaign(tmp_path, kind, range(moments))
    with capsys.disabled():
        print(f"\n{kind}: {moments} moments between the last look and the delete: 0 files lost")
    assert moments >= MOMENTS[kind]


async def _campaign(home: Path, kind: str, moments: Iterable[int]) -> None:
    lost, spared = {}, 0
    for moment in moments:
        came = await FORMATS[kind](home / uuid.uuid4().hex, moment)
        spared += came.run.spared
        if came.lost:
            lost[moment] = came.lost
    assert not lost
    assert spared


LOOKS = {"irregular", "list", "read", "stat", "stat_together"}


@pytest.mark.parametrize("kind", ["delta", "paimon"])
async def test_a_table_created_anew_at_the_end_of_a_last_look_stays_whole(tmp_path, monkeypatch, kind):
    """Before the last call of each look behind which a request is sent."""
    await _created_anew(tmp_path, monkeypatch, kind, _last_of_looks)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["delta", "paimon"])
async def test_a_table_created_anew_before_any_call_of_the_sweep_stays_whole(tmp_path, monkeypatch, kind):
    await _created_anew(tmp_path, monkeypatch, kind, lambda names: range(len(names)))


async def test_a_commit_that_takes_the_place_of_the_newest_is_heard(tmp_path):
    """As after a backup that was one commit old: the log has as many versions as before."""
    untouched = await delta(tmp_path / "untouched", None)
    lost = {}
    for moment in (0, untouched.moments.index("delete"), *_last_of_looks(untouched.moments)):
        came = await delta(tmp_path / str(moment), moment, set_back=True)
        if came.lost:
            lost[f"before {untouched.moments[moment]}, {moment}"] = came.lost
    assert not lost


async def _created_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moments: Callable[[list[str]], Iterable[int]]
) -> None:
    """A log begins with the same names again, and the store compares no etags, as a disk does not."""
    monkeypatch.setattr(memory.Held, "etag", None)
    untouched = await FORMATS[kind](home / "untouched", None)
    lost = {}
    for moment in moments(untouched.moments):
        came = await FORMATS[kind](home / str(moment), moment, replaced=True)
        if came.lost:
            lost[f"before {untouched.moments[moment]}, {moment}"] = came.lost
    assert not lost


def _last_of_looks(names: list[str]) -> list[int]:
    """The last call of each question for the head that a deleter asks."""
    asked = [at for at, name in enumerate(names) if name == "head" and names[at - 1] == "delete"]
    found = [list(takewhile(lambda one: names[one] in LOOKS, range(at + 1, len(names))))[-1] for at in asked]
    assert found
    return found
