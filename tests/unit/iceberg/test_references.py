"""Everything that names files, from every snapshot; what only expiring snapshots name; and that doubt stops it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.builders.iceberg_manifests import Entry, container, list_bytes, list_schema
from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.metadata_source import BareSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.errors import CommitConflict, NotFound, Refused, Unavailable, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.references import References
from lakesweep.ports.table import TableState
from lakesweep.storage import memory

REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.ICEBERG)
ROOT = Location.parse("memory://lake/wh/")


@pytest.fixture(autouse=True)
def _fresh_bucket():
    memory.forget("lake")
    yield
    memory.forget("lake")


def open_table(table: MetadataTable) -> IcebergTable:
    source = BareSource(location=Location.parse(table.location), storage=memory.MemoryStorage())
    return IcebergTable(REF, source, memory.MemoryStorage(), ROOT)


def expiring(state: TableState, *ids: int) -> ExpiryPlan:
    return ExpiryPlan(
        head=state.head, expire=tuple(Snapshot(id=str(one), committed_at=datetime.now(UTC)) for one in ids)
    )


async def named(references: References, *, retained: bool) -> set[str]:
    """Files that the sources of one side name."""
    found: set[str] = set()
    for source in references.sources:
        if source.retained is retained:
            data = await memory.MemoryStorage().read(source.location)
            found |= set(decode.decode(source, data).column("path").to_pylist())
    return found


def history(version: int = 2) -> tuple[MetadataTable, list[int]]:
    table = MetadataTable(version=version)
    ids = [table.commit(table.path(f"data/{name}.parquet"), at_ms=index) for index, name in enumerate("abc")]
    ids.append(table.commit(at_ms=5, deleted=[table.path("data/a.parquet")]))
    return table, ids


def store(table: MetadataTable) -> MetadataTable:
    table.write()
    table.store()
    return table


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_snapshot_counts_on_a_branch_or_not(version: int):  # testWapFilesAreKept
    table, ids = history(version)
    staged = table.commit(table.path("data/staged.parquet"), at_ms=6, staged=True)
    other = table.commit(table.path("data/branch.parquet"), at_ms=7, branch="audit", parent=ids[0])
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(ExpiryPlan(head=state.head))
    expected = set().union(*(table.live_paths(one) for one in [*ids, staged, other]))
    assert await named(found, retained=True) == expected
    assert found.expired == ()
    lists = {one["manifest-list"] for one in table.snapshots}
    manifests = {one.path for rows in table.manifests.values() for one in rows}
    assert set(found.retained) == {table.address} | lists | manifests
    assert {source.location.raw for source in found.sources} == manifests


async def test_each_manifest_is_read_once_however_many_snapshots_share_it():
    table, ids = history()
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(expiring(state, ids[0]))
    addresses = [source.location for source in found.sources]
    assert len(addresses) == len(set(addresses))
    first = table.manifests[ids[0]][0].path
    assert next(source for source in found.sources if source.location.raw == first).retained


async def test_what_only_expiring_snapshots_name_is_on_the_expired_side():
    table, ids = history()
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(expiring(state, *ids[:3]))
    assert await named(found, retained=True) == table.live_paths(ids[3])
    assert table.path("data/a.parquet") in await named(found, retained=False)
    lists = {one["snapshot-id"]: one["manifest-list"] for one in table.snapshots}
    assert {lists[one] for one in ids[:3]} <= set(found.expired)
    assert lists[ids[3]] in found.retained
    assert not set(found.expired) & set(found.retained)


async def test_snapshots_that_were_committed_away_come_from_the_state_before():
    table, ids = history()
    statistics = table.add_statistics(ids[0])
    before_address = table.write()
    table.forget_snapshots(*ids[:3])
    table.statistics.clear()
    handle = open_table(store(table))
    state = await handle.load()
    before = await handle.load_at(before_address, state)
    assert before is not None
    found = await state.references(ExpiryPlan(head=state.head), before)
    assert table.path("data/a.parquet") in await named(found, retained=False)
    assert statistics in found.expired
    assert before_address in found.tolerated


async def test_statistics_go_with_their_snapshot_unless_a_live_one_shares_the_path():
    table, ids = history()
    gone = table.add_statistics(ids[0])
    parts = table.add_statistics(ids[0], partition=True)
    kept = table.add_statistics(ids[3])
    table.add_statistics(ids[1], path=kept)  # testExpireWithStatisticsFilesWithReuse
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(expiring(state, ids[0], ids[1]))
    assert kept in found.retained
    assert {gone, parts} <= set(found.expired)
    assert {gone, parts}.isdisjoint(found.retained)


async def test_the_metadata_log_and_the_version_hint_stay_but_need_not_exist():
    table, _ = history()
    first = table.write()
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(ExpiryPlan(head=state.head))
    assert set(found.tolerated) == {first, table.path("metadata/version-hint.text")}


async def test_deletes_and_deletion_vectors_are_references():
    table = MetadataTable(version=3)
    data = table.path("data/a.parquet")
    vector = Entry(path=table.path("data/a-deletes.puffin"), content=1, file_format="PUFFIN", content_offset=4)
    equality = Entry(path=table.path("data/eq.parquet"), content=2)
    table.commit(data, at_ms=1, delete_entries=[vector, equality])
    handle = open_table(store(table))
    state = await handle.load()
    found = await state.references(ExpiryPlan(head=state.head))
    assert await named(found, retained=True) == {data, vector.path, equality.path}


async def test_one_manifest_under_two_spellings_is_one_source():
    table, ids = history()
    document = table.document()
    handle = open_table(table)
    for one in document["snapshots"]:
        one["manifest-list"] = one["manifest-list"].replace("memory://lake/wh/", "memory://lake/wh//")
    table.files |= {path.replace("/wh/", "/wh//"): data for path, data in table.files.items()}
    table.write(document)
    table.store()
    state = await handle.load()
    found = await state.references(expiring(state, ids[0]))
    assert len({source.location.match_key for source in found.sources}) == len(found.sources)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "header only"])
async def test_a_retained_list_that_cannot_be_read_stops_everything(damage: str):
    table, ids = history()
    store(table)
    victim = table.snapshots[1]["manifest-list"]
    key = Location.parse(victim).path
    whole = table.files[victim]
    objects = memory.bucket("lake").objects
    if damage == "missing":
        del objects[key]
    else:
        end = {"empty": 0, "cut": len(whole) - 5, "header only": whole.index(whole[-16:]) + 16}[damage]
        objects[key] = memory.Held(data=whole[:end], modified_at=None)
    handle = open_table(table)
    state = await handle.load()
    with pytest.raises(Unreadable, match="snap-"):
        await state.references(ExpiryPlan(head=state.head))
    found = await state.references(expiring(state, ids[1]))
    assert victim not in found.expired, "unreadable on the expired side only shrinks the work"


async def test_a_list_that_a_concurrent_commit_took_along_asks_for_a_new_load():
    table, ids = history()
    store(table)
    handle = open_table(table)
    state = await handle.load()
    victim = table.snapshots[0]["manifest-list"]
    table.forget_snapshots(ids[0])
    table.write()
    del table.files[victim]
    del memory.bucket("lake").objects[Location.parse(victim).path]
    table.store()
    with pytest.raises(CommitConflict):
        await state.references(ExpiryPlan(head=state.head))
    fresh = await handle.load()
    assert (await fresh.references(ExpiryPlan(head=fresh.head))).retained


async def test_a_store_that_does_not_answer_stops_everything():
    table, _ = history()
    store(table)
    handle = open_table(table)
    state = await handle.load()

    def fail(operation: str, address: str) -> None:
        if operation == "read" and "snap-" in address:
            raise Unavailable(address, "slow down")

    memory.bucket("lake").faults = fail
    with pytest.raises(Unreadable, match="slow down"):
        await state.references(ExpiryPlan(head=state.head))


async def test_asking_again_reads_only_new_lists():
    table, _ = history()
    store(table)
    reads: list[str] = []
    memory.bucket("lake").faults = lambda operation, address: reads.append(address) if operation == "read" else None
    handle = open_table(table)
    state = await handle.load()
    await state.references(ExpiryPlan(head=state.head))
    new = table.commit(table.path("data/new.parquet"), at_ms=9)
    store(table)
    fresh = await handle.load()
    reads.clear()
    await fresh.references(ExpiryPlan(head=fresh.head))
    assert [address for address in reads if "snap-" in address] == [table.snapshots[-1]["manifest-list"]]
    assert str(new) in reads[0]


async def test_lists_that_contradict_each_other_are_not_believed():
    table, ids = history()
    shared = table.manifests[ids[0]][0]
    forged = MetadataTable(location=table.location)
    longer = forged._manifest(shared.entries, 1)
    table.manifests[ids[2]] = [type(shared)(path=shared.path, entries=shared.entries, data=longer.data + b"x")]
    table.files[table.snapshots[2]["manifest-list"]] = list_bytes(table.manifests[ids[2]])
    table.snapshots[2]["summary"] = {"operation": "append"}
    handle = open_table(store(table))
    state = await handle.load()
    with pytest.raises(Unreadable, match="contradict"):
        await state.references(ExpiryPlan(head=state.head))


async def test_an_encrypted_or_unplaceable_manifest_stops_everything():
    for change in ({"key_metadata": b"k"}, {"manifest_path": "relative/m0.avro"}):
        table, ids = history()
        rows = [one.row() | change for one in table.manifests[ids[0]]]
        table.files[table.snapshots[0]["manifest-list"]] = container(list_schema(), rows)
        handle = open_table(store(table))
        state = await handle.load()
        with pytest.raises(Unreadable):
            await state.references(ExpiryPlan(head=state.head))
        found = await state.references(expiring(state, ids[0]))
        assert found.sources


async def test_a_table_outside_its_tenants_root_is_refused():
    table = store(history()[0])
    handle = IcebergTable(
        REF,
        BareSource(location=Location.parse(table.location), storage=memory.MemoryStorage()),
        memory.MemoryStorage(),
        Location.parse("memory://lake/elsewhere/"),
    )
    with pytest.raises(Refused) as caught:
        await handle.load()
    assert caught.value.code == "outside_root"


async def test_an_earlier_head_that_is_gone_or_of_another_table_is_no_state():
    table, _ = history()
    handle = open_table(store(table))
    state = await handle.load()
    assert await handle.load_at(table.path("metadata/gone.metadata.json"), state) is None
    stranger = MetadataTable(location=table.path("nested"))
    foreign = stranger.write()
    stranger.store()
    assert await handle.load_at(foreign, state) is None
    with pytest.raises(NotFound):
        await memory.MemoryStorage().read(Location.parse(table.path("metadata/gone.metadata.json")))


async def test_the_estimate_comes_from_the_current_summary():
    table, _ = history()
    assert (await open_table(store(table)).load()).estimated_files == 2
    bare = MetadataTable()
    bare.commit(bare.path("data/a.parquet"), at_ms=1, summary=False)
    memory.forget("lake")
    assert (await open_table(store(bare)).load()).estimated_files is None
