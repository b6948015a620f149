"""The ledger: a file goes only after an earlier successful run saw it unreferenced long enough ago."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.ledger import Ledger
from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.memory import MemoryStorage, MemoryWriter

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
REF = TableRef(tenant=TenantId("acme"), dataset="shop", name="orders", format=FormatName.ICEBERG)


class FixedClock:
    def now(self):
        return NOON


class AlwaysOurs:
    async def check(self):
        return None


def row(name, *, reason="unreferenced", stage=0, size=7, modified_at=NOON - 30 * DAY, etag=None):
    return {
        "path": f"s3://b/t/{name}",
        "size_bytes": size,
        "modified_at": modified_at,
        "etag": etag,
        "kind": "data",
        "reason": reason,
        "stage": stage,
    }


class Table:
    """A table's ledger over several cycles."""

    def __init__(self, directory, confirm_after=DAY, artifacts=None):
        self.directory = Path(directory)
        self.state = MemoryStateStore(FixedClock())
        self.artifacts = artifacts or Artifacts(self.directory)
        self.confirm_after = confirm_after
        self.runs = 0

    def plan(self, rows):
        rows_path = str(self.directory / "plans" / f"{self.runs}.parquet")
        with plan_file.PlanWriter(rows_path) as writer:
            ordered = sorted(rows, key=lambda one: (one["stage"], one["path"].encode()))
            writer.write(pa.RecordBatch.from_pylist(ordered, schema=plan_file.PLAN_SCHEMA))
        total = Tally(files=len(rows), bytes=sum(one["size_bytes"] for one in rows))
        return OrphanPlan(
            head="h",
            cutoff=NOON,
            verdicts={Verdict.ORPHAN: total, Verdict.LIVE: Tally(files=3, bytes=3)},
            candidates=total,
            by_kind={"data": total},
            by_reason={},
            missing=(),
            missing_count=0,
            references=3,
            matched=3,
            rows_path=rows_path,
            digest=writer.digest,
            engine="test",
        )

    async def cycle(self, rows, at, outcome=Outcome.DONE, spared=0, expires=True, base="h"):
        """The names that this cycle lets go, and its plan. One snapshot is to go; `expires` says whether it did, from
        the state `base`."""
        self.runs += 1
        ledger = Ledger(
            table=REF.label,
            run_id=f"r{self.runs}",
            confirm_after=self.confirm_after,
            state=self.state,
            artifacts=self.artifacts,
            fence=AlwaysOurs(),
        )
        expiry = ExpiryPlan(head="h", expire=(Snapshot(id="7", committed_at=NOON - 30 * DAY),))
        plan = await ledger.hold_back(self.plan(rows), expiry, at, at)
        going = [one.path.rpartition("/")[2] for batch in plan_file.read_batches(plan.rows_path) for one in batch]
        run = CleanupRun(id="r", table=REF, location=None, started_at=at, outcome=outcome, plan=plan, spared=spared)
        run = replace(run, expiry=replace(expiry, head=base), expired_snapshots=("7",) if expires else ())
        await ledger.settle(run, at)
        return going, plan


async def test_a_file_goes_in_the_first_run_that_comes_late_enough(tmp_path):
    table = Table(tmp_path)
    assert (await table.cycle([row("a")], NOON))[0] == []
    assert (await table.cycle([row("a"), row("b")], NOON + DAY / 2))[0] == []
    assert (await table.cycle([row("a"), row("b")], NOON + DAY))[0] == ["a"]
    assert (await table.cycle([row("b")], NOON + 1.5 * DAY))[0] == ["b"]


async def test_without_confirmation_the_plan_stays_as_it_is(tmp_path):
    table = Table(tmp_path, confirm_after=timedelta(0))
    going, plan = await table.cycle([row("a")], NOON)
    assert going == ["a"]
    assert plan.unconfirmed == Tally()


