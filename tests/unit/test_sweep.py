"""The sweep: journal before and after, lease and head before every batch, stages in order, trouble reported."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from tests.builders.audits import Shelf
from tests.builders.sweeps import REF, Held, RecordingDeleter, make_sweep, paths

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.delete_conditions import HeadReads
from lakesweep.model.errors import AuditFailed, Indeterminate, LeaseLost, Refused, StateError, Unavailable
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleted, DeleteStatus
from lakesweep.ports.state import BatchState
from lakesweep.ports.table import MatchBy
from lakesweep.storage import memory


async def test_everything_goes_once_and_is_journalled(tmp_path):
    sweep = await make_sweep(tmp_path, paths(25))
    result = await sweep.run()
    assert sweep.deleter.objects == set()
    assert result.report.deleted == Tally(files=25, bytes=175)
    assert result.report.by_kind == {"kind0": Tally(files=25, bytes=175)}
    journal = await sweep.journal.journal("r1")
    assert [(entry.first, entry.count, entry.deleted) for entry in journal] == [(0, 10, 10), (10, 10, 10), (20, 5, 5)]
    assert all(entry.state is BatchState.DONE for entry in journal)


async def test_rows_that_are_not_those_of_the_plan_are_never_deleted(tmp_path):
    sweep = await make_sweep(tmp_path, paths(25))
    with plan_file.PlanWriter(sweep.plan.rows_path) as writer:
        for rows in plan_file.read_rows(sweep.plan.rows_path):
            writer.write(rows.slice(1))
    result = await sweep.run()
    assert isinstance(result.stopped_by, Indeterminate)
    assert sweep.deleter.asked == []


async def test_a_stage_begins_only_when_the_one_before_is_finished(tmp_path):
    sweep = await make_sweep(tmp_path, paths(25, stage=0) + paths(5, stage=1), concurrent=8)
    await sweep.run()
    stages = [path.rpartition("/")[2][0] for batch in sweep.deleter.asked for path in batch]
    assert stages == sorted(stages)
    assert all(len({path.rpartition("/")[2][0] for path in batch}) == 1 for batch in sweep.deleter.asked)


class SlowFirstStage(RecordingDeleter):
    """Takes its time for stage 0, and keeps when each batch ended."""

    ended = 0

    async def delete(self, paths, conditions=None):
        for _ in range(50 if "/0-" in paths[0] else 0):
            await asyncio.sleep(0.001)
        self.asked.append((paths[0], self.ended))
        given = [self._one(path) for path in paths]
        self.ended += 1
        return given


async def test_a_slow_batch_of_one_stage_holds_up_the_next_stage(tmp_path):
    rows = [*paths(20), *paths(5, stage=1)]
    deleter = SlowFirstStage(path for path, _ in rows)
    await (await make_sweep(tmp_path, rows, concurrent=3, deleter=deleter)).run()
    assert deleter.asked[-1] == (rows[20][0], 2)


async def test_what_became_referenced_is_spared(tmp_path):
    rows = paths(20)
    seen = []

    async def referenced_from_second_batch_on():
        seen.append(1)
        return frozenset({rows[12][0], rows[3][0]}) if len(seen) > 1 else frozenset()

    sweep = await make_sweep(tmp_path, rows, concurrent=1, revalidate=referenced_from_second_batch_on)
    result = await sweep.run()
    assert sweep.deleter.objects == {rows[12][0]}
    assert result.spared == 1
    assert len(seen) == 2


class AskingDeleter(RecordingDeleter):
    """Asks before each request, as real ones do."""

    async def delete(self, paths, conditions=None):
        for _ in range(3):  # a store that lets its requests wait
            await asyncio.sleep(0)
        kept = await conditions.withheld(paths)
        self.asked.append([path for path in paths if path not in kept])
        return [kept.get(path) or self._one(path) for path in paths]


@pytest.mark.parametrize("concurrent", [1, 3])
@pytest.mark.parametrize(("asks", "looks"), [(True, 5), (False, 4)])
async def test_a_batch_takes_one_look_and_never_none(tmp_path, concurrent, asks, looks):
    rows, seen = paths(35), []

    async def look():
        seen.append(1)
        await asyncio.sleep(0)
        return frozenset()

    deleter = (AskingDeleter if asks else RecordingDeleter)(path for path, _ in rows)
    sweep = await make_sweep(tmp_path, rows, concurrent=concurrent, deleter=deleter, revalidate=look)
    assert (await sweep.run()).report.deleted.files == 35
    assert len(seen) == looks, "one for each request, or for each batch where no request asks; and one for the first"


@pytest.mark.parametrize("late", range(6))
@pytest.mark.parametrize("asks", [True, False])
async def test_what_is_referenced_before_a_batch_is_written_down_is_not_deleted(tmp_path, asks, late):
    """Whoever takes the look: one from before the last batch was written down never counts for the next."""
    rows, referenced = paths(50), set()

    async def look():
        await asyncio.sleep(0)
        return frozenset(referenced)

    deleter = (AskingDeleter if asks else RecordingDeleter)(path for path, _ in rows)
    sweep = await make_sweep(tmp_path, rows, concurrent=3, deleter=deleter, revalidate=look)
    begin = sweep.journal.begin_batch

    async def begun(record):
        if record.number == late:
            referenced.update(path for path, _ in rows[(late + 1) * 10 :])
        await begin(record)

    sweep.journal.begin_batch = begun
    await sweep.run()
    assert deleter.objects == {path for path, _ in rows[(late + 1) * 10 :]}


@pytest.mark.parametrize(
    ("match_by", "planned", "key"),
    [
        (MatchBy.ADDRESS, "s3://b/t//data///a.parquet", "s3://b/t/data/a.parquet"),
        (MatchBy.ADDRESS, "file:///t//a.parquet", "file:///t/a.parquet"),
        (MatchBy.NAME, "s3://b/t/data/a.parquet", "a.parquet"),
    ],
)
async def test_a_file_is_spared_by_what_references_are_compared_by(tmp_path, match_by, planned, key):
    async def referenced():
        return frozenset({key})

    rows = [(planned, 0), ("s3://b/u/b.parquet", 0)]
    sweep = await make_sweep(tmp_path, sorted(rows), revalidate=referenced)
    result = await replace(sweep, match_by=match_by).run()
    assert (sweep.deleter.objects, result.spared) == ({planned}, 1)


class Careless(RecordingDeleter):
    """Deletes, and answers as it likes."""

    def __init__(self, objects, answers):
        super().__init__(objects)
        self.answers = answers

    async def delete(self, paths, conditions=None):
        return self.answers(await super().delete(paths))


@pytest.mark.parametrize("answers", [lambda given: given[1:], lambda given: given[::-1], lambda given: given + given])
async def test_answers_about_other_objects_are_no_outcome(tmp_path, answers):
    rows = paths(30)
    deleter = Careless((path for path, _ in rows), answers)
    sweep = await make_sweep(tmp_path, rows, concurrent=1, deleter=deleter)
    with pytest.raises(ValueError, match="do not match them"):
        await sweep.run()
    assert len(deleter.asked) == 1
    assert [entry.state for entry in await sweep.journal.journal("r1")] == [BatchState.INTENT]


async def test_an_answer_with_bytes_that_are_no_text_is_recorded(tmp_path):
    shelf, rows = shelf_of("audit-bytes"), paths(1)
    given = [Deleted(path=rows[0][0], status=DeleteStatus.FAILED, why="bad name \udcff é")]
    deleter = Careless((), lambda _: given)
    result = await (await make_sweep(tmp_path, rows, deleter=deleter, audit=shelf.trail("r1", REF))).run()
    said = [record["why"] for record in await recorded(shelf) if record["record"] == "failed"]
    memory.forget("audit-bytes")
    assert said == ["bad name \\udcff é"]
    assert len(result.report.failed) == 1


async def test_an_already_gone_object_is_no_failure_and_a_failed_one_is_named(tmp_path):
    rows = paths(3)
    deleter = RecordingDeleter([rows[0][0], rows[2][0]], failing=[rows[2][0]])
    result = await (await make_sweep(tmp_path, rows, deleter=deleter)).run()
    assert (result.report.deleted.files, result.report.already_gone) == (1, 1)
    assert [(failed.path, failed.why) for failed in result.report.failed] == [(rows[2][0], "AccessDenied")]


async def test_a_lost_lease_stops_before_the_next_batch(tmp_path):
    fence = Held()
    fence.lost_after = 1
    sweep = await make_sweep(tmp_path, paths(30), concurrent=1, fence=fence)
    result = await sweep.run()
    assert isinstance(result.stopped_by, LeaseLost)
    assert len(sweep.deleter.asked) == 1
    assert result.report.deleted.files == 10


async def test_a_refused_revalidation_deletes_nothing_more(tmp_path):
    async def refused():
        raise Refused("table_changed", "dropped")

    sweep = await make_sweep(tmp_path, paths(30), revalidate=refused)
    result = await sweep.run()
    assert isinstance(result.stopped_by, Refused)
    assert sweep.deleter.asked == []


async def test_without_a_journal_entry_nothing_is_deleted(tmp_path):
    sweep = await make_sweep(tmp_path, paths(30))

    async def down(_):
        raise StateError("the state store is away")

    sweep.journal.begin_batch = down
    result = await sweep.run()
    assert isinstance(result.stopped_by, StateError)
    assert sweep.deleter.asked == []


async def test_a_stop_from_outside_ends_after_the_running_batches(tmp_path):
    sweep = await make_sweep(tmp_path, paths(100), concurrent=1)
    calls = []

    async def stop_at_third():
        calls.append(1)
        if len(calls) == 3:
            sweep.stop.set()
        return frozenset()

    object.__setattr__(sweep, "revalidate", stop_at_third)
    result = await sweep.run()
    assert result.interrupted
    assert result.report.deleted.files == 30
    assert all(entry.state is BatchState.DONE for entry in await sweep.journal.journal("r1"))


@pytest.mark.parametrize("cancel_after", [1, 3, 7])
async def test_a_cancelled_sweep_leaves_no_deleted_batch_unjournalled(tmp_path, cancel_after):
    sweep = await make_sweep(tmp_path, paths(500), concurrent=2)
    task = asyncio.create_task(sweep.run())
    while len(sweep.deleter.asked) < cancel_after:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    journal = await sweep.journal.journal("r1")
    done = {entry.number for entry in journal if entry.state is BatchState.DONE}
    assert len(done) == len(sweep.deleter.asked) >= cancel_after


def shelf_of(audit_bucket):
    return Shelf(Location.parse(f"memory://{audit_bucket}/audit"))


async def recorded(shelf):
    return [record async for _, record in shelf.inspector.records("r1")]


async def test_without_an_audit_record_nothing_is_deleted(tmp_path):
    shelf = shelf_of("audit-away")

    def away(operation, address):
        if operation == "put":
            raise Unavailable(address, "No space left on device")

    memory.bucket("audit-away").faults = away
    sweep = await make_sweep(tmp_path, paths(30), audit=shelf.trail("r1", REF))
    result = await sweep.run()
    memory.forget("audit-away")
    assert isinstance(result.stopped_by, AuditFailed)
    assert "No space left on device" in str(result.stopped_by)
    assert sweep.deleter.asked == []
    assert await sweep.journal.journal("r1") == []


async def test_deletes_are_counted_even_if_the_audit_record_fails(tmp_path):
    shelf = shelf_of("audit-breaks")
    puts = []

    def second_put_fails(operation, address):
        if operation == "put":
            puts.append(address)
            if len(puts) > 1:
                raise Unavailable(address, "connection refused")

    memory.bucket("audit-breaks").faults = second_put_fails
    sweep = await make_sweep(tmp_path, paths(30), concurrent=1, audit=shelf.trail("r1", REF))
    result = await sweep.run()
    assert isinstance(result.stopped_by, AuditFailed)
    assert result.report.deleted.files == 10
    assert [(entry.state, entry.deleted) for entry in await sweep.journal.journal("r1")] == [(BatchState.DONE, 10)]
    memory.bucket("audit-breaks").faults = None
    assert {record["path"] for record in await recorded(shelf)} == set(sweep.deleter.asked[0])
    memory.forget("audit-breaks")


async def test_the_audit_names_every_decision_and_what_became_of_it(tmp_path):
    shelf, rows = shelf_of("audit-all"), paths(4)
    spared = rows[1][0]

    async def one_is_referenced():
        return frozenset({spared})

    deleter = RecordingDeleter([path for path, _ in rows if path != rows[2][0]], failing=[rows[3][0]])
    sweep = await make_sweep(
        tmp_path, rows, deleter=deleter, revalidate=one_is_referenced, audit=shelf.trail("r1", REF)
    )
    await sweep.run()
    told = {(record["record"], record["path"]) for record in await recorded(shelf)}
    memory.forget("audit-all")
    assert told == {
        ("delete", rows[0][0]),
        ("delete", rows[2][0]),
        ("delete", rows[3][0]),
        ("spare", spared),
        ("deleted", rows[0][0]),
        ("already_gone", rows[2][0]),
        ("failed", rows[3][0]),
    }


@pytest.mark.parametrize("cancel_after", [1, 3, 5, 8, 13, 21])
async def test_no_file_of_a_cancelled_sweep_is_deleted_without_its_audit_records(tmp_path, cancel_after):
    bucket = f"audit-cancelled-{cancel_after}"
    shelf = shelf_of(bucket)
    sweep = await make_sweep(tmp_path, paths(200), concurrent=2, audit=shelf.trail("r1", REF))
    task = asyncio.create_task(sweep.run())
    while len(sweep.deleter.asked) < cancel_after and not task.done():
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    asked = {path for batch in sweep.deleter.asked for path in batch}
    records = [(record["record"], record["path"]) for record in await recorded(shelf)]
    memory.forget(bucket)
    assert asked
    assert asked <= {path for kind, path in records if kind == "delete"}
    # What was done is told as well, even while the sweep is being cancelled.
    assert asked == {path for kind, path in records if kind == "deleted"}


async def test_a_look_that_began_before_a_batch_was_written_down_counts_no_more():
    asked, answer = [], asyncio.Event()

    async def ask():
        asked.append(1)
        await answer.wait()
        return frozenset()

    looks = HeadReads(ask)
    first = asyncio.create_task(looks.new())
    await asyncio.sleep(0)
    looks.begin_batch()
    answer.set()
    await first
    await looks.since_last_batch(None)
    assert len(asked) == 2
