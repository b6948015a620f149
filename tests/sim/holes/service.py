"""Holes in what a service of several replicas rests on: leases, holds, approvals, clocks, what was begun."""

from __future__ import annotations

from tests.sim.mutants import SERVICE, body, edit, hole

_LAWS = "lakesweep.state.rules"
_WORKER = "lakesweep.daemon.lease"
_HOLDS = "lakesweep.daemon.holds"
_TENDING = "lakesweep.daemon.table_run"
_CHECK = "lakesweep.cleanup.check"

_TOKEN = "if newest.token > token:"
_ENDED = "if now >= newest.expires_at:"

HOLES = (
    hole(
        "two-leases-at-once",
        "A second replica is granted the lease that the first one has.",
        SERVICE,
        edit(
            _LAWS,
            "grant",
            "if newest and newest.owner != owner and now < newest.expires_at <= now + LONGEST_LEASE:",
            "if False:",
        ),
    ),
    hole(
        "old-tokens-count",
        "A lease that was granted to somebody else since still counts for its old holder.",
        SERVICE,
        edit(_LAWS, "require_valid", _TOKEN, "if False:"),
        edit(_LAWS, "require_valid", _ENDED, "if False:"),
        body(_WORKER, "HeldLease.check_time", "return None"),
        edit(
            _WORKER,
            "HeldLease.guarding",
            "async with asyncio.timeout_at(self._ends.by_loop) as self._deadline:",
            "async with asyncio.timeout(None) as self._deadline:",
        ),
        profile="leases",
    ),
    hole(
        "lease-not-checked-before-a-request",
        "A process that was suspended until its lease ended sends the request that it had ready.",
        SERVICE,
        body(_WORKER, "HeldLease.check_time", "return None"),
        profile="leases",
    ),
    hole(
        "lease-not-checked-before-a-batch",
        "Neither the lease nor the journal's fence is asked before a batch.",
        SERVICE,
        edit("lakesweep.cleanup.sweep", "Sweep.run", "                    await self.fence.check()\n", ""),
        edit(
            "lakesweep.state.store",
            "SqlStateStore.begin_batch",
            "        self._require_lease(connection, table, record.fencing_token)\n",
            "",
        ),
        body(_WORKER, "HeldLease.check_time", "return None"),
        profile="leases",
    ),
    hole(
        "lease-counted-from-the-answer",
        "The lease's time is counted from the store's response, not from the request.",
        SERVICE,
        edit(
            _WORKER,
            "lease",
            "held = HeldLease(state, claimed, ttl, sent_at)",
            "held = HeldLease(state, claimed, ttl, Moment.now())",
        ),
        edit(
            _WORKER,
            "HeldLease.heartbeat",
            "self._end_at(sent_at.after(self._ttl))",
            "self._end_at(Moment.now().after(self._ttl))",
        ),
        profile="leases",
    ),
    hole(
        "lease-not-renewed",
        "Nobody renews the lease of a long run.",
        SERVICE,
        edit(_WORKER, "HeldLease.heartbeat", "while True:", "while False:"),
        profile="leases",
    ),
    hole(
        "expiry-under-a-lost-lease",
        "An expiry is committed although the lease is another replica's by then.",
        SERVICE,
        edit("lakesweep.formats.iceberg.expire", "ExpiryCommit.run", "            await self.fence.check()\n", ""),
        edit("lakesweep.cleanup.execute", "_commit_expiry", "    await context.fence.check()\n", ""),
        edit(
            _WORKER,
            "HeldLease.guarding",
            "async with asyncio.timeout_at(self._ends.by_loop) as self._deadline:",
            "async with asyncio.timeout(None) as self._deadline:",
        ),
        profile="commits",
    ),
    hole(
        "pause-is-not-heard",
        "A paused table is cleaned.",
        SERVICE,
        body(_HOLDS, "refuse_held", "return None"),
        body("lakesweep.daemon.scheduler", "Scheduler._skips_paused", "return False"),
        profile="pauses",
    ),
    hole(
        "pause-heard-by-the-next-run-only",
        "A pause does not end a sweep that is under way.",
        SERVICE,
        edit("lakesweep.cleanup.sweep", "Sweep._referenced", "        await self.check_not_held()\n", ""),
        profile="pauses",
    ),
    hole(
        "pause-not-asked-before-the-commit",
        "A pause that comes while a run plans does not keep it from committing its expiry.",
        SERVICE,
        edit(_CHECK, "check_again", "    await ports.surroundings.check_not_held()\n", ""),
        profile="commits",
    ),
    hole(
        "changed-rules-not-heard",
        "A run goes on deleting under rules that no longer hold.",
        SERVICE,
        body(_TENDING, "overruled", "return False"),
        profile="pauses",
    ),
    hole(
        "approval-covers-everything",
        "An approval of one plan covers every later plan of the table.",
        SERVICE,
        edit("lakesweep.cleanup.approve", "Approvals.covered", "return found", "return plan.candidates"),
        profile="approvals",
    ),
    hole(
        "approval-for-ever",
        "An approval does not end.",
        SERVICE,
        edit("lakesweep.cleanup.approve", "standing", "if now < one.expires_at", "if True"),
        profile="approvals",
    ),
    hole(
        "approval-of-other-files",
        "An approved path covers whatever object lies there later.",
        SERVICE,
        edit(
            "lakesweep.cleanup.plan_file",
            "_values",
            "    same = pc.and_(pc.is_valid(index), pc.fill_null(same, False))\n",
            "    same = pc.is_valid(index)\n",
        ),
        profile="approvals",
    ),
    hole(
        "ceilings-lifted-by-anybody",
        "A plan above its ceilings is executed without an approval.",
        SERVICE,
        body("lakesweep.cleanup.guards", "_check_ceilings", "return None"),
        profile="approvals",
    ),
    hole(
        "clock-may-jump",
        "A clock that was set ahead by days makes young files old.",
        SERVICE,
        body("lakesweep.daemon.clock", "ClockWatch.check", "return None"),
        profile="clocks",
    ),
    hole(
        "clock-watched-at-the-start-only",
        "Cycles do not look at the watch over the clock: neither the plan nor the look before the first change.",
        SERVICE,
        edit(
            _CHECK,
            "check_again",
            "if refusal := await ports.surroundings.check_clock(context.policy.max_clock_skew):",
            "if refusal := None:",
        ),
        edit(
            "lakesweep.cleanup.plan",
            "_plan_now",
            "clock_refusal = await ports.surroundings.check_clock(policy.max_clock_skew)",
            "clock_refusal = None",
        ),
        profile="clocks",
    ),
    hole(
        "lasting-refusal-forgotten",
        "A refusal that must not be forgotten leaves no hold.",
        SERVICE,
        edit(
            _HOLDS,
            "hold_if_lasting",
            "await state.set_hold(Hold(scope=scope, since=now, by=OURSELVES, reason=run.refusal.reason))",
            "pass",
        ),
        profile="lasting",
    ),
    hole(
        "set-back-forgotten-before-the-hold",
        "A log that was set back is taken for granted before the table is held for it.",
        SERVICE,
        edit(
            "lakesweep.cleanup.table_notes",
            "set_back",
            'await _note(store, "position", state, position=seen, found=state.position)',
            'await _note(store, "position", state, position=state.position)',
        ),
        profile="lasting",
    ),
    hole(
        "neighbours-not-asked",
        "Another table that came into the place is not looked for.",
        SERVICE,
        body(_CHECK, "_check_neighbours", "return None"),
        profile="neighbours",
    ),
    hole(
        "neighbours-not-asked-again",
        "Another table that came into the place while the run planned is not looked for.",
        SERVICE,
        edit(
            _CHECK,
            "check_again",
            "refusal = await _check_neighbours(ports, marked.state, neighbours)",
            "refusal = None",
        ),
        profile="neighbours",
    ),
    hole(
        "neighbours-unknown-are-none",
        "A dataset whose tables cannot be listed counts as one without any.",
        SERVICE,
        edit("lakesweep.cleanup.guards", "check_neighbours", "if neighbours.problem is None:", "if True:"),
        profile="neighbours",
    ),
    hole(
        "interrupted-runs-stay-open",
        "A run whose process ended is never closed.",
        SERVICE,
        body("lakesweep.cleanup.run_recorder", "close_interrupted", "return 0"),
        profile="kills",
    ),
    hole(
        "interrupted-runs-forget-their-deletes",
        "A run whose process ended is closed as if it had deleted nothing.",
        SERVICE,
        body("lakesweep.cleanup.run_recorder", "_deletion", "return DeletionReport()"),
        profile="kills",
    ),
    hole(
        "run-ends-in-silence",
        "The outcome of a run is not written down.",
        SERVICE,
        edit(
            "lakesweep.cleanup.run_recorder",
            "RunRecorder.finish",
            "            await self._ports.state.update_run(run)\n",
            "            pass\n",
        ),
    ),
    hole(
        "due-again-at-once",
        "After a run the table is always due again at once.",
        SERVICE,
        edit(
            "lakesweep.daemon.due_times",
            "after_run",
            "failures, next_due = 0, schedule.after(now, jitter)",
            "failures, next_due = 0, now",
        ),
    ),
    hole(
        "failed-tables-never-again",
        "A table that failed once is never tried again.",
        SERVICE,
        edit(
            "lakesweep.daemon.due_times",
            "_backoff",
            "return doubled(failures, first, wait)",
            "return timedelta(days=3650)",
        ),
        edit(
            "lakesweep.daemon.due_times",
            "due_at",
            "return min(due.next_due, schedule.after(due.last_finished, jitter=1.0))",
            "return due.next_due",
        ),
        edit(
            "lakesweep.daemon.due_times",
            "after_run",
            "next_due = now + min(_backoff(schedule, failures, now), schedule.after(now, jitter) - now)",
            "next_due = now + _backoff(schedule, failures, now)",
        ),
        profile="away",
    ),
    hole(
        "state-store-away-goes-on",
        "A sweep goes on while the state store does not answer, without a journal.",
        SERVICE,
        edit(
            "lakesweep.cleanup.sweep",
            "Sweep.run",
            "                    await self.journal.begin_batch(record)\n",
            "                    try:\n"
            "                        await self.journal.begin_batch(record)\n"
            "                    except LakesweepError:\n"
            "                        pass\n",
        ),
        profile="away",
    ),
    hole(
        "audit-away-goes-on",
        "A sweep goes on while the audit trail cannot be written.",
        SERVICE,
        edit(
            "lakesweep.cleanup.sweep",
            "Sweep.run",
            "                    await self.audit.deleting(record, going, spared)\n",
            "                    try:\n"
            "                        await self.audit.deleting(record, going, spared)\n"
            "                    except LakesweepError:\n"
            "                        pass\n",
        ),
        profile="away",
    ),
)
