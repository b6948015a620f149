"""Stories of whole services: two or three replicas on one state store, operators, and all that may go wrong between.

A seed makes a script, the script makes the story: leaving out a part of a script gives another story that can happen,
which is how a failing one is shrunk. Everything that is checked is in `watch.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.sim import service_profiles, shortcuts
from tests.sim.formats import Model, open_model
from tests.sim.product import open_format
from tests.sim.replicas import REPLICA, Machine, Replica, ServiceLoop, SimWorld, seams, settings_of
from tests.sim.service_profiles import SWEEPING, Subject
from tests.sim.service_steps import SubjectSteps
from tests.sim.story import Step
from tests.sim.watch import Watch
from tests.sim.world import Adversary, Call, Fault, Killed, Rules

from lakesweep.daemon import clock, holds, scheduler
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import LakesweepError
from lakesweep.model.table import TableRef
from lakesweep.ports.state import Hold
from lakesweep.settings.schema import Settings

OPERATOR = "operator"
LEASE_SECONDS = 60
SCOPE = "acme/prod"
QUIET_CYCLES = 8
"""Cycles of a quiet world after which everything dead is gone."""
_SLUGGISH_SECONDS = 2
_LATE_LEASES = 12
"""In one wait: replicas that take a table from each other again and again would go on for ever."""
_LEANS = 0.7
"""How often a writer's step is one of those that the story is about."""
LONGEST_WAIT = timedelta(hours=1001)
"""The longest retention that a model draws, and a day: after it everything dead is old enough."""

_FAULTS = ("unavailable", "timeout", "throttled", "partial")
_OPERATOR_STEPS = ("pause", "resume", "stop", "approve", "request", "settings", "clock", "clock right")
_OPERATIONS = (
    *("", "", "list", "read", "put", "commit", "pointer", "stat", "save_plan", "set_pending_expiry", "set_due"),
    *("delete", "delete", "delete", "begin_batch", "begin_batch", "finish_batch", "acquire_lease", "renew_lease"),
)
_INNER = (
    ("writer",) * 4
    + ("fault",) * 3
    + ("kill", "freeze", "freeze", "slow", "pause", "stop", "settings", "clock", "rush")
)


