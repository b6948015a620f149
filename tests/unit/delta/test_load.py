"""Reading a table: every kind of checkpoint leads to the same state, and what cannot be read is never skipped."""

from __future__ import annotations

import json
import re

import pytest
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, days_ago, look, parquet, stored_vector

from lakesweep.model.errors import Denied, Indeterminate, Refused, TooLarge, Unavailable, Unreadable
from lakesweep.storage import memory

KINDS = ["classic", "multipart", "v2-json", "v2-parquet"]
VECTOR = "vBn[lx{q8@P<9BNH/isA"
VECTOR_FILE = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"


def _writer(**more) -> DeltaWriter:
    writer = DeltaWriter(MemoryPlace(), **more)
    writer.create(days_ago(40))
    return writer


def _busy_table(kind: str | None) -> DeltaWriter:
    """Files added, removed long ago and lately, with vectors; half of it before the checkpoint, half after."""
    writer = _writer(features=("deletionVectors", "v2Checkpoint"))
    writer.add("a.parquet", "k=a b/b.parquet", "gone-early.parquet", "gone-late.parquet", at=days_ago(35))
    writer.add("v.parquet", at=days_ago(35), vector=stored_vector(VECTOR))
    writer.remove("gone-early.parquet", at=days_ago(30))
    writer.remove("gone-late.parquet", at=days_ago(2))
    if kind:
        writer.checkpoint(kind, at=days_ago(2))
    writer.add("c.parquet", at=days_ago(1))
    writer.remove("a.parquet", at=days_ago(1))
    return writer


@pytest.mark.parametrize("kind", [None, *KINDS])
async def test_every_kind_of_checkpoint_leads_to_the_same_state(kind):
    seen = await look(_busy_table(kind))
    assert seen.live_data == {"k=a b/b.parquet", "v.parquet", VECTOR_FILE, "c.parquet"}
    assert seen.tolerated_data == {"gone-late.parquet", "a.parquet"}
    assert seen.state.head.startswith(f"6@{seen.state.table_uuid}+")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_checkpoint_is_skipped_while_commits_are_complete(kind):
    writer = _busy_table(kind)
    top = next(name for name in sorted(writer.logged()) if ".checkpoint." in name and not name.startswith("_"))
    writer.log(top, b"PAR1 this is no checkpoint", days_ago(2))
    seen = await look(writer)
    assert seen.live_data == {"k=a b/b.parquet", "v.parquet", VECTOR_FILE, "c.parquet"}
    assert not seen.references.sources


@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_checkpoint_stops_the_table_once_older_commits_are_gone(kind):
    writer = _busy_table(kind)
    top = next(name for name in sorted(writer.logged()) if ".checkpoint." in name and not name.startswith("_"))
    writer.log(top, b"PAR1 this is no checkpoint", days_ago(2))
    writer.place.delete("_delta_log/00000000000000000000.json")
    with pytest.raises(Unreadable, match=r"\.checkpoint\."):
        await look(writer)


async def test_a_checkpoint_cut_short_is_damaged():
    writer = _busy_table("classic")
    held = memory.bucket(writer.place.bucket).objects
    key = next(key for key in held if key.endswith(".checkpoint.parquet"))
    writer.log(key.rpartition("/")[2], held[key].data[:-20], days_ago(2))
    assert not (await look(writer)).references.sources


async def test_a_missing_part_makes_readers_ignore_the_whole_checkpoint():
    writer = _busy_table("multipart")
    writer.place.delete("_delta_log/00000000000000000004.checkpoint.0000000002.0000000002.parquet")
    seen = await look(writer)
    assert seen.live_data == {"k=a b/b.parquet", "v.parquet", VECTOR_FILE, "c.parquet"}


async def test_a_missing_sidecar_makes_the_checkpoint_unusable():
    writer = _busy_table("v2-json")
    sidecar = next(name for name in writer.logged() if name.startswith("_sidecars/"))
    writer.place.delete(f"_delta_log/{sidecar}")
    assert not (await look(writer)).references.sources


async def test_an_older_checkpoint_is_used_when_the_newest_is_damaged():
    writer = _writer()
    writer.add("a", at=days_ago(9))
    writer.checkpoint(at=days_ago(9))
    writer.add("b", at=days_ago(8))
    writer.checkpoint(at=days_ago(8))
    writer.place.delete("_delta_log/00000000000000000000.json")
    writer.log("00000000000000000002.checkpoint.parquet", b"garbage", days_ago(8))
    assert (await look(writer)).live_data == {"a", "b"}


