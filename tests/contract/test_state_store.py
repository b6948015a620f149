"""The laws of the StateStore port, on every back end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.builders.state_records import MINUTE, NOON, TABLE, a_batch, a_run, lease_with_run

from lakesweep.cleanup.report import run_document
from lakesweep.model.errors import LeaseLost, StateError
from lakesweep.model.files import DeletionReport, FailedDelete, OrphanPlan, Reason, Tally
from lakesweep.model.run import Lease, Outcome, Phase, Refusal, Restored
from lakesweep.ports.state import BatchState, DueTime, LedgerHeader, Notice, PlanHeader, RunFigures

OTHER = replace(TABLE, name="orders")


def a_plan(run_id="r1", **changes):
    plan = PlanHeader(
        run_id=run_id,
        table=TABLE.label,
        head="s3://lake/acme/events/metadata/7.json",
        digest="d1",
        rows_path="/artifacts/r1.parquet",
        candidates=2**40,
        bytes=2**60,
        created_at=NOON,
    )
    return replace(plan, **changes)


BIG = OrphanPlan(
    head="h", cutoff=NOON, verdicts={}, candidates=Tally(files=2, bytes=2**60), by_kind={}, by_reason={},
    missing=(), missing_count=0,
    references=0, matched=0, rows_path="", digest="", engine="inprocess",
)  # fmt: skip


# Runs


async def test_a_run_comes_back_as_its_document(store):
    run = a_run(
        phase=Phase.FINISHED,
        outcome=Outcome.REFUSED,
        finished_at=NOON + MINUTE,
        refusal=Refusal(code="ceiling", reason="61 % of the files"),
        expired_snapshots=("9223372036854775807",),
        deletion=DeletionReport(deleted=Tally(files=3, bytes=2**62), by_kind={"data": Tally(files=3, bytes=2**62)}),
    )
    await store.start_run(run)
    document = await store.get_run("r1")
    assert document == json.loads(json.dumps(run_document(run)))


async def test_any_text_of_a_path_survives(store):
    paths = ["s3://b/a b#c?d%20e+f//é☃😀", "file:///undecodable\udcff", 'quote"\\\n\t', "nul\x00"]
    failed = tuple(FailedDelete(path=path, why="denied") for path in paths)
    await store.start_run(a_run(deletion=DeletionReport(failed=failed)))
    document = await store.get_run("r1")
    assert [entry["path"] for entry in document["failed"]["files"]] == paths


async def test_a_run_is_open_until_it_has_an_outcome(store):
    await store.start_run(a_run())
    await store.start_run(a_run("r2", started_at=NOON + MINUTE))
    await store.start_run(a_run("r3", table=OTHER))
    assert [run["run_id"] for run in await store.open_runs(TABLE.label)] == ["r2", "r1"]
    await store.update_run(a_run(outcome=Outcome.DONE, phase=Phase.FINISHED, finished_at=NOON + MINUTE))
    assert [run["run_id"] for run in await store.open_runs(TABLE.label)] == ["r2"]
    assert (await store.get_run("r1"))["outcome"] == "done"


async def test_runs_are_listed_newest_first_by_table_and_limit(store):
    for number in range(5):
        table = TABLE if number % 2 == 0 else OTHER
        await store.start_run(a_run(f"r{number}", table=table, started_at=NOON + number * MINUTE))
    assert [run["run_id"] for run in await store.list_runs()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run["run_id"] for run in await store.list_runs(limit=2)] == ["r4", "r3"]
    assert [run["run_id"] for run in await store.list_runs(table=TABLE.label, limit=2)] == ["r4", "r2"]
    assert await store.list_runs(table="acme/prod/none") == []


async def test_the_newest_run_of_each_table_is_found_at_once(store):
    for number in range(5):
        table = TABLE if number % 2 == 0 else OTHER
        await store.start_run(a_run(f"r{number}", table=table, started_at=NOON + number * MINUTE))
    last = await store.last_runs([TABLE.label, OTHER.label, "acme/prod/none"])
    assert {table: run["run_id"] for table, run in last.items()} == {TABLE.label: "r4", OTHER.label: "r3"}
    assert set(await store.last_runs([TABLE.label])) == {TABLE.label}
    assert await store.last_runs([]) == {}


async def test_the_newest_plan_of_each_table_is_found_at_once(store):
    ended = {"outcome": Outcome.REFUSED, "phase": Phase.FINISHED, "plan": BIG}
    await store.start_run(a_run("planned", **ended))
    await store.save_plan(a_plan("planned"))
    await store.start_run(a_run("failed", started_at=NOON + MINUTE, **{**ended, "outcome": Outcome.FAILED}))
    await store.start_run(a_run("under-way", started_at=NOON + 2 * MINUTE))
    await store.save_plan(a_plan("under-way"))
    died = a_run("died", started_at=NOON + 3 * MINUTE)
    await store.start_run(died)
    await store.save_plan(a_plan("died"))
    closed = {**run_document(died), "outcome": Outcome.FAILED, "reason": "interrupted: killed", "interrupted": True}
    assert await store.close_run(closed)
    await store.start_run(a_run("other", table=OTHER, **ended))
    unlisted = a_run("unlisted", started_at=NOON + 4 * MINUTE, **{**ended, "plan": replace(BIG, listed=False)})
    await store.start_run(unlisted)
    await store.save_plan(a_plan("unlisted"))
    assert not (await store.run_figures(NOON + 4 * MINUTE))[0].planned
    found = await store.last_planned()
    assert {table: run["run_id"] for table, run in found.items()} == {TABLE.label: "planned"}
    assert await store.last_planned(["umbrella"]) == {}
    assert set(await store.last_planned(["acme"])) == {TABLE.label}


async def test_the_figures_of_runs_come_oldest_first(store):
    gone = DeletionReport(deleted=Tally(files=1, bytes=2**59))
    plan = replace(BIG, by_reason={Reason.EXPIRED: Tally(files=1, bytes=2**57)})
    await store.start_run(a_run("new", started_at=NOON + MINUTE, outcome=Outcome.DONE, plan=plan, deletion=gone))
    await store.save_plan(a_plan("new"))
    restored = Restored(of="new", restored=Tally(files=1, bytes=2**58))
    await store.start_run(a_run("old", outcome=Outcome.FAILED, restored=restored))
    await store.start_run(a_run("older", started_at=NOON - MINUTE, outcome=Outcome.DONE))
    await store.start_run(a_run("open", started_at=NOON + MINUTE))
    assert await store.run_figures(NOON) == [
        RunFigures(
            table=TABLE.label,
            started_at=NOON,
            planned=False,
            orphan_bytes=0,
            deleted_bytes=0,
            freed_bytes=0,
            restored_bytes=2**58,
            restored_files=1,
        ),
        RunFigures(
            table=TABLE.label,
            started_at=NOON + MINUTE,
            planned=True,
            orphan_bytes=2**60,
            deleted_bytes=2**59,
            freed_bytes=2**59,
            deleted_files=1,
            expired_bytes=2**57,
        ),
    ]
    assert await store.run_figures(NOON, ["umbrella"]) == []
    assert len(await store.run_figures(NOON, table=TABLE.label)) == 2
    assert await store.run_figures(NOON, table=OTHER.label) == []


async def test_runs_are_found_by_the_beginning_of_their_id(store):
    for number, run_id in enumerate(("abc1", "abc2", "b%_c")):
        await store.start_run(a_run(run_id, started_at=NOON + number * MINUTE))
    assert [run["run_id"] for run in await store.runs_beginning("abc")] == ["abc2", "abc1"]
    assert [run["run_id"] for run in await store.runs_beginning("abc", limit=1)] == ["abc2"]
    assert [run["run_id"] for run in await store.runs_beginning("b%")] == ["b%_c"]
    assert await store.runs_beginning("%") == []


async def test_times_of_any_zone_sort_as_moments(store):
    tokyo = datetime.fromisoformat("2026-03-01T20:59:59+09:00")  # one second before noon in UTC
    await store.start_run(a_run("later", started_at=NOON))
    await store.start_run(a_run("earlier", started_at=tokyo))
    assert [run["run_id"] for run in await store.list_runs()] == ["later", "earlier"]


async def test_a_run_starts_once_and_only_a_started_run_is_updated(store):
    await store.start_run(a_run())
    with pytest.raises(StateError, match="r1 is already recorded"):
        await store.start_run(a_run(table=OTHER))
    with pytest.raises(StateError, match="r2 is not recorded"):
        await store.update_run(a_run("r2"))
    assert (await store.get_run("r1"))["table"] == TABLE.label
    assert await store.get_run("r2") is None


async def test_a_document_given_out_is_the_callers_own(store):
    await store.start_run(a_run())
    (await store.get_run("r1"))["deleted"]["count"] = 99
    assert (await store.get_run("r1"))["deleted"]["count"] == 0


# Plans


async def test_a_run_has_one_plan_for_ever(store):
    await store.start_run(a_run())
    assert await store.get_plan("r1") is None
    await store.save_plan(a_plan())
    await store.save_plan(a_plan())
    with pytest.raises(StateError, match="already has another plan"):
        await store.save_plan(a_plan(digest="d2"))
    assert await store.get_plan("r1") == a_plan()


async def test_a_plan_needs_its_run(store):
    with pytest.raises(StateError, match="r1 is not recorded"):
        await store.save_plan(a_plan())
    assert await store.get_plan("r1") is None


# The journal


async def test_an_intent_is_journaled_and_then_finished(store):
    lease = await lease_with_run(store)
    await store.begin_batch(a_batch(1, lease.token))
    await store.begin_batch(a_batch(0, lease.token))
    done = a_batch(0, lease.token, state=BatchState.DONE, deleted=7, bytes=2**50, already_gone=2, failed=1)
    await store.finish_batch(done)
    assert await store.journal("r1") == [done, a_batch(1, lease.token)]
    assert await store.journal("r2") == []


async def test_a_batch_number_is_unique_per_run(store):
    lease = await lease_with_run(store)
    await store.start_run(a_run("r2"))
    await store.begin_batch(a_batch(0, lease.token))
    await store.begin_batch(a_batch(0, lease.token, run_id="r2"))
    with pytest.raises(StateError, match="already in the journal"):
        await store.begin_batch(a_batch(0, lease.token, count=3))
    assert await store.journal("r1") == [a_batch(0, lease.token)]


async def test_an_intent_is_finished_once_and_again_only_with_equal_content(store):
    lease = await lease_with_run(store)
    await store.begin_batch(a_batch(0, lease.token))
    done = a_batch(0, lease.token, state=BatchState.DONE, deleted=10)
    await store.finish_batch(done)
    await store.finish_batch(done)
    with pytest.raises(StateError, match="another outcome"):
        await store.finish_batch(replace(done, deleted=9))
    assert await store.journal("r1") == [done]


@pytest.mark.parametrize("change", [{"first": 1}, {"count": 9}, {"fencing_token": 2}])
async def test_an_outcome_must_match_its_intent(store, change):
    lease = await lease_with_run(store)
    await store.begin_batch(a_batch(0, lease.token))
    with pytest.raises(StateError, match="does not match"):
        await store.finish_batch(a_batch(0, lease.token, state=BatchState.DONE, **change))
    assert await store.journal("r1") == [a_batch(0, lease.token)]


async def test_an_outcome_without_intent_is_an_error(store):
    await lease_with_run(store)
    with pytest.raises(StateError, match="has no intent"):
        await store.finish_batch(a_batch(state=BatchState.DONE))


async def test_no_batch_begins_without_a_run(store):
    with pytest.raises(StateError, match="r1 is not recorded"):
        await store.begin_batch(a_batch())


async def test_no_batch_begins_under_a_lease_that_is_not_valid(store, state_backend):
    await store.start_run(a_run())
    with pytest.raises(LeaseLost, match="never granted"):
        await store.begin_batch(a_batch(token=1))
    first = await store.acquire_lease(TABLE.label, "a", MINUTE)
    with pytest.raises(LeaseLost, match="never granted"):
        await store.begin_batch(a_batch(token=first.token + 1))
    await state_backend.advance(61)
    with pytest.raises(LeaseLost, match="ended at"):
        await store.begin_batch(a_batch(token=first.token))
    second = await store.acquire_lease(TABLE.label, "b", MINUTE)
    with pytest.raises(LeaseLost, match="b was granted 2"):
        await store.begin_batch(a_batch(token=first.token))
    await store.release_lease(second)
    with pytest.raises(LeaseLost, match="ended at"):
        await store.begin_batch(a_batch(token=second.token))
    assert await store.journal("r1") == []


async def test_the_lease_of_another_table_allows_no_batch(store):
    await store.start_run(a_run())
    other = await store.acquire_lease(OTHER.label, "worker", MINUTE)
    with pytest.raises(LeaseLost):
        await store.begin_batch(a_batch(token=other.token))


async def test_what_was_deleted_is_recorded_even_after_the_lease_was_lost(store, state_backend):
    lease = await lease_with_run(store)
    await store.begin_batch(a_batch(0, lease.token))
    await state_backend.advance(61)
    assert await store.acquire_lease(TABLE.label, "b", MINUTE)
    done = a_batch(0, lease.token, state=BatchState.DONE, deleted=10)
    await store.finish_batch(done)
    assert await store.journal("r1") == [done]


async def test_many_batches_side_by_side_are_all_journaled(store):
    lease = await lease_with_run(store)

    async def one(number):
        await store.begin_batch(a_batch(number, lease.token))
        await store.finish_batch(a_batch(number, lease.token, state=BatchState.DONE, deleted=number))

    await asyncio.gather(*(one(number) for number in range(40)))
    assert [record.deleted for record in await store.journal("r1")] == list(range(40))


async def test_of_many_that_race_to_finish_a_batch_exactly_one_wins(open_store):
    stores = [await open_store(), await open_store()]
    lease = await lease_with_run(stores[0])
    await stores[0].begin_batch(a_batch(0, lease.token))
    outcomes = [a_batch(0, lease.token, state=BatchState.DONE, deleted=number) for number in range(10)]
    said = await asyncio.gather(
        *(stores[number % 2].finish_batch(done) for number, done in enumerate(outcomes)), return_exceptions=True
    )
    (winner,) = [done for done, error in zip(outcomes, said, strict=True) if error is None]
    assert all(isinstance(error, StateError) for error in said if error is not None)
    assert await stores[1].journal("r1") == [winner]


# Leases


async def test_a_lease_excludes_others_until_it_is_released(store):
    lease = await store.acquire_lease(TABLE.label, "a", MINUTE)
    assert await store.acquire_lease(TABLE.label, "b", MINUTE) is None
    assert await store.acquire_lease(OTHER.label, "b", MINUTE)
    await store.check_lease(lease)
    await store.release_lease(lease)
    with pytest.raises(LeaseLost):
        await store.check_lease(lease)
    assert (await store.acquire_lease(TABLE.label, "b", MINUTE)).token > lease.token


async def test_an_expired_lease_is_lost_even_if_nobody_took_it(store, state_backend):
    lease = await store.acquire_lease(TABLE.label, "a", MINUTE)
    await state_backend.advance(61)
    with pytest.raises(LeaseLost):
        await store.check_lease(lease)
    with pytest.raises(LeaseLost):
        await store.renew_lease(lease, MINUTE)
    assert (await store.acquire_lease(TABLE.label, "b", MINUTE)).token > lease.token


async def test_renewing_extends_and_keeps_the_token(store, state_backend):
    lease = await store.acquire_lease(TABLE.label, "a", MINUTE)
    await state_backend.advance(40)
    renewed = await store.renew_lease(lease, MINUTE)
    assert renewed.token == lease.token
    await state_backend.advance(40)
    await store.check_lease(lease)
    assert await store.acquire_lease(TABLE.label, "b", MINUTE) is None


async def test_an_owner_that_asks_again_voids_its_own_lease(store):
    first = await store.acquire_lease(TABLE.label, "a", MINUTE)
    second = await store.acquire_lease(TABLE.label, "a", MINUTE)
    assert second.token > first.token
    await store.check_lease(second)
    with pytest.raises(LeaseLost):
        await store.check_lease(first)


async def test_releasing_an_old_lease_leaves_the_new_one_alone(store, state_backend):
    old = await store.acquire_lease(TABLE.label, "a", MINUTE)
    await state_backend.advance(61)
    new = await store.acquire_lease(TABLE.label, "b", MINUTE)
    await store.release_lease(old)
    await store.check_lease(new)
    assert await store.acquire_lease(TABLE.label, "c", MINUTE) is None


async def test_a_lease_that_was_never_granted_is_no_lease(store):
    invented = Lease(table=TABLE.label, owner="a", token=7, expires_at=NOON + timedelta(days=36500))
    with pytest.raises(LeaseLost):
        await store.check_lease(invented)
    with pytest.raises(LeaseLost):
        await store.renew_lease(invented, MINUTE)
    await store.release_lease(invented)
    assert (await store.acquire_lease(TABLE.label, "b", MINUTE)).token == 1


async def test_of_many_that_race_for_a_lease_exactly_one_wins(open_store):
    stores = [await open_store(), await open_store()]
    last = 0
    for _ in range(5):
        owners = [f"owner {number}" for number in range(20)]
        granted = await asyncio.gather(
            *(stores[number % 2].acquire_lease(TABLE.label, owner, MINUTE) for number, owner in enumerate(owners))
        )
        (winner,) = [lease for lease in granted if lease]
        assert winner.token > last
        last = winner.token
        await stores[0].release_lease(winner)


async def test_the_journal_is_never_behind_the_lease(open_store):
    """Whoever loses the race, no intent of an old token is written once a newer token was handed out."""
    mine, theirs = await open_store(), await open_store()
    lease = await lease_with_run(mine)

    async def take_over():
        await theirs.release_lease(lease)
        await theirs.acquire_lease(TABLE.label, "b", MINUTE)
        return len(await theirs.journal("r1"))

    async def keep_working():
        for number in range(200):
            try:
                await mine.begin_batch(a_batch(number, lease.token))
            except LeaseLost:
                return number
        return 200

    begun, seen_at_takeover = await asyncio.gather(keep_working(), take_over())
    assert begun == seen_at_takeover == len(await mine.journal("r1"))


def lease_machine(runner, backend, store):
    """A model of leases on one table: the newest token, and how long it is still good for."""

    class Leases(RuleBasedStateMachine):
        examples = 0

        def __init__(self):
            super().__init__()
            Leases.examples += 1
            self.table = f"acme/prod/example {Leases.examples}"
            self.given: list[Lease] = []
            self.left = 0

        @property
        def newest(self):
            return self.given[-1] if self.given else None

        def is_valid(self, lease):
            return lease is self.newest and self.left > 0

        @rule(owner=st.sampled_from("abc"))
        def acquire(self, owner):
            lease = runner.run(store.acquire_lease(self.table, owner, timedelta(seconds=1000)))
            if self.left > 0 and self.newest.owner != owner:
                assert lease is None
                return
            assert lease.token > max((old.token for old in self.given), default=0)
            self.given.append(lease)
            self.left = 1000

        @rule(index=st.integers(0, 5))
        def renew(self, index):
            if index < len(self.given):
                lease = self.given[-1 - index]
                if self.is_valid(lease):
                    assert runner.run(store.renew_lease(lease, timedelta(seconds=1000))).token == lease.token
                    self.left = 1000
                else:
                    with pytest.raises(LeaseLost):
                        runner.run(store.renew_lease(lease, timedelta(seconds=1000)))

        @rule(index=st.integers(0, 5))
        def release(self, index):
            if index < len(self.given):
                lease = self.given[-1 - index]
                runner.run(store.release_lease(lease))
                self.left = 0 if lease is self.newest else self.left

        @rule(seconds=st.sampled_from([300, 700, 1300]))
        def wait(self, seconds):
            runner.run(backend.advance(seconds))
            self.left -= seconds

        @invariant()
        def only_the_newest_unexpired_lease_is_valid(self):
            valid = []
            for lease in self.given[-3:]:
                try:
                    runner.run(store.check_lease(lease))
                    valid.append(lease)
                except LeaseLost:
                    pass
            assert valid == ([self.newest] if self.left > 0 else [])

    return Leases


def test_tokens_only_grow_and_never_are_two_holders_valid(state_backend):
    with asyncio.Runner() as runner:
        store = runner.run(state_backend.open())
        try:
            run_state_machine_as_test(
                lease_machine(runner, state_backend, store),
                settings=settings(
                    max_examples=25, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
                ),
            )
        finally:
            runner.run(store.aclose())


# Pending expiry, due times, ledgers


async def test_a_pending_expiry_is_remembered_per_table_until_it_is_cleared(store):
    assert await store.pending_expiry(TABLE.label) is None
    await store.set_pending_expiry(TABLE.label, "head 7", "r1")
    await store.set_pending_expiry(OTHER.label, "head 3", "r2")
    await store.set_pending_expiry(TABLE.label, "head 8", "r3")
    assert await store.pending_expiry(TABLE.label) == "head 8"
    await store.set_pending_expiry(TABLE.label, None, "r4")
    await store.set_pending_expiry(TABLE.label, None, "r4")
    assert await store.pending_expiry(TABLE.label) is None
    assert await store.pending_expiry(OTHER.label) == "head 3"


async def test_due_times_are_kept_per_table_the_soonest_first(store):
    assert await store.due_times() == []
    late = DueTime(table=TABLE.label, next_due=NOON + MINUTE)
    soon = DueTime(table=OTHER.label, next_due=NOON, last_finished=NOON - MINUTE, last_outcome="failed", failures=3)
    await store.set_due(late)
    await store.set_due(soon)
    assert await store.due_times() == [soon, late]
    later = replace(soon, next_due=NOON + 2 * MINUTE, last_outcome=None, last_finished=None, failures=0)
    await store.set_due(later)
    assert await store.due_times() == [late, later]


async def test_a_table_has_one_ledger(store):
    assert await store.get_ledger(TABLE.label) is None
    ledger = LedgerHeader(table=TABLE.label, rows_path="/artifacts/ledger 1.parquet", updated_at=NOON, run_id="r1")
    await store.set_ledger(ledger)
    newer = replace(ledger, rows_path="/artifacts/ledger 2.parquet", run_id="r2")
    await store.set_ledger(newer)
    assert await store.get_ledger(TABLE.label) == newer
    assert await store.get_ledger(OTHER.label) is None


async def test_an_open_store_answers_a_ping(store):
    assert await store.ping() is None


# Notices


async def test_notices_wait_oldest_first_until_they_are_delivered_or_given_up(store):
    made = [
        Notice(id=f"n{n}", table="acme/d/t", created_at=NOON + n * MINUTE, next_try=NOON, body={"id": n, "x": "\u00e9"})
        for n in (2, 1, 3)
    ]
    for notice in (*made, replace(made[0], body={})):  # one of the same id is there already
        await store.add_notice(notice)
    assert await store.notices() == sorted(made, key=lambda one: one.created_at)
    assert await store.notices(limit=1) == [made[1]]
    first = made[1]
    assert await store.claim_notice(first, NOON + MINUTE)
    assert not await store.claim_notice(first, NOON + MINUTE)
    assert (await store.notices())[0] == replace(first, attempts=1, next_try=NOON + MINUTE)
    await store.end_notice("n1")
    await store.end_notice("n2", dead_at=NOON + 5 * MINUTE)
    assert [one.id for one in await store.notices()] == ["n3"]
    assert await store.notices(dead=True) == [replace(made[0], dead_at=NOON + 5 * MINUTE)]
    assert not await store.claim_notice(made[0], NOON)