class ServiceStory:
    """One story. `run` raises Lost with what went wrong."""

    def __init__(self, format: str, seed: int, script: Sequence[Step] | None = None, *, tracing: bool = False) -> None:
        self.format, self.seed = format, seed
        chance = random.Random(f"service {format} {seed}")
        self.rules = Rules(
            max_snapshot_age=chance.choice((24, 48, 72)), batch_size=chance.choice((1, 2, 3, 5)), confirm_after=0
        )
        self.replicas_wanted = chance.choice((2, 2, 3))
        self.interval = chance.choice((6, 12, 24))
        self.ceiling = chance.choice((3, 8, 10_000, 10_000))
        self.local_clock = chance.random() < 0.3
        self.subject = service_profiles.of(seed)
        if self.subject is not None:
            self.rules = replace(self.rules, batch_size=chance.choice(self.subject.batches))
            self.ceiling, self.local_clock = self.subject.ceiling, self.subject.local_clock
        self.script = list(script) if script is not None else _made_up(chance, self.subject)
        self.world = SimWorld(rules=self.rules)
        self.world.tracing = tracing
        self.world.local_clock = self.local_clock
        self.replicas: dict[int, Replica] = {}

    def run(self) -> None:
        """From the beginning to the quiet end."""
        with shortcuts.taken(), seams(self.world, self.seed) as place:
            loop = ServiceLoop(lambda seconds: self.world.advance(timedelta(seconds=seconds)))
            self.loop = loop
            self.world.frozen = lambda: loop.frozen
            self.world.end_all = self._end_all
            try:
                loop.run(self._whole(place))
            finally:
                loop.close()

    async def _whole(self, place: Path) -> None:
        try:
            await self._told(place)
        finally:
            self.world.adversary = Adversary()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for replica in self.replicas.values():
                self.loop.wake(replica.name)
                replica.machine.alive = False
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others)

    # ---- the story

    async def _told(self, place: Path) -> None:
        world = self.world
        world.random = random.Random(f"{self.seed} begin")
        self.model: Model = open_model(self.format, world)
        self.model.begin()
        self.settings = self._settings(place, dry_run=False)
        self.quiet_settings = self._settings(place, dry_run=True)
        self.last_settings = self._settings(place, dry_run=False, interval=72 if self._is_unasked() else 720)
        self.settings_now = self.settings
        world.open_format = lambda adapters, dataset: _OurTable(open_format(self.model, adapters.process))
        self.watch = Watch(world, self.model, ceiling=self.ceiling, strict=self.subject is not None)
        self.steps = SubjectSteps(world, self.model)
        self.away: frozenset[str] = frozenset()
        """Calls that find nobody at present."""
        self.no_audit_until = world.now
        """Until then the audit trail cannot be written."""
        self.late_leases = 0
        """So many answers to a lease are late from here on: it has nearly ended when it is known."""
        self.late: set[str] = set()
        """Processes that have got theirs so: they stand still before their next request."""
        self.sluggish = False
        """Does every call take its time at present?"""
        self.births = 0
        self.operator = Replica(machine=Machine(world, OPERATOR), settings=self.settings)
        await self.operator.opened()
        self.events: list[Step] = []
        self.counts: Counter[str] = Counter()
        world.adversary = _Adversary(self)
        for number in range(self.replicas_wanted):
            self._start(number)
        for number, step in enumerate(self.script):
            await self._step(number, step)
            self.watch.check()
        await self._end()

    async def _step(self, number: int, step: Step) -> None:
        world = self.world
        world.random = random.Random(f"{self.seed} {number} {step.seed}")
        self.counts, self.events = Counter(), list(step.inner)
        if step.name == "writer":
            self._write()
        elif step.name == "wait" and self.subject is not None:
            await asyncio.sleep(world.random.uniform(26, 60) * 3600)  # until what is dead is old enough
        elif step.name in ("wait", "short wait"):
            await asyncio.sleep(world.random.choice((0.5, 1.2, 1.2, 3, 6, 10)) * self.interval * 3600)
        elif step.name == "kill":
            self._kill(world.random.choice(sorted(self.replicas)))
        elif step.name == "freeze":
            self._freeze(self.replicas[world.random.choice(sorted(self.replicas))], world.random.uniform(10, 7200))
        elif step.name == "late wait":
            self.late_leases = _LATE_LEASES
            await asyncio.sleep(world.random.uniform(26, 60) * 3600)
            self.late_leases = 0
        elif step.name == "catalog away":
            self.away = frozenset({"tables"})
            await asyncio.sleep(world.random.uniform(50, 100) * 3600)
            self.away = frozenset()
        elif not self.steps.do(step.name):
            await self._operate(step.name)
        await self._restore()
        self.events = []

    async def _restore(self) -> None:
        """People do what a refusal asks of them, if that is something to be done to the table."""
        for run in await self.operator.app.state.list_runs(limit=1):
            if run["refused"] and run["refused"]["code"].startswith("ref_"):
                self.model.restore()

    def _write(self, *, late: bool = False) -> None:
        """A writer's step. What brings dead files back only comes where the product can still notice."""
        steps = [*self.model.steps(), *(() if late else self.model.revivals())]
        if steps and self.subject is not None and self.world.random.random() < _LEANS:
            steps = self.subject.leaning(self.format, steps)
        if steps:
            self.model.do(self.world.random.choice(steps))

    # ---- replicas

    def _start(self, number: int) -> None:
        self.births += 1
        machine = Machine(self.world, f"replica-{number}.{self.births}")
        machine.page_rows, machine.request_keys = 40, self.subject.request_keys if self.subject else 3
        if number in self.replicas:
            self.world.seen["a replica was started again"] += 1
            machine.clock_error = self.replicas[number].machine.clock_error
        if self.subject is not None:  # killed processes are started again on the same machine
            machine.boot = f"machine {number}"
            machine.was_right = number in self.replicas and self.replicas[number].machine.was_right
        replica = self.replicas[number] = Replica(machine=machine, settings=self.settings_now)
        self.watch.ruled(machine.name, dry_run=self.settings_now.orphan_cleanup.dry_run)
        self.world.say(machine.name, "starts")
        replica.start(random.Random(f"{self.seed} luck {self.births}"))

    def _kill(self, number: int) -> None:
        replica = self.replicas[number]
        if not replica.machine.alive:
            return
        self.world.say(replica.name, "is killed")
        self.world.seen["a replica was killed"] += 1
        self.loop.wake(replica.name)
        replica.kill()
        token = REPLICA.set("")
        self.loop.call_later(self.world.random.uniform(1, 4000), self._start, number)
        REPLICA.reset(token)

    def _end_all(self) -> None:
        for replica in self.replicas.values():
            replica.kill()

    def _freeze(self, replica: Replica, seconds: float) -> None:
        if not replica.machine.alive or replica.name in self.loop.frozen:
            return
        self.world.say(replica.name, f"stands still for {seconds:.0f} s")
        self.loop.frozen.add(replica.name)
        token = REPLICA.set("")
        self.loop.call_later(seconds, self._wake, replica)
        REPLICA.reset(token)

    def _overtake(self, replica: Replica, seconds: float) -> None:
        """It stands still, and meanwhile people ask the others for its table, who are at work when it goes on."""
        self._freeze(replica, seconds)
        self.sluggish = replica.name in self.loop.frozen
        token = REPLICA.set("")
        for share in (0.45, 0.9):
            self.loop.call_later(seconds * share, self._request_of_others, replica)
        REPLICA.reset(token)

    def _request_of_others(self, replica: Replica) -> None:
        for other in self._schedulers():
            if other is not replica and other.name not in self.loop.frozen:
                for table in sorted(other.scheduler.known_tables.entries):
                    with suppress(LakesweepError):
                        other.scheduler.request(table, execute=None, trigger=Trigger(by=TriggeredBy.API, who="x"))

    def _wake(self, replica: Replica) -> None:
        self.world.say(replica.name, "goes on")
        self.watch.woke(replica.name)
        self.sluggish = False
        self.loop.wake(replica.name)

    # ---- people

    async def _operate(self, name: str) -> None:
        """What an operator does. What the service refuses is no trouble of the story's."""
        app, chance = self.operator.app, self.world.random
        self.world.say(OPERATOR, name)
        try:
            if name == "pause":
                await holds.pause(app, self._hold())
                self.watch.paused()
            elif name == "stop":
                await holds.stop(app, self._hold())
                self.watch.paused()
                for replica in self._schedulers():
                    replica.scheduler.end_covered(self._hold())
            elif name == "resume":
                self.steps.mend()  # a hold that the product set is lifted by a person who has looked
                for hold in await app.state.holds():
                    await holds.resume(app, hold.scope, by=OPERATOR, admin=True)
                self.watch.resumed()
            elif name in ("approve", "approve any"):
                await self._approve(newest=name == "approve")
            elif name in ("request", "request all"):
                for replica in self._schedulers()[: 1 if name == "request" else None]:
                    for table in sorted(replica.scheduler.known_tables.entries):
                        replica.scheduler.request(table, execute=None, trigger=Trigger(by=TriggeredBy.API, who="x"))
            elif name == "settings":
                self._reload(self.quiet_settings if chance.random() < 0.6 else self.settings)
            elif name in ("quiet settings", "settings back"):
                self._reload(self.quiet_settings if name == "quiet settings" else self.settings)
            elif name == "clock":
                self._set_clock(timedelta(hours=chance.choice((-30, -3, -0.1, 0.1, 3, 30, 80, 200))))
            elif name == "clock ahead":
                self._set_clock(timedelta(hours=chance.choice((26, 30, 80, 200))))
            elif name == "clock right":
                self._set_clock(None)
        except LakesweepError as exc:
            self.world.say(OPERATOR, name, exc)

    def _hold(self) -> Hold:
        return Hold(scope=SCOPE, since=self.world.now, by=OPERATOR, reason="a story", by_admin=True)

    def _schedulers(self) -> list[Any]:
        return [one for _, one in sorted(self.replicas.items()) if one.machine.alive and one.scheduler is not None]

    async def _approve(self, *, newest: bool) -> None:
        state = self.operator.app.state
        runs = await state.list_runs(limit=3 if newest else 12)
        for run in runs if newest else self.world.random.sample(runs, len(runs)):
            refused = run["refused"]
            if refused and refused["code"].startswith("ceiling"):
                await self.operator.app.approve(run["run_id"], by=OPERATOR)
                await self.watch.approved(self.operator.app, run["run_id"])
                for replica in self._schedulers():
                    replica.scheduler.invalidate()
                return

    def _reload(self, settings: Settings) -> None:
        self.settings_now = settings
        for replica in self._schedulers():
            if replica.name not in self.loop.frozen and replica.app.settings is not settings:
                successor = replica.app.successor(settings)
                replica.scheduler.adopt(successor)
                replica.app = successor
                replica.settings = settings
                self.watch.ruled(replica.name, dry_run=settings.orphan_cleanup.dry_run)

    def planned(self, process: str) -> None:
        """One of them has got so far: its clock is known from here on, if it is right."""
        for replica in self.replicas.values():
            if replica.name == process and not replica.machine.clock_error:
                replica.machine.was_right = True

    def _set_clock(self, jump: timedelta | None) -> None:
        able = [one for one in sorted(self.replicas) if self.subject is None or self.replicas[one].machine.was_right]
        if not able:
            return
        replica = self.replicas[self.world.random.choice(able)]
        if self.world.local_clock and not replica.machine.was_right:
            return  # a real service looks at its clock when it starts, which stories leave out
        error = timedelta(0) if jump is None else replica.machine.clock_error + jump
        self.world.say(replica.name, f"its clock is {error} ahead")
        replica.machine.clock_error = error

    # ---- the end

    async def _end(self) -> None:
        """Everybody comes to rest: then all that is dead goes, and the books are right."""
        world = self.world
        world.adversary = _Slow(self.subject.slow_end) if self.subject and self.subject.slow_end else Adversary()
        self.events = []
        world.random = random.Random(f"{self.seed} end")
        for name in sorted(self.loop.frozen):
            self.loop.wake(name)
        for number in sorted(self.replicas):
            self.replicas[number].machine.clock_error = timedelta(0)
        self._reload(self.last_settings)
        await asyncio.sleep(2 * 3600)
        for number in sorted(self.replicas):
            if self.replicas[number].settings is not self.last_settings:
                self._kill(number)
        await asyncio.sleep(2 * 3600)
        await clock.trust_clocks(self.operator.app.state)
        self.model.settle()
        unasked = self._is_unasked()
        if not unasked:
            scheduler.STEP_SECONDS = LONGEST_WAIT.total_seconds()  # requests wake it up
        await asyncio.sleep(LONGEST_WAIT.total_seconds())
        for _ in range(QUIET_CYCLES):
            for name in ("resume", "approve") if unasked else ("resume", "approve", "request"):
                await self._operate(name)
            await asyncio.sleep((100 if unasked else 25) * 3600)
            await self._restore()
            self.watch.check()
        for replica in self._schedulers():
            replica.scheduler.stop()
        await asyncio.wait([one.task for one in self.replicas.values() if one.task is not None])
        await self.watch.finish(self.operator.app, self.replicas.values())

    def _is_unasked(self) -> bool:
        return self.subject is not None and self.subject.unasked

    def _settings(self, place: Path, *, dry_run: bool, interval: int | None = None) -> Settings:
        rules = self.rules
        cleanup = {
            "dry_run": dry_run,
            "cleanup_interval_hours": interval or self.interval,
            "max_snapshot_age_hours": rules.max_snapshot_age,
            "min_snapshots_to_keep": rules.min_snapshots,
            "stream_state_hours": rules.stream_state,
            "batch_size": rules.batch_size,
            "max_concurrent_deletions": 2,
            "approval_hours": 24,
            "ceilings": {"files": self.ceiling, "share": 1.0},
        }
        return settings_of(place, _dataset(self.format), cleanup, lease_seconds=LEASE_SECONDS, discovery_seconds=86_400)