async def test_a_gap_in_the_commits_stops_the_table():
    writer = _writer()
    for name in "abc":
        writer.add(name)
    writer.place.delete("_delta_log/00000000000000000002.json")
    with pytest.raises(Unreadable, match="version 2 is missing"):
        await look(writer)


async def test_a_checkpoint_of_the_head_without_its_commit_is_refused():
    writer = _writer()
    writer.add("a")
    writer.checkpoint()
    writer.place.delete("_delta_log/00000000000000000001.json")
    with pytest.raises(Refused) as refusal:
        await look(writer)
    assert refusal.value.code == "damaged_log"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]\n", b'{"add":{}}\n', b'{"add":{"path":7}}\n', b'{"add":[]}\n', b"\xff\n"]
)
async def test_a_commit_that_cannot_be_read_stops_the_table(data):
    writer = _writer()
    writer.add("a")
    writer.log("00000000000000000001.json", data, NOW)
    with pytest.raises(Unreadable, match=r"0001\.json"):
        await look(writer)


async def test_a_commit_cut_inside_a_line_stops_the_table():
    writer = _writer()
    writer.add("a", "b")
    held = memory.bucket(writer.place.bucket).objects
    data = held[f"{writer.place.prefix}/_delta_log/00000000000000000001.json"].data
    writer.log("00000000000000000001.json", data[:-9], NOW)
    with pytest.raises(Unreadable):
        await look(writer)


async def test_a_place_without_commits_is_not_a_table():
    writer = DeltaWriter(MemoryPlace())
    writer.place.put("a.parquet", b"", NOW)
    with pytest.raises(Refused) as refusal:
        await look(writer)
    assert refusal.value.code == "not_a_table"


async def test_a_log_without_metadata_stops_the_table():
    writer = DeltaWriter(MemoryPlace())
    writer.commit([{"protocol": writer.protocol()}])
    with pytest.raises(Unreadable, match="no metadata"):
        await look(writer)


async def test_the_newest_protocol_and_properties_decide():
    writer = _writer()
    writer.checkpoint()
    writer.features = ("catalogManaged",)
    writer.commit([{"protocol": writer.protocol()}])
    with pytest.raises(Refused, match="catalogManaged"):
        await look(writer)


async def test_properties_in_a_checkpoint_count():
    writer = _writer(configuration={"delta.logRetentionDuration": "every now and then"})
    writer.checkpoint()
    writer.add("a")
    with pytest.raises(Refused, match="every now and then"):
        await look(writer)


@pytest.mark.parametrize("error", [Denied, Unavailable])
@pytest.mark.parametrize("operation", ["list", "list_page", "now"])
async def test_a_store_that_says_no_is_never_an_empty_table(error, operation):
    writer = _busy_table("v2-json")
    failures = iter([True])

    def fault(called: str, address: str) -> None:
        if called == operation and next(failures, False):
            raise error(address, "injected")

    memory.bucket(writer.place.bucket).faults = fault
    with pytest.raises(error):
        await look(writer)


@pytest.mark.parametrize("error", [Denied, Unavailable, TooLarge])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, f"{0:020}.json"),
        (None, f"{6:020}.json"),
        ("classic", f"{6:020}.json"),
        ("classic", "_last_checkpoint"),
        ("classic", f"{6:020}.crc"),
        ("classic", ".tmp/"),
        ("classic", "v1.metadata.json"),
        *((kind, f"{4:020}.checkpoint.") for kind in KINDS),
    ],
)
async def test_a_log_file_that_the_store_does_not_hand_out_stops_the_table(kind, name, error):
    """It may be whole. It is not passed over like a damaged one, and nothing is read in its place."""
    writer = _busy_table(kind)
    writer.checksum()
    temporary = {"add": writer.added("later.parquet")}
    writer.log(f".tmp/{7:020}.json.0b5c6c0e", json.dumps(temporary).encode(), days_ago(1))
    writer.place.put("metadata/v1.metadata.json", b'{"format-version": 2}', days_ago(1))
    denied: list[str] = []

    def fault(called: str, address: str) -> None:
        if called == "read" and name in address:
            denied.append(address)
            raise error(address, "injected") if error is not TooLarge else TooLarge(address, 5)

    memory.bucket(writer.place.bucket).faults = fault
    with pytest.raises(Indeterminate, match=re.escape(name)) as stopped:
        await look(writer)
    assert not isinstance(stopped.value, Unreadable)
    assert f"cannot read {denied[0]}: " in str(stopped.value)
    assert len(set(denied)) == 1


