"""Each manifest is read once, however many snapshots share it. Counted at the storage, over a whole plan."""

import contextlib
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders.cycles import SetClock
from tests.builders.iceberg_metadata import MetadataTable
from tests.builders.paimon_model import ModelTable

from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.formats import registry as formats
from lakesweep.formats.spec import Tools
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.engine import Marked, OrphanJob
from lakesweep.storage.memory import Held, MemoryStorage, bucket, forget

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SNAPSHOTS = 12


@pytest.fixture
def reads():
    """How often each object was read."""
    forget("lake")
    counted = Counter()
    store = bucket("lake")
    store.clock = lambda: NOW - timedelta(days=9)
    store.faults = lambda call, address: counted.update([address] if call == "read" else [])
    yield counted
    forget("lake")


def iceberg() -> str:
    table = MetadataTable(location="memory://lake/wh/db/t")
    for number in range(SNAPSHOTS):
        table.commit(*(table.path(f"data/{number}-{row}.parquet") for row in range(5)), at_ms=number)
    table.write()
    table.store()
    for path in table.live_paths(table.snapshots[-1]["snapshot-id"]):
        bucket("lake").objects[Location.parse(path).path] = Held(data=b"", modified_at=NOW - timedelta(days=9))
    return table.location


def paimon() -> str:
    table = ModelTable(bucket("lake"), "wh/d.db/t", NOW - timedelta(days=1))
    for number in range(SNAPSHOTS):
        table.append(f"p{number % 3}")
    return table.address


async def plan(address, tmp_path, cache):
    storage = MemoryStorage()
    table = await formats.open_location(Location.parse(address), None, Tools(storage=storage, clock=SetClock(NOW)))
    state = await table.load()

    async def mark():
        now = await table.load()
        return Marked(state=now, references=await now.references(ExpiryPlan(head=now.head)))

    engine = InProcessEngine(
        storage=storage,
        decoder=formats.decoder,
        cache=cache,
        scratch_dir=tmp_path / "scratch",
        memory_limit="256MB",
        threads=2,
    )
    async with contextlib.aclosing(engine):
        return await engine.find_orphans(
            OrphanJob(
                ref=table.ref,
                roots=state.roots,
                layout=state.layout,
                cutoff=NOW,
                mark=mark,
                rows_path=str(tmp_path / "plan.parquet"),
            )
        )


def is_list(address: str) -> bool:
    return address.rpartition("/")[2].startswith(("snap-", "manifest-list-"))


def is_manifest(address: str) -> bool:
    name = address.rpartition("/")[2]
    return not is_list(address) and (name.endswith(".avro") or name.startswith("manifest-"))


@pytest.mark.parametrize("build", [iceberg, paimon])
async def test_shared_manifests_and_lists_are_read_once(build, reads, tmp_path):
    address = build()
    cache = FingerprintCache(tmp_path / "cache", limit_bytes=10**8, key=b"k" * 32)
    made = await plan(address, tmp_path, cache)
    assert (made.missing_count, made.candidates.files) == (0, 0)
    for kind in (is_manifest, is_list):
        stored = [key for key in bucket("lake").objects if kind(key)]
        read = {one: times for one, times in reads.items() if kind(one)}
        assert len(stored) >= SNAPSHOTS
        assert len(read) == len(stored)
        assert set(read.values()) == {1}
    reads.clear()
    await plan(address, tmp_path, cache)
    assert not [one for one in reads if is_manifest(one)]
    assert {times for one, times in reads.items() if is_list(one)} == {1}  # nothing records their lengths: read again