class _OurTable:
    """A dataset of which only the model's own table is cleaned; where the others are is known all the same."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def tables(self) -> list[TableRef]:
        return [ref for ref in await self._inner.tables() if ref.name == "t"]


class _Slow(Adversary):
    """Every call takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def before(self, call: Call) -> None:
        if call.process != OPERATOR:
            await asyncio.sleep(self._seconds)


class _Adversary(Adversary):
    """Carries out what the script says, at the calls it says. The operator's own calls are left alone."""

    def __init__(self, story: ServiceStory) -> None:
        self._story = story

    async def before(self, call: Call) -> None:
        if call.process == OPERATOR:
            return
        counts = self._story.counts
        counts[""] += 1
        counts[call.operation] += 1
        if self._story.watch.is_sweeping(call.process):
            counts[SWEEPING + call.operation] += 1
        self._story.watch.asked(call)
        await self._interrupt(call, after=False)
        if call.operation in self._story.away:
            self._story.world.seen["a catalog that does not list its tables"] += 1
            raise Fault
        if self._is_audit_away(call):
            self._story.world.seen["an audit trail that cannot be written"] += 1
            raise Fault
        if self._story.sluggish:
            await asyncio.sleep(_SLUGGISH_SECONDS)
        if call.operation == "delete" and call.process in self._story.late:
            await self._stand_still(call)
        self._story.watch.before(call)

    async def after(self, call: Call) -> None:
        if call.process == OPERATOR:
            return
        await self._interrupt(call, after=True)
        self._story.watch.after(call)
        if call.operation == "save_plan":
            self._story.planned(call.process)
        if self._story.late_leases and call.operation == "acquire_lease":
            self._story.late_leases -= 1
            self._story.late.add(call.process)
            self._story.world.seen["a lease that had nearly ended when it was known"] += 1
            await asyncio.sleep(self._chance(call).uniform(42, 58))

    def _is_audit_away(self, call: Call) -> bool:
        return (
            "/audit/" in call.target and call.operation == "put" and self._story.world.now < self._story.no_audit_until
        )

    async def _stand_still(self, call: Call) -> None:
        story = self._story
        story.late.discard(call.process)
        mine = next((one for one in story.replicas.values() if one.name == call.process), None)
        if mine is not None:
            story._overtake(mine, self._chance(call).uniform(20, 50))
            await asyncio.sleep(0)

    def _chance(self, call: Call) -> random.Random:
        return random.Random(f"{self._story.seed} {call.number}")

    async def _interrupt(self, call: Call, *, after: bool) -> None:
        story = self._story
        due = [one for one in story.events if one.after == after and self._is_at(one, call)]
        for one in due:
            story.events.remove(one)
        for one in due:
            await self._happen(one, call)

    def _is_at(self, one: Step, call: Call) -> bool:
        story = self._story
        sweeping = one.on == SWEEPING + call.operation and story.watch.is_sweeping(call.process)
        return (sweeping or one.on in ("", call.operation)) and one.at == story.counts[one.on] - 1

    async def _happen(self, event: Step, call: Call) -> None:
        story, world = self._story, self._story.world
        kept, world.random = world.random, random.Random(f"{story.seed} {event.seed} {event.at}")
        try:
            wait = await self._do(event, call)
        finally:
            world.random = kept
        if wait is not None:
            await asyncio.sleep(wait)

    async def _do(self, event: Step, call: Call) -> float | None:
        """Let it happen. How long the call then takes, if it takes time."""
        story, chance = self._story, self._story.world.random
        number = next((number for number, one in story.replicas.items() if one.name == call.process), None)
        if number is None:
            return None
        mine = story.replicas[number]
        story.watch.met(event.name, call, answered=event.after)
        if event.name == "writer":
            late = event.after or (mine.machine.last_words and call.operation != "pointer")
            story._write(late=bool(late))
        elif event.name == "fault":
            raise Fault(chance.choice(_FAULTS[:3] if call.operation != "delete" else _FAULTS))
        elif event.name == "kill":
            story._kill(number)
            raise Killed(call.process)
        elif event.name == "freeze":
            story._freeze(mine, chance.choice((20, 50, 70, 200, 5000)) * chance.uniform(0.8, 1.2))
            return 0
        elif event.name == "overtaken":
            story._overtake(mine, chance.choice((70, 100, 200)) * chance.uniform(0.8, 1.2))
            return 0
        elif event.name == "adopt":
            if story.watch.is_planning(call.process) and story.steps.do("adopt the files inside"):
                return 4000  # by then where the tables are is not known any more: it is asked again
        elif event.name == "audit away":
            story.no_audit_until = story.world.now + timedelta(minutes=10)
        elif event.name == "slow":
            return chance.choice((1, 15, 45, 70, 300))
        elif event.name == "rush":
            await story._operate("request all")
            return 20
        else:
            await story._operate(event.name)
        return None


