"""Signs of another table in the same place, and that our own history is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats.iceberg import foreign_tables, lineage, metadata
from lakesweep.model.errors import Unavailable, Unreadable
from lakesweep.model.location import Location
from lakesweep.storage import memory


@pytest.fixture(autouse=True)
def _fresh_bucket():
    memory.forget("lake")
    yield
    memory.forget("lake")


def parsed(table: MetadataTable) -> metadata.TableMetadata:
    address = table.write()
    table.store()
    return metadata.parse(address, table.files[address])


def put(path: str, data: bytes) -> str:
    place = Location.parse(path)
    memory.bucket("lake").objects[place.path] = memory.Held(data=data, modified_at=None)
    return path


async def find(own: metadata.TableMetadata, *paths: str) -> str | None:
    roots = [Location.parse(own.location).as_directory()]
    return await foreign_tables.find(memory.MemoryStorage(), own, paths, roots)


async def test_our_own_old_metadata_is_no_evidence():
    table = MetadataTable()
    old = [table.write() for _ in range(3)]
    own = parsed(table)
    assert await find(own, *old, table.path("data/x.parquet")) is None


async def test_a_second_table_on_the_same_location_is_evidence():
    table = MetadataTable()
    own = parsed(table)
    other = MetadataTable()
    evidence = await find(own, parsed(other).address)
    assert evidence is not None
    assert other.uuid in evidence


async def test_a_table_inside_our_directory_is_evidence():
    own = parsed(MetadataTable())
    nested = MetadataTable(location="memory://lake/wh/db/t/nested")
    assert "nested" in (await find(own, parsed(nested).address) or "")


async def test_a_place_that_we_left_is_no_evidence():
    table = MetadataTable()
    moved = MetadataTable(location=table.path("earlier"), uuid=table.uuid)
    assert await find(parsed(table), parsed(moved).address) is None


async def test_half_a_file_at_home_is_a_dead_writer_and_elsewhere_it_is_evidence():
    table = MetadataTable()
    own = parsed(table)
    assert await find(own, put(table.path("metadata/9-x.metadata.json"), b"{")) is None
    assert await find(own, put(table.path("other/metadata/9-x.metadata.json"), b"{")) is not None


async def test_half_of_what_a_file_has_leaves_it_open(monkeypatch: pytest.MonkeyPatch):
    """A store that returns a part of another table's metadata does not make it a dead writer's."""
    table = MetadataTable()
    own, other = parsed(table), parsed(MetadataTable())
    read = memory.MemoryStorage.read

    async def short(self: memory.MemoryStorage, location: Location, *arguments: Any) -> bytes:
        data = await read(self, location, *arguments)
        return data[: len(data) // 2] if location.raw == other.address else data

    monkeypatch.setattr(memory.MemoryStorage, "read", short)
    with pytest.raises(Unreadable, match="storage returned"):
        await find(own, other.address)


async def test_a_file_that_is_gone_by_now_is_no_evidence():
    table = MetadataTable()
    assert await find(parsed(table), table.path("metadata/gone.metadata.json")) is None


async def test_a_store_that_does_not_answer_leaves_it_open():
    table = MetadataTable()
    own = parsed(table)
    path = put(table.path("metadata/9-x.metadata.json"), b"{}")

    def fail(operation: str, address: str) -> None:
        raise Unavailable(address, "slow down")

    memory.bucket("lake").faults = fail
    with pytest.raises(Unreadable, match="slow down"):
        await find(own, path)


@pytest.mark.parametrize("log", ["_delta_log/00000000000000000000.json", "part/.hoodie/1.commit"])
async def test_a_log_of_another_format_is_evidence(log: str):
    table = MetadataTable()
    assert "another format" in (await find(parsed(table), table.path(log)) or "")


async def test_without_a_uuid_the_location_decides():
    table = MetadataTable(version=1)
    document = table.document()
    del document["table-uuid"]
    address = table.write(document)
    table.store()
    own = metadata.parse(address, table.files[address])
    same = put(table.path("metadata/0.metadata.json"), json.dumps(document).encode())
    other = put(table.path("metadata/1.metadata.json"), json.dumps(document | {"location": "memory://x/y"}).encode())
    assert await find(own, same) is None
    assert await find(own, other) is not None


async def test_a_stranger_among_many_is_found_whatever_its_version():
    table = MetadataTable()
    own = parsed(table)
    mine = json.dumps(table.document()).encode()
    paths = [put(table.path(f"metadata/{index:05d}-x.metadata.json"), mine) for index in range(500)]
    reads: list[str] = []
    memory.bucket("lake").faults = lambda operation, address: reads.append(address)
    assert await find(own, *paths) is None
    assert len(reads) == len(paths)
    stranger = MetadataTable()
    oldest = put(table.path("metadata/00000-y.metadata.json"), json.dumps(stranger.document()).encode())
    assert await find(own, *paths, oldest) is not None


async def test_our_own_past_is_known_by_its_log_and_not_read_one_by_one():
    table = MetadataTable()
    written = []
    for _ in range(400):
        written.append(table.write())
        table.metadata_log = table.metadata_log[-50:]
    own = parsed(table)
    fallen = [path for path in written if path not in own.metadata_log]
    assert len(fallen) > 300
    reads: list[str] = []
    memory.bucket("lake").faults = lambda operation, address: reads.append(address)
    assert await find(own, *fallen) is None
    assert len(reads) < 30
    stranger = put(table.path("metadata/00000-y.metadata.json"), json.dumps(MetadataTable().document()).encode())
    assert await find(own, *fallen, stranger) is not None


async def test_a_log_that_leads_back_to_itself_is_walked_once():
    table = MetadataTable()
    older = [table.write() for _ in range(40)]
    circle = table.write()
    table.metadata_log = [{"metadata-file": path, "timestamp-ms": 0} for path in (circle, *older)]
    table.files[circle] = json.dumps(table.document()).encode()
    table.metadata_log = [{"metadata-file": circle, "timestamp-ms": 0}]
    address = table.write(table.document())
    table.store()
    own = metadata.parse(address, table.files[address])
    reads: list[str] = []

    def count(operation: str, address: str) -> None:
        reads.append(address)
        if len(reads) > 100:
            raise Unavailable(address, "read without end")

    memory.bucket("lake").faults = count
    assert await find(own, *older) is None
    assert reads == [circle]


@pytest.mark.parametrize("with_uuid", [True, False])
async def test_a_log_of_another_table_proves_nothing(with_uuid: bool):
    """Its file lies where ours once was."""

    def document(table: MetadataTable) -> dict[str, Any]:
        return {key: value for key, value in table.document().items() if with_uuid or key != "table-uuid"}

    table, other = MetadataTable(), MetadataTable(location="memory://lake/wh/db/t/nested")
    theirs = []
    for _ in range(30):
        theirs.append(other.write(document(other)))
        other.metadata_log.append({"metadata-file": theirs[-1], "timestamp-ms": 0})
    table.metadata_log = [{"metadata-file": other.write(document(other)), "timestamp-ms": 0}]
    address = table.write(document(table))
    table.store()
    other.store()
    assert await find(metadata.parse(address, table.files[address]), *theirs) is not None


@pytest.mark.parametrize("field", ["snapshots", "metadata-log"])
async def test_a_stranger_is_known_although_it_is_arranged_in_a_new_way(field: str):
    table = MetadataTable()
    own = parsed(table)
    stranger = json.dumps(MetadataTable().document() | {"format-version": 9, field: {"in": "a file"}}).encode()
    assert await find(own, put(table.path("metadata/00000-y.metadata.json"), stranger)) is not None


def follower(
    table: MetadataTable, own: metadata.TableMetadata, name: str = "00099-y.metadata.json", **changes: object
) -> str:
    """A metadata file of the same table that was made from the current one."""
    log = [{"metadata-file": own.address, "timestamp-ms": own.updated_ms}]
    document = table.document() | {"metadata-log": log, **changes}
    return put(table.path(f"metadata/{name}"), json.dumps(document).encode())


async def test_metadata_after_the_current_state_is_evidence_unless_ours():
    """Contents tell nothing: a second catalog may expire snapshots as we do."""
    table = MetadataTable()
    first = table.commit(at_ms=1)
    table.commit(at_ms=2)
    table.tag("old", first)
    own = parsed(table)
    last, main = table.snapshots[1:], {"main": table.refs["main"]}
    ours = lineage.new_expiry_name(7, Location.parse(own.address).match_key)
    assert await find(own, follower(table, own, ours, snapshots=last, refs=main)) is None
    another = lineage.new_expiry_name(7, Location.parse(own.address).match_key + "x")
    assert await find(own, follower(table, own, another, snapshots=last, refs=main)) is not None
    statistics = [{"snapshot-id": first, "statistics-path": table.path("metadata/new.stats")}]
    for changes in (
        {},
        {"refs": main},
        {"snapshots": last, "refs": main},
        {"properties": {"owner": "somebody"}},
        {"snapshots": last, "refs": main, "statistics": statistics},
        {"refs": {**main, "new": main["main"]}},
        {"snapshots": {"in": "a file"}},
    ):
        assert "follows the metadata file" in (await find(own, follower(table, own, **changes)) or "")
    table.commit(at_ms=3)
    assert "follows the metadata file" in (await find(own, follower(table, own, snapshots=table.snapshots[1:])) or "")


async def test_a_file_without_refs_takes_nothing_away_by_that():
    """Writers before refs name no `main`: another property is all that changes here."""
    table = MetadataTable()
    table.commit(at_ms=1)
    old = table.document()
    del old["refs"]
    address = put(table.path("metadata/00001-y.metadata.json"), json.dumps(old).encode())
    own = metadata.parse(address, json.dumps(old).encode())
    log = [{"metadata-file": address, "timestamp-ms": own.updated_ms}]
    changed = old | {"metadata-log": log, "properties": {"owner": "somebody"}}
    follows = put(table.path("metadata/00002-y.metadata.json"), json.dumps(changed).encode())
    assert "follows the metadata file" in (await find(own, follows) or "")


def test_refs_of_a_new_kind_hide_no_file_that_is_named():
    table = MetadataTable()
    table.commit(at_ms=1)
    known = lineage.read_identity("memory://lake/x", json.dumps(table.document()).encode())
    odd = lineage.read_identity("memory://lake/x", json.dumps(table.document() | {"refs": ["in a list"]}).encode())
    assert known.named
    assert odd.named == known.named
    assert None in odd.contents


async def test_more_old_files_than_a_plan_shows_are_recognised_by_our_own_logs(monkeypatch):
    monkeypatch.setattr(foreign_tables, "METADATA_SHOWN", 40)
    table = MetadataTable()
    written = []
    for _ in range(200):
        written.append(table.write())
        table.metadata_log = table.metadata_log[-2:]
    own = parsed(table)
    assert await find(own, *written[:40]) is None
    stranger = put(table.path("metadata/00000-y.metadata.json"), json.dumps(MetadataTable().document()).encode())
    assert "another table" in (await find(own, *written[:40]) or "")
    memory.bucket("lake").objects.pop(Location.parse(stranger).path)
    for index in range(41):
        put(table.path(f"metadata/z{index}.metadata.json"), json.dumps(table.document()).encode())
    assert "too many" in (await find(own, *written[:40]) or "")


async def test_a_writer_that_keeps_no_log_leaves_a_past_and_no_other_history():
    table = MetadataTable()
    table.commit(at_ms=1)
    old = table.write(table.document())
    table.commit(at_ms=2)
    address = table.write(table.document())
    table.commit(at_ms=3)
    young = table.write(table.document())
    table.store()
    own = metadata.parse(address, table.files[address])
    assert await find(own, old) is None
    assert "not part of its past" in (await find(own, young) or "")


@pytest.mark.parametrize("uuid", [True, False])
@pytest.mark.parametrize("place", ["metadata/00000-v.metadata.json", "inner/metadata/00000-v.metadata.json"])
async def test_a_view_in_a_tables_place_is_evidence(uuid: bool, place: str):
    """Also where the table has no uuid to compare it by, and both say the same location."""
    table = MetadataTable(version=1)
    address = table.write()
    document = json.loads(table.files[address])
    if not uuid:
        document.pop("table-uuid")
    own = metadata.parse(address, json.dumps(document).encode())
    view = {"view-uuid": "v", "format-version": 1, "location": own.location, "versions": [], "schemas": []}
    assert "a view" in (await find(own, put(table.path(place), json.dumps(view).encode())) or "")
