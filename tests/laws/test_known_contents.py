"""Laws of contents that are remembered from cycle to cycle: a table is read as if nothing were remembered, whatever was
done to its log meanwhile."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.cycles import CACHE_KEY, SetClock
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, days_ago
from tests.laws.every_format import fresh, laws

from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.formats.delta.table import DeltaTable
from lakesweep.model.errors import LakesweepError
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage import memory
from lakesweep.storage.memory import MemoryStorage
from lakesweep.storage.read_cache import ListedContents
from lakesweep.telemetry.requests import RequestCount, counting

REF = TableRef(tenant=TenantId("acme"), dataset="bronze", name="t", format=FormatName.DELTA)
LONG = timedelta(days=30)
STEPS = st.lists(
    st.sampled_from(
        ["add", "remove", "classic", "multipart", "v2-json", "rewrite", "touch", "recreate", "set_back", "lite"]
    ),
    min_size=2,
    max_size=12,
)


class World:
    def __init__(self) -> None:
        self.place = MemoryPlace()
        self.bucket = memory.bucket(self.place.bucket)
        self.bucket.clock = lambda: NOW
        self.days = 60.0
        self.recreate()

    def recreate(self) -> None:
        """Dropped and created anew in place: another table with the same names of commits, sizes and times."""
        for key in [key for key in self.bucket.objects if "/_delta_log/" in key]:
            del self.bucket.objects[key]
        number = getattr(self, "number", 0) + 1
        self.number, self.days = number, 60.0
        self.writer = DeltaWriter(self.place, table_id=f"0e2b3f4c-5d6e-4f70-8192-{number:012d}")
        self.writer.create(days_ago(self.days))

    def step(self, step: str, pick: int) -> None:
        self.days = max(self.days - 3, 0)
        at, writer = days_ago(self.days), self.writer
        live = sorted(add["path"] for add in writer.live.values())
        commits = sorted(key for key in self.bucket.objects if key.endswith(".json") and "/_delta_log/0" in key)
        match step:
            case "add":
                writer.add(f"part-{self.number}-{writer.version:03d}.parquet", at=at)
            case "remove" if live:
                writer.remove(live[pick % len(live)], at=at)
            case "classic" | "multipart" | "v2-json":
                writer.checkpoint(step, at)
            case "rewrite":  # the same size and time, and it names other files
                key = commits[pick % len(commits)]
                held = self.bucket.objects[key]
                self.bucket.objects[key] = memory.Held(
                    data=held.data.replace(b"part-", b"pert-"), modified_at=held.modified_at
                )
            case "touch":
                key = commits[pick % len(commits)]
                self.bucket.objects[key] = memory.Held(data=self.bucket.objects[key].data, modified_at=NOW)
            case "recreate":
                self.recreate()
            case "set_back" if writer.version > 0 and len(commits) > 1:
                del self.bucket.objects[commits[-1]]
                writer.version -= 1


async def read(world: World, contents: ListedContents | None, *, lite: bool) -> object:
    """Everything that a cycle learns from the log; an error is an answer too."""
    table = DeltaTable(REF, world.place.location, MemoryStorage(), SetClock(NOW), contents=contents)
    table.lite = lite
    try:
        view = await table.load()
        expiry = view.plan_expiry(CleanupPolicy(max_snapshot_age=LONG), NOW)
        return (view.head, view.table_uuid, view.snapshots, view.shortlist, expiry, await view.references(expiry))
    except LakesweepError as exc:
        return str(exc)


@laws(60, soak=3000)
@given(steps=STEPS, data=st.data())
async def test_a_log_is_read_as_if_nothing_were_remembered(home: Path, steps, data) -> None:
    cache = FingerprintCache(fresh(home) / "cache", limit_bytes=10**8, key=CACHE_KEY)
    contents, world = ListedContents(lambda: cache), World()
    try:
        for step in steps:
            world.step(step, data.draw(st.integers(0, 7)))
            for lite in (False, step == "lite"):
                assert await read(world, contents, lite=lite) == await read(world, None, lite=lite), step
    finally:
        memory.forget(world.place.bucket)


async def test_a_log_that_stands_still_is_not_fetched_again(home: Path) -> None:
    cache = FingerprintCache(fresh(home) / "cache", limit_bytes=10**8, key=CACHE_KEY)
    contents, world = ListedContents(lambda: cache), World()
    for step in ("add", "add", "remove", "classic", "add", "add"):
        world.step(step, 0)
    reads = []
    for step in (None, None, "add", "rewrite"):
        if step:
            world.step(step, 5)
        with counting(RequestCount()) as count:
            await read(world, contents, lite=False)
        reads.append(count.so_far.get)
    hint = 1  # `_last_checkpoint` is always read
    assert reads[0] > 3
    assert reads[1:] == [hint, hint + 1, hint + 1]
    memory.forget(world.place.bucket)
