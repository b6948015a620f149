"""The audit format: what is written reads back, and no byte of it can change unnoticed."""

import asyncio
import hashlib
import json
import string
import uuid
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders.audits import ABOUT, NOON, REF, Shelf, a_run, batch, candidate, results_of, rows_of

from lakesweep.audit import chain, records
from lakesweep.audit.chain import Broken, Segment
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome, Refusal
from lakesweep.ports.state import Approval
from lakesweep.settings.effective import digest as settings_digest
from lakesweep.settings.schema import Settings
from lakesweep.storage import memory

# Surrogates stand for names that are not UTF-8.
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
RECORDS = st.lists(st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=4), max_size=4).map(tuple)
SEGMENTS = st.builds(
    Segment,
    table=TEXT,
    number=st.integers(1, 10**10),
    previous=st.none() | st.text(string.hexdigits, min_size=64, max_size=64),
    run_id=TEXT,
    at=st.just(NOON),
    records=RECORDS,
)


@given(SEGMENTS)
def test_a_segment_reads_back_as_it_was(segment):
    assert Segment.decode(segment.encode()) == segment


@given(SEGMENTS)
def test_a_segment_is_json_lines(segment):
    lines = segment.encode().decode("ascii").splitlines()
    kinds = [json.loads(line) for line in lines]
    assert kinds[0]["record"] == "segment"
    assert kinds[-1]["record"] == "seal"
    assert len(kinds) == len(segment.records) + 2


@given(segment=SEGMENTS, data=st.data())
def test_no_single_byte_of_a_segment_changes_unnoticed(segment, data):
    written = bytearray(segment.encode())
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[place]))
    with pytest.raises(Broken):
        Segment.decode(bytes(written))


@given(segment=SEGMENTS, data=st.data())
def test_no_cut_and_no_addition_goes_unnoticed(segment, data):
    written = segment.encode()
    cut = data.draw(st.integers(0, len(written) - 1))
    for changed in (written[:cut], written[cut + 1 :], written[:cut] + b"x" + written[cut:], written + b"\n"):
        if changed != written:
            with pytest.raises(Broken):
                Segment.decode(changed)


def test_a_segment_of_another_version_is_distinguished():
    newer = chain.Segment(table="t", number=1, previous=None, run_id="r", at=NOON, records=())
    body = newer.encode().splitlines(keepends=True)[0].replace(b'"version":1', b'"version":2')
    with pytest.raises(Broken, match="version 2"):
        Segment.decode(body + chain._seal(chain.digest(body)))


@pytest.mark.parametrize("body", [b"", b"\n", b"{}\n", b"[]\n", b"7\n", b"no json\n", b"HEAD\nno json\n", b"yesterday"])
def test_what_is_sealed_and_yet_no_segment_is_broken(body):
    head = chain.Segment(table="t", number=1, previous=None, run_id="r", at=NOON, records=()).encode().splitlines()[0]
    dated = head.replace(b"2026-03-01", b"yesterday") + b"\n"
    body = dated if body == b"yesterday" else body.replace(b"HEAD", head)
    with pytest.raises(Broken):
        Segment.decode(body + chain._seal(chain.digest(body)))


@pytest.mark.parametrize("name", ["12", "12.json", "a.jsonl", ".jsonl", "-1.jsonl", "1_0.jsonl", "²3.jsonl", "٣.jsonl"])
def test_only_a_segments_own_name_spells_a_number(name):
    assert chain.segment_number(name) is None
    assert chain.segment_number(chain.segment_name(12)) == 12


LONG = "a" * 300
CUT = f"{LONG[:100]}~{hashlib.sha256(LONG.encode()).hexdigest()}"


@given(st.tuples(TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT))
@example(("acme", "prod", ".."), ("acme", "prod", "."))
@example(("acme", "..", ""), ("acme", "prod", "%"))
@example(("acme", "prod", LONG), ("acme", "prod", f"{LONG}b"))
@example(("acme", "prod", LONG), ("acme", "prod", CUT))
def test_every_table_has_a_directory_of_its_own(one, other):
    root = Location.parse("memory://ops/lakesweep")
    first, second = ("/".join(parts) for parts in (one, other))
    places = chain.directory(root, first), chain.directory(root, second)
    assert (places[0] == places[1]) == (first == second)
    for place in places:
        assert root.join("audit").contains(place)
        parts = place.path.removeprefix("lakesweep/audit/").split("/")
        assert len(parts) == 3
        assert all(parts)


