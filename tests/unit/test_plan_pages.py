"""Pages of a plan in an object store: the rows are those of the whole file, and few parts are asked for."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from structlog.testing import capture_logs
from tests.builders.admin import ORDERS, SetClock
from tests.builders.audits import a_run

from lakesweep.cleanup import artifacts, plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.daemon.admin_service import AdminService
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.state import PlanHeader
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.memory import MemoryStorage, MemoryWriter

ROWS, GROUP = 20_000, 1000
PART = 32 * 1024
"""Arrow reads the last 64 KB of a file at once."""


class Counting(MemoryStorage):
    """Remembers which objects were read."""

    def __init__(self):
        super().__init__()
        self.asked = []

    async def read(self, location, limit=None):
        self.asked.append(location.raw)
        await asyncio.sleep(0)
        return await super().read(location, limit)


@pytest.fixture
async def plan(tmp_path, monkeypatch):
    """A plan of many parts and many row groups: where it is kept, its address, and the store."""
    monkeypatch.setattr(artifacts, "PART_BYTES", PART)
    store = Counting()
    shared = Location.parse(f"memory://ops/{tmp_path.name}")
    kept = Artifacts(tmp_path, shared=shared, storage=store, writer=MemoryWriter())
    local = kept.file("plans", "run.parquet")
    with plan_file.PlanWriter(str(local)) as writer:
        for start in range(0, ROWS, GROUP):
            rows = [row(number) for number in range(start, start + GROUP)]
            writer.write(pa.RecordBatch.from_pylist(rows, schema=plan_file.PLAN_SCHEMA))
    address = await kept.publish(local)
    assert int(Path(address).name) > 2 * artifacts.KEPT_PARTS
    return kept, address, store


def row(number):
    return {
        "path": f"s3://lake/orders/{number * 7919 % 999983:06}-{number * 104729 % 999979:06}-{number:05}.parquet",
        "size_bytes": number,
        "modified_at": datetime(2026, 1, 1, tzinfo=UTC),
        "etag": hashlib.md5(str(number).encode()).hexdigest(),
        "kind": "data",
        "reason": "unreferenced",
        "stage": number,
    }


async def test_a_page_is_what_the_whole_file_has_there(plan):
    kept, address, _ = plan
    for offset, limit in ((0, 100), (199, 3), (999, 902), (19_990, 100), (20_000, 10), (10**12, 10)):
        page = await kept.page(address, offset, limit)
        assert [one.size_bytes for one in page] == list(range(ROWS))[offset : offset + limit]


async def test_a_page_asks_only_for_the_parts_that_hold_it(plan):
    kept, address, store = plan
    await kept.page(address, 2000, 100)
    assert len(store.asked) <= 6
    assert len(set(store.asked)) == len(store.asked)


async def test_the_next_page_asks_only_for_what_is_new(plan):
    kept, address, store = plan
    await kept.page(address, 2000, 50)
    store.asked.clear()
    for offset in (2000, 2050, 2100, 2950):
        await kept.page(address, offset, 50)
    assert store.asked == []


async def test_all_pages_of_a_plan_ask_for_each_part_about_once(plan):
    kept, address, store = plan
    for offset in range(0, ROWS, 500):
        await kept.page(address, offset, 500)
    assert len(store.asked) <= int(Path(address).name) + 2


async def test_many_that_ask_at_once_share_what_is_read(plan):
    kept, address, store = plan
    pages = await asyncio.gather(*(kept.page(address, 2000, 50) for _ in range(20)))
    assert all(page == pages[0] for page in pages)
    assert len(set(store.asked)) == len(store.asked)


async def test_what_is_kept_of_plans_is_bounded_and_has_no_name(plan):
    kept, address, _ = plan
    for offset in range(0, ROWS, 500):
        await kept.page(address, offset, 500)
    assert len(kept._parted._kept) <= artifacts.KEPT_PARTS
    assert list(kept.file("fetched", "").glob("*")) == []


async def test_a_plan_that_is_gone_or_cut_is_no_page(plan):
    kept, address, _ = plan
    with pytest.raises(NotFound):
        await kept.page(address.replace("run.parquet", "other.parquet"), 0, 10)
    last = Location.parse(address).join(str(int(Path(address).name) - 1))
    await MemoryWriter().put(last, b"cut", create_only=False)
    with pytest.raises(Unreadable):
        await kept.page(address, 0, 10)


async def test_a_plan_that_never_had_rows_is_none(plan):
    """One that was made up for the demo."""
    kept, _, store = plan
    state = MemoryStateStore(SetClock())
    header = PlanHeader(
        run_id="1" * 32, table="acme/prod/orders", head="h", digest="", rows_path="", candidates=3, bytes=1,
        created_at=SetClock().now(),
    )  # fmt: skip
    await state.start_run(a_run(header.run_id, ORDERS))
    await state.save_plan(header)
    admin = AdminService(SimpleNamespace(app=SimpleNamespace(state=state, artifacts=kept)), checkup=None)
    with capture_logs() as logged:
        assert await admin.plan(header.run_id, offset=0, limit=10) is None
        assert await admin.plan_groups(header.run_id) is None
    assert (store.asked, logged) == ([], [])


async def test_the_api_shows_pages_without_fetching_the_plan(plan):
    kept, address, store = plan
    clock = SetClock()
    state = MemoryStateStore(clock)
    header = PlanHeader(
        run_id="1" * 32, table="acme/prod/orders", head="h", digest="d", rows_path=address, candidates=ROWS, bytes=1,
        created_at=clock.now(),
    )  # fmt: skip
    await state.start_run(a_run(header.run_id, ORDERS))
    await state.save_plan(header)
    admin = AdminService(SimpleNamespace(app=SimpleNamespace(state=state, artifacts=kept)), checkup=None)
    for offset in (5000, 5100, 5200):
        page = await admin.plan(header.run_id, offset=offset, limit=100)
        assert [one.size_bytes for one in page.files] == list(range(offset, offset + 100))
    assert len(store.asked) <= 6