async def test_what_is_held_back_counts_as_young_and_not_as_a_candidate(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    _, plan = await table.cycle([row("a"), row("b", size=5), row("c", size=4)], NOON + DAY)
    assert plan.verdicts[Verdict.YOUNG] == Tally(files=2, bytes=9) == plan.unconfirmed
    assert plan.verdicts[Verdict.ORPHAN] == plan.candidates == Tally(files=1, bytes=7)
    assert plan.verdicts[Verdict.LIVE] == Tally(files=3, bytes=3)
    assert plan.by_kind == {"data": Tally(files=1, bytes=7)}
    assert plan.by_reason == {Reason.UNREFERENCED: Tally(files=1, bytes=7)}
    assert plan.digest == plan_file.digest(plan.rows_path)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
async def test_a_failed_or_refused_run_never_matures_a_file(tmp_path, outcome):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON, outcome=outcome)
    assert (await table.cycle([row("a")], NOON + 5 * DAY))[0] == []


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
async def test_a_failed_run_in_between_does_not_forget_an_earlier_sighting(tmp_path, outcome):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    await table.cycle([row("a")], NOON + DAY / 2, outcome=outcome)
    assert (await table.cycle([row("a")], NOON + DAY))[0] == ["a"]


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_reference_in_between_resets_the_ledger(tmp_path, outcome):
    table = Table(tmp_path)
    await table.cycle([row("a"), row("b")], NOON)
    await table.cycle([row("b")], NOON + DAY / 2, outcome=outcome)
    assert (await table.cycle([row("a"), row("b")], NOON + DAY))[0] == ["b"]