@given(st.text(st.characters(exclude_characters="/"), min_size=1, max_size=30), st.text(min_size=1, max_size=400))
@example("prod", LONG)
def test_a_directory_is_short_enough_for_a_file_system(dataset, name):
    place = chain.directory(Location.parse("/a"), f"acme/{dataset}/{name}")
    assert all(0 < len(part.encode()) <= 255 for part in place.path.split("/")[1:])


def test_a_directory_reads_like_its_table():
    place = chain.directory(Location.parse("s3://ops/lakesweep"), "acme/prod/shop.orders")
    assert place.raw == "s3://ops/lakesweep/audit/acme/prod/shop.orders"
    assert chain.table_at(Location.parse("s3://ops/lakesweep"), place) == "acme/prod/shop.orders"


def test_the_tenant_of_a_table_without_one_is_nobody():
    assert chain.tenant_of("acme/prod/orders") == "acme"
    assert chain.tenant_of("s3://lake/orders") == ""


def told(lines):
    return [json.loads(line) for line in lines.splitlines()]


def test_a_decision_names_everything_there_is_to_know_of_the_file():
    rows = [candidate("s3://b/t/1.parquet"), candidate("s3://b/t/2.parquet", modified_at=None, etag=None)]
    lines = told(records.deleting_lines(batch(3, 2), rows_of(rows[0]), rows_of(rows[1])))
    assert lines == [
        {
            "record": "delete",
            "batch": 3,
            "path": "s3://b/t/1.parquet",
            "size_bytes": 7,
            "modified_at": "2026-03-01T12:00:00.250Z",
            "etag": "e1",
            "kind": "data",
            "reason": "unreferenced",
        },
        {
            "record": "spare",
            "batch": 3,
            "path": "s3://b/t/2.parquet",
            "size_bytes": 7,
            "modified_at": None,
            "etag": None,
            "kind": "data",
            "reason": "unreferenced",
        },
    ]


def test_a_failed_delete_is_recorded_with_what_the_store_said():
    (record,) = told(records.deleted_lines(batch(0, 1), results_of(("p", "failed", "SlowDown"))))
    assert record == {"record": "failed", "batch": 0, "path": "p", "size_bytes": 7, "why": "SlowDown"}


def test_a_deleted_file_whose_bytes_stay_is_recorded_with_where():
    results = results_of(
        ("a", "deleted", None, "freed", None),
        ("b", "deleted", None, "trash", None),
        ("c", "deleted", None, "versions", 'id"1'),
    )
    one, two, three = told(records.deleted_lines(batch(0, 3), results))
    assert one == {"record": "deleted", "batch": 0, "path": "a", "size_bytes": 7}
    assert two == {**one, "path": "b", "went": "trash"}
    assert three == {**one, "path": "c", "went": "versions", "delete_marker": 'id"1'}


def test_a_record_that_would_be_lost_is_an_error():
    whole, nothing = rows_of(candidate("a"), candidate("b")), rows_of()
    at = whole.schema.get_field_index("size_bytes")
    holed = whole.set_column(at, whole.schema.field(at), pa.array([1, None], pa.int64()))
    with pytest.raises(ValueError, match="incomplete"):
        records.deleting_lines(batch(0, 2), holed, nothing)
    with pytest.raises(ValueError, match="incomplete"):
        records.deleted_lines(batch(0, 1), results_of(("p", "deleted"), size_bytes=None))


def test_the_beginning_says_who_when_and_on_what():
    record = records.begin_record(a_run(), ABOUT)
    assert record["trigger"] == {"by": "command", "who": "ada"}
    assert (record["settings"], record["head"], record["fencing_token"]) == ("5e77", "h1", 7)
    assert record["plan"] == {"digest": "d1", "cutoff": "2026-03-01T12:00:00.250Z", "count": 4, "bytes": 28}