def _made_up(chance: random.Random, subject: Subject | None) -> list[Step]:
    """A script by chance."""
    if subject is not None:
        return subject.script(chance)
    script: list[Step] = []
    for _ in range(chance.randint(4, 12)):
        kind = chance.random()
        if kind < 0.45:
            script += [Step("writer", chance.getrandbits(32)) for _ in range(chance.randint(1, 5))]
        elif kind < 0.55:
            script.append(Step(chance.choice((*_OPERATOR_STEPS, "kill", "freeze")), chance.getrandbits(32)))
        else:
            script.append(Step("wait", chance.getrandbits(32), inner=_interruptions(chance)))
    return script


def _interruptions(chance: random.Random) -> list[Step]:
    """At calls by chance, more often at those that matter."""
    found = []
    for _ in range(chance.choice((0, 1, 2, 3, 4, 6))):
        name, on = chance.choice(_INNER), chance.choice(_OPERATIONS)
        at = chance.choice((0, 0, 0, 1, 1, 2, 3, 5, 8)) if on else chance.randrange(400)
        found.append(Step(name, chance.getrandbits(32), at=at, on=on, after=chance.random() < 0.3))
    return found


def _dataset(format: str) -> dict[str, Any]:
    """As settings want it; the story opens the dataset itself."""
    if format == "delta":
        return {"format": "delta", "location": "s3://lake/wh/db"}
    if format == "paimon":
        return {"format": "paimon", "warehouse": "s3://lake/wh"}
    return {"format": "iceberg", "catalog": {"type": "in-memory"}, "namespace": "db"}
