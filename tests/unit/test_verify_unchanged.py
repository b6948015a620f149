"""The last look before a delete: only the very object that was judged goes."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders.sweeps import NOW, RecordingDeleter, make_sweep, paths

from lakesweep.cleanup.delete_conditions import unchanged, verify_unchanged
from lakesweep.model.errors import Denied
from lakesweep.model.files import Candidate, Reason, StoredObject
from lakesweep.model.location import Location
from lakesweep.storage.memory import Held, MemoryStorage, bucket, forget

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def candidate(size=5, modified_at=AT, etag="e", path="s3://b/t/x"):
    return Candidate(
        path=path, size_bytes=size, modified_at=modified_at, etag=etag, kind="data", reason=Reason.UNREFERENCED
    )


def stored(size=5, modified_at=AT, etag="e"):
    return StoredObject(location=Location.parse("s3://b/t/x"), size_bytes=size, modified_at=modified_at, etag=etag)


moments = st.none() | st.integers(-1500, 1500).map(lambda milliseconds: AT + timedelta(milliseconds=milliseconds))
etags = st.sampled_from([None, "e", "f"])
sizes = st.integers(4, 6)


@given(row=st.builds(candidate, sizes, moments, etags), now=st.builds(stored, sizes, moments, etags))
@example(row=candidate(), now=stored(modified_at=AT + timedelta(seconds=1)))
@example(row=candidate(), now=stored(modified_at=AT - timedelta(seconds=1)))
def test_any_known_difference_makes_it_another_object(row, now):
    differs = (
        row.size_bytes != now.size_bytes
        or None in (row.modified_at, now.modified_at)
        or abs(row.modified_at - now.modified_at) >= timedelta(seconds=1)
        or (row.etag != now.etag and None not in (row.etag, now.etag))
    )
    assert unchanged(row, now) is not differs


@pytest.mark.parametrize("shown", [AT.replace(microsecond=0), AT, AT + timedelta(milliseconds=700)])
def test_stores_and_lists_may_round_times(shown):
    assert unchanged(candidate(), stored(modified_at=shown))


@pytest.fixture
def store():
    forget("b")
    yield bucket("b").objects
    forget("b")


async def test_rewritten_files_are_spared_and_missing_ones_not_counted(tmp_path, store):
    rows = paths(25)
    keys = [Location.parse(path).path for path, _ in rows]
    for key in keys:
        store[key] = Held(data=b"7 bytes", modified_at=NOW)
    store[keys[3]] = Held(data=b"7 other", modified_at=NOW + timedelta(hours=1))
    store[keys[12]] = Held(data=b"other size", modified_at=NOW)
    del store[keys[20]]
    deleter = RecordingDeleter(path for path, _ in rows)  # like S3, it does not tell what had gone before
    sweep = await make_sweep(tmp_path, rows, deleter=deleter)
    object.__setattr__(sweep, "recheck", partial(verify_unchanged, MemoryStorage()))
    result = await sweep.run()
    asked = {path for batch in deleter.asked for path in batch}
    assert asked == {path for at, (path, _) in enumerate(rows) if at not in (3, 12, 20)}
    assert (result.spared, result.report.already_gone, result.report.deleted.files) == (2, 1, 22)
    journal = await sweep.journal.journal("r1")
    assert [(entry.deleted, entry.already_gone) for entry in journal] == [(9, 0), (9, 0), (4, 1)]


async def test_storage_that_does_not_say_ends_the_sweep(tmp_path, store):
    rows = paths(5)

    def deny(call, address):
        if call == "stat":
            raise Denied(address, "403")

    bucket("b").faults = deny
    sweep = await make_sweep(tmp_path, rows)
    object.__setattr__(sweep, "recheck", partial(verify_unchanged, MemoryStorage()))
    result = await sweep.run()
    assert isinstance(result.stopped_by, Denied)
    assert sweep.deleter.asked == []