def test_the_beginning_names_the_approvals_that_hold():
    def approval(run_id, hours):
        until = NOON + timedelta(hours=hours)
        return Approval(
            run_id=run_id, table=REF.label, digest="d0", approved_by="grace", approved_at=NOON, expires_at=until
        )

    async def recorded_begin():
        shelf = Shelf(Location.parse(f"memory://audit-{uuid.uuid4().hex}/a"))
        for run_id, hours in (("r8", -1), ("r9", 1)):
            await shelf.state.start_run(a_run(run_id))
            await shelf.state.add_approval(approval(run_id, hours))
        await shelf.trail().end(a_run(outcome=Outcome.DONE))
        return await anext(record async for _, record in shelf.inspector.records("r1"))

    begin = asyncio.run(recorded_begin())
    assert begin["approvals"] == [
        {"run_id": "r9", "digest": "d0", "approved_by": "grace", "expires_at": "2026-03-01T13:00:00.250Z"}
    ]


def test_equal_settings_have_one_digest_and_secrets_are_not_in_it():
    def settings(password, **changes):
        return Settings.model_validate({"state": {"url": f"postgresql://me:{password}@db/x"}, **changes})

    assert settings_digest(settings("one")) == settings_digest(settings("two"))
    assert settings_digest(settings("one")) != settings_digest(settings("one", daemon={"max_tables": 9}))


def test_the_end_of_a_refused_run_says_why():
    refused = replace(a_run(), outcome=Outcome.REFUSED, reason="too much", refusal=Refusal(code="ceiling", reason="x"))
    record = records.end_record(refused)
    assert (record["outcome"], record["refused"], record["reason"]) == ("refused", "ceiling", "too much")
    assert record["deleted"] == {"count": 0, "bytes": 0}


# Whole trails


def recorded():
    """Two runs in a bucket of their own."""
    name = f"audit-{uuid.uuid4().hex}"
    shelf = Shelf(Location.parse(f"memory://{name}/artifacts"))

    async def record() -> None:
        await shelf.record_run("r1")
        await shelf.record_run("r2")

    asyncio.run(record())
    return shelf, memory.bucket(name).objects


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_single_byte_changed_in_a_trail_is_noticed(data):
    shelf, objects = recorded()
    assert asyncio.run(shelf.faults()) == []
    key = data.draw(st.sampled_from(sorted(objects)))
    changed = bytearray(objects[key].data)
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    objects[key] = replace(objects[key], data=bytes(changed))
    assert asyncio.run(shelf.faults())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_segment_removed_or_exchanged_is_noticed(data):
    shelf, objects = recorded()
    keys = sorted(objects)
    some = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    if data.draw(st.booleans()) and len(some) > 1:
        contents = [objects[key] for key in some]
        for key, content in zip(some, [*contents[1:], contents[0]], strict=True):
            objects[key] = content
    else:
        for key in some:
            del objects[key]
    assert asyncio.run(shelf.faults())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_segment_rewritten_with_a_seal_of_its_own_is_noticed(data):
    shelf, objects = recorded()
    key = data.draw(st.sampled_from(sorted(objects)))
    segment = Segment.decode(objects[key].data)
    forged = replace(segment, records=segment.records[1:])
    objects[key] = replace(objects[key], data=forged.encode())
    assert asyncio.run(shelf.faults())


def test_an_emptied_trail_is_noticed():
    shelf, objects = recorded()
    objects.clear()
    faults = asyncio.run(shelf.faults())
    assert len(faults) == 14
    assert faults[0] == "segment 1 is missing"


def test_without_its_state_store_a_trail_still_speaks_for_itself():
    """Nothing but what is stored says how long it is, and whose."""
    shelf, objects = recorded()
    alone = Shelf(shelf.artifacts)
    assert asyncio.run(alone.faults()) == []
    for key, held in sorted(objects.items()):
        objects[key.replace(REF.name, "another")] = held
    faults = asyncio.run(alone.faults())
    assert len(faults) == 14
    assert all(fault.endswith(f"it belongs to {REF.label}") for fault in faults)


def test_an_interrupted_run_is_a_remark_and_no_fault():
    shelf = Shelf(Location.parse(f"memory://audit-{uuid.uuid4().hex}/a"))

    async def interrupted():
        trail = shelf.trail()
        await trail.begin(a_run())
        await trail.deleting(batch(0, 1), rows_of(candidate("s3://b/t/1.parquet")), rows_of())
        return await shelf.findings()

    (found,) = asyncio.run(interrupted())
    assert (found.table, found.segments, found.runs, found.faults) == (REF.label, 1, 1, [])
    assert found.remarks == [
        "run r1: it has no end record: it was interrupted or is still running",
        "run r1: batch 0 has no outcome: its files may or may not have been deleted",
    ]