async def test_a_file_that_was_spared_begins_anew_even_if_the_run_failed(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    going, _ = await table.cycle([row("a")], NOON + DAY, outcome=Outcome.FAILED, spared=1)
    assert going == ["a"]
    assert (await table.cycle([row("a")], NOON + 1.5 * DAY))[0] == []


@pytest.mark.parametrize("change", [{"size": 8}, {"modified_at": NOON - 29 * DAY}, {"etag": "x"}])
async def test_a_file_written_anew_under_the_same_name_is_another_file(tmp_path, change):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    assert (await table.cycle([row("a", **change)], NOON + DAY))[0] == []


async def test_files_of_expired_snapshots_wait_from_the_run_that_expired_them(tmp_path):
    table = Table(tmp_path)
    assert (await table.cycle([row("a", reason="expired")], NOON))[0] == []
    assert (await table.cycle([row("a")], NOON + DAY))[0] == ["a"]


async def test_files_of_a_kept_snapshot_are_not_seen_unreferenced(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a", reason="expired"), row("b")], NOON, expires=False)
    assert (await table.cycle([row("a", reason="expired"), row("b")], NOON + DAY))[0] == ["b"]
    assert (await table.cycle([row("a")], NOON + 2 * DAY))[0] == ["a"]


async def test_files_of_an_expiry_from_another_state_are_not_seen_unreferenced(tmp_path):
    """What was committed between the plan and the expiry may refer to them."""
    table = Table(tmp_path)
    await table.cycle([row("a", reason="expired"), row("b")], NOON, base="later")
    assert (await table.cycle([row("a"), row("b")], NOON + DAY))[0] == ["b"]
    assert (await table.cycle([row("a")], NOON + 2 * DAY))[0] == ["a"]


async def test_a_dry_run_does_not_count_files_that_are_still_referenced(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a", reason="expired"), row("b")], NOON, outcome=Outcome.DRY_RUN)
    assert (await table.cycle([row("a", reason="expired"), row("b")], NOON + DAY))[0] == ["b"]


async def test_a_file_referenced_again_and_expired_at_once_begins_anew(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    assert (await table.cycle([row("a", reason="expired")], NOON + DAY))[0] == []


async def test_a_damaged_ledger_makes_everything_begin_anew(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    ledger = Path((await table.state.get_ledger(REF.label)).rows_path)
    ledger.write_bytes(ledger.read_bytes()[:-20])
    assert (await table.cycle([row("a")], NOON + DAY))[0] == []
    assert (await table.cycle([row("a")], NOON + 2 * DAY))[0] == ["a"]


async def test_a_ledger_that_nobody_kept_up_is_not_believed_later(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    table.confirm_after = timedelta(0)
    await table.cycle([], NOON + DAY)
    table.confirm_after = DAY
    assert (await table.cycle([row("a")], NOON + 2 * DAY))[0] == []


async def test_a_clock_that_was_set_back_delays_and_never_hastens(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON + 300 * DAY)
    assert (await table.cycle([row("a")], NOON))[0] == []
    assert (await table.cycle([row("a")], NOON + DAY))[0] == ["a"]


async def test_only_the_newest_ledger_stays_on_disk(tmp_path):
    table = Table(tmp_path)
    for number in range(4):
        await table.cycle([row("a")], NOON + number * timedelta(hours=1))
    (kept,) = (tmp_path / "ledgers").iterdir()
    assert kept.name.startswith("r4.")


async def test_another_replica_finds_the_ledger_in_the_object_store(tmp_path):
    storage, writer = MemoryStorage(), MemoryWriter()
    shared = Location.parse("memory://ops/lakesweep")
    first, second = (
        Artifacts(tmp_path / name, shared=shared, storage=storage, writer=writer) for name in ("one", "two")
    )
    table = Table(tmp_path, artifacts=first)
    await table.cycle([row("a")], NOON)
    table.artifacts = second
    assert (await table.cycle([row("a")], NOON + DAY))[0] == ["a"]
    assert not [path for path in (tmp_path / "two").rglob("*") if path.is_file() and path.suffix != ".parquet"]


@st.composite
def histories(draw):
    """Cycles of a table: when, what is unreferenced then and by which reason, how the run ended, and whether the
    expiry came to pass."""
    names = st.sampled_from("abcdef")
    reasons = st.sampled_from(["unreferenced", "unreferenced", "expired"])
    cycles = []
    at = NOON
    for _ in range(draw(st.integers(1, 8))):
        at += draw(st.sampled_from([timedelta(hours=1), DAY / 2, DAY]))
        rows = draw(st.dictionaries(names, reasons))
        cycles.append((at, rows, draw(st.sampled_from(list(Outcome))), draw(st.booleans())))
    return cycles


@settings(deadline=None, max_examples=examples(25, soak=600))
@given(cycles=histories())
async def test_law_deleted_files_were_seen_unreferenced_long_enough(cycles, tmp_path_factory):
    table = Table(tmp_path_factory.mktemp("table"))
    sightings: dict[str, list] = {}
    gone = set()
    for at, drawn, outcome, expires in cycles:
        rows = {name: reason for name, reason in drawn.items() if name not in gone}
        planned = [row(name, reason=why) for name, why in rows.items()]
        going, _ = await table.cycle(planned, at, outcome=outcome, expires=expires)
        for name in set(sightings) - set(rows):
            del sightings[name]
        for name in going:
            assert any(at - seen >= DAY for seen in sightings.get(name, [])), (name, at, sightings)
        if outcome is Outcome.DONE:
            gone |= set(going)
        for name, reason in rows.items():
            if reason == "unreferenced" and outcome in (Outcome.DONE, Outcome.DRY_RUN):
                sightings.setdefault(name, []).append(at)
            elif reason == "expired" and outcome is Outcome.DONE:
                if expires:
                    sightings.setdefault(name, []).append(at)
                else:
                    sightings.pop(name, None)


async def test_a_plan_of_many_batches_meets_a_ledger_of_many_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("lakesweep.cleanup.ledger._ROWS", 7)
    monkeypatch.setattr("lakesweep.cleanup.plan_file._ROW_GROUP", 5)
    table = Table(tmp_path)
    old = [row(f"{number:03}", stage=number % 2) for number in range(0, 100, 3)]
    await table.cycle(old, NOON)
    every = [row(f"{number:03}", stage=number % 2) for number in range(100)]
    going, plan = await table.cycle(every, NOON + DAY)
    assert sorted(going) == [f"{number:03}" for number in range(0, 100, 3)]
    assert plan.unconfirmed.files == 66


def test_the_plan_of_a_test_is_a_whole_plan(tmp_path):
    plan = Table(tmp_path).plan([row("a")])
    assert replace(plan, digest=plan_file.digest(plan.rows_path)) == plan


async def test_a_ledger_that_somebody_has_written_anew_counts_as_empty(tmp_path):
    table = Table(tmp_path)
    await table.cycle([row("a")], NOON)
    ledger = (await table.state.get_ledger(REF.label)).rows_path
    rows = pq.read_table(ledger)
    at = rows.schema.get_field_index("first_seen")
    long_ago = pa.array([NOON - 300 * DAY], rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, rows.schema.field(at), long_ago), ledger)
    assert (await table.cycle([row("a")], NOON + DAY / 2))[0] == []