async def test_a_commit_that_vanishes_while_reading_is_looked_for_again():
    """Another cleaner may move the log's begin while we read."""
    writer = _busy_table("classic")
    hidden: dict[str, memory.Held] = {}
    bucket = memory.bucket(writer.place.bucket)

    def fault(called: str, address: str) -> None:
        key = address.partition(f"{writer.place.bucket}/")[2]
        if called == "read" and key.endswith("0006.json") and not hidden:
            hidden[key] = bucket.objects.pop(key)
        elif called == "list" and hidden:
            bucket.objects.update(hidden)

    bucket.faults = fault
    seen = await look(writer)
    assert hidden
    assert seen.state.native.version == 6


@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"version":"x"}', b'{"version":0}'])
async def test_the_hint_is_never_taken_for_the_truth(hint):
    writer = _busy_table("classic")
    writer.log("_last_checkpoint", hint, NOW)
    assert (await look(writer)).live_data == {"k=a b/b.parquet", "v.parquet", VECTOR_FILE, "c.parquet"}


async def test_a_hint_above_the_newest_commit_reveals_a_log_that_was_set_back():
    """It may lie. But if it does not, files of acknowledged commits look unreferenced."""
    writer = _busy_table("classic")
    writer.log("_last_checkpoint", b'{"version":999}', NOW)
    with pytest.raises(Refused, match="restored the log from a backup"):
        await look(writer)


def _with_a_checkpoint_cut_behind_a_line() -> DeltaWriter:
    """The line that names the sidecar, and with it all files, is gone; the hint has the length from before."""
    writer = _busy_table("v2-json")
    (name,) = writer.checkpoint("v2-json")
    whole = memory.bucket(writer.place.bucket).objects[f"{writer.place.prefix}/_delta_log/{name}"].data
    writer.log(name, whole[: whole.rindex(b"\n")], NOW)
    named = {"path": name, "sizeInBytes": len(whole), "modificationTime": 0}
    writer.log("_last_checkpoint", json.dumps({"version": 6, "size": 9, "v2Checkpoint": named}).encode(), NOW)
    return writer


async def test_a_checkpoint_that_is_shorter_than_its_hint_says_is_passed_over():
    writer = _with_a_checkpoint_cut_behind_a_line()
    assert (await look(writer)).live_data == {"k=a b/b.parquet", "v.parquet", VECTOR_FILE, "c.parquet"}


async def test_where_such_a_checkpoint_is_all_there_is_the_table_is_left_alone():
    writer = _with_a_checkpoint_cut_behind_a_line()
    writer.place.delete(f"_delta_log/{0:020d}.json")
    older = [name for name in writer.logged() if ".checkpoint." in name and not name.startswith(f"{6:020d}")]
    for name in older:
        writer.place.delete(f"_delta_log/{name}")
    with pytest.raises(Unreadable, match="bytes instead of"):
        await look(writer)


async def test_adds_are_kept_when_a_checkpoint_has_no_other_columns():
    writer = _busy_table("classic")
    rows = [{"add": add} for add in writer.live.values()]
    head = [{"protocol": writer.protocol()}, {"metaData": writer.metadata()}]
    writer.log("00000000000000000006.checkpoint.parquet", parquet(head + rows), NOW)
    assert "v.parquet" in (await look(writer)).live_data


async def test_the_checksum_file_gives_a_second_count_of_live_files():
    writer = _busy_table("classic")
    assert (await look(writer)).state.estimated_files is None
    writer.checksum()
    assert (await look(writer)).state.estimated_files == 3
    writer.log("00000000000000000006.crc", b"not json", NOW)
    assert (await look(writer)).state.estimated_files is None


async def test_the_head_follows_every_commit_and_nothing_else():
    writer = _busy_table("classic")
    seen = await look(writer)
    assert await seen.table.head() == seen.state.head
    writer.checkpoint()
    writer.place.put("orphan.parquet", b"", NOW)
    assert await seen.table.head() == seen.state.head
    writer.add("z")
    assert (await seen.table.head()).startswith(f"7@{seen.state.table_uuid}+")


async def test_the_head_of_a_table_created_anew_is_another():
    writer = _busy_table(None)
    seen = await look(writer)
    for name in writer.place.names():
        writer.place.delete(name)
    other = DeltaWriter(writer.place, table_id="another")
    other.create()
    for version in range(6):
        other.add(f"{version}")
    assert (await seen.table.head()).startswith("6@another+")
