"""A story: a seed makes a list of steps, each with a seed of its own, and each cycle with its interruptions.

    Story("iceberg", seed=7).run()            make the story up while it goes, from the seed
    Story("iceberg", 7, script=[...]).run()   replay exactly these steps: what shrinking does

A step that cannot happen any more, since an earlier one was left out, is passed over. At the end the world falls quiet,
and some cycles later nothing dead may be left.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa
import structlog
from tests.sim import anywhere, profiles, shortcuts
from tests.sim import ways as ways_of_running
from tests.sim.confirmed import Confirmed
from tests.sim.formats import Model, open_model
from tests.sim.formats.iceberg import IcebergModel
from tests.sim.loop import Stuck, VirtualLoop
from tests.sim.operator import Operator
from tests.sim.oracle import Oracle
from tests.sim.ports import Process
from tests.sim.product import Runner
from tests.sim.state import DictStateStore
from tests.sim.taking_back import files_of, take_back
from tests.sim.world import Adversary, Call, Event, Fault, Killed, Lost, Rules, World

from lakesweep.model.errors import LakesweepError
from lakesweep.model.run import CleanupRun, ListingMode

T = TypeVar("T")
pa.set_cpu_count(1)  # small files are read sooner without handing them to threads
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

FAULTS = ("unavailable", "timeout", "throttled", "denied", "partial")
_TAKE_BACK = "take a run back"
_QUIET_ENDS = 6
"""Of so many stories one goes on until all is quiet. It takes half of a story's time, and is about waste, not loss."""
_SWEEPING = "sweeping: "
"""Before an operation: only those count that come once files are being deleted."""
_ASKING_LAST = "asking last: "
"""The same: only those between the last question of a request and its effect."""
_OFTEN = (_SWEEPING, "delete", "begin_batch", "finish_batch", "recall")
"""Calls that come more than once in a cycle."""
_LEANS = 0.6
"""How often a step is one of those that the story is about."""
_CALL = timedelta(seconds=0.05)
"""What every call of the product takes."""


@dataclass(slots=True)
class Step:
    """What happens next. `name` is a model's step, `cycle`, `wait`, or an interruption: `fault …`, `kill`, `clock`.

    Of a cycle, `inner` are the interruptions. Each comes at the call number `at` of that cycle, counted over the calls
    of the operation `on` if that is given; before it, or, with `after`, between its effect and its answer."""

    name: str
    seed: int
    at: int = 0
    on: str = ""
    after: bool = False
    inner: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name


class Moments:
    """The interruptions of a cycle that are still to come, by the call at which each comes."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._at: dict[tuple[bool, str, int], list[tuple[int, Step]]] = {}
        for number, one in enumerate(steps):
            self._at.setdefault((one.after, one.on, one.at + 1), []).append((number, one))

    def __bool__(self) -> bool:
        return bool(self._at)

    def take(self, names: Sequence[str], counts: Mapping[str, int], *, after: bool) -> list[Step]:
        """Those of this moment, in the order in which they were planned."""
        found: list[tuple[int, Step]] = []
        for name in names:
            found += self._at.pop((after, name, counts[name]), ())
        found.sort(key=itemgetter(0))
        return [one for _, one in found]


@dataclass(frozen=True, slots=True)
class Result:
    """How a story ended."""

    format: str
    seed: int
    failure: str | None
    script: list[Step]
    seen: Counter[str]
    calls: int
    cycles: int
    deleted: int
    outcomes: Counter[str]
    trace: list[Event]

    @property
    def kind(self) -> str:
        """What failed, without the names in it: a shrunk story must fail in the same way."""
        words = (self.failure or "").split()
        return " ".join(word for word in words if "/" not in word and not any(sign.isdigit() for sign in word))


class Story(Adversary):
    """One story. `run` may be called once."""

    def __init__(self, format: str, seed: int, script: list[Step] | None = None, *, tracing: bool = False) -> None:
        self.format, self.seed = format, seed
        self._replayed = script
        self._rng = random.Random(f"{format} {seed}")
        self.script: list[Step] = []
        self._profile = profiles.of(seed, format)
        self._falls_quiet = random.Random(f"end {seed}").randrange(_QUIET_ENDS) == 0
        rules = _rules(random.Random(f"rules {format} {seed}"))
        if self._profile.small_batches:
            rules = replace(rules, batch_size=2 - seed % 2, confirm_after=0)
        if self._profile.dry_runs:
            rules = replace(rules, confirm_after=24)
        self.world = World(rules=rules, tracing=tracing)
        self.world.adversary = self
        self.model: Model = open_model(format, self.world)
        self.model.more = seed >= profiles.LATER
        self._anywhere = seed >= anywhere.FIRST
        self.model.extras = self._profile.extras | (anywhere.EXTRAS if self._anywhere else frozenset())
        ways = ways_of_running.of(format, seed)
        self.model.lists_seldom = self._anywhere and ways.interval is not None
        if self._profile.client and format == "iceberg":
            ways = replace(ways, client=True)
        if isinstance(self.model, IcebergModel):
            self.model.client, self.model.around.kind = ways.client, self._profile.kind
        self.oracle = Oracle(self.world, self.model)
        self.process = Process(self.world, drift=anywhere.drift(seed) if self._anywhere else 0.0)
        self.store = DictStateStore(self.process)
        self.runner = Runner(self.model, self.process, self.store, ways=ways)
        self.operator = Operator(ways, self.world, self.runner)
        self.confirmed = Confirmed(self.world, self.model)
        self.outcomes: Counter[str] = Counter()
        self._deleted = 0
        self._cycle: Step | None = None
        self._counts: Counter[str] = Counter()
        self._last_calls = 60
        self._phase = "planning"

    def run(self) -> Result:
        """Tell it. A failure is in the result; nothing is raised."""
        failure: str | None = None
        with shortcuts.taken(), _deterministic(self.world, self.seed):
            try:
                self._tell()
            except (Lost, Stuck) as exc:
                failure = str(exc)
            except Exception as exc:  # noqa: BLE001 - a bug of the product or of the simulator ends a story too
                failure = f"{type(exc).__name__}: {exc}"
                self.error = exc
            finally:
                self.runner.aclose()
        if failure:
            self.world.say("oracle", failure)
        return Result(
            self.format,
            self.seed,
            failure,
            self.script,
            self.world.seen,
            self.world.calls,
            self.runner.runs,
            self._deleted,
            self.outcomes,
            self.world.trace,
        )

    # ---- the plot

    def _tell(self) -> None:
        shape = random.Random(f"shape {self.format} {self.seed}")
        self.process.page_rows = shape.choice([5, 1000, 1000])
        if self.operator.ways.repeats:
            self.process.page_rows = 2
        self.process.request_keys = shape.choice([2, 1000, 1000])
        self.world.random = random.Random(shape.getrandbits(32))
        self.world.ageless = self._profile.ageless and not self._falls_quiet
        self.model.begin()
        if self._replayed is None:
            for _ in range(self._rng.randrange(2, 7)):
                self._do(self._next(quiet=True))
            self._do(Step("wait", self._rng.getrandbits(32)))
            self._do(Step("cycle", self._rng.getrandbits(32)))
            for _ in range(self._rng.randrange(8)):
                self._do(self._next())
        else:
            for step in self._replayed:
                self._do(step)
        if self._falls_quiet:
            self._end(shape)

    def _next(self, *, quiet: bool = False) -> Step:
        rng = self._rng
        kind = rng.random()
        seed = rng.getrandbits(32)
        if self.operator.wants_back(seed):
            return Step(_TAKE_BACK, seed)
        if kind < 0.25:
            return Step("wait", seed)
        if kind < (0.6 if self._profile.many_cycles else 0.45) and not quiet:
            return Step("cycle", seed)
        possible: Sequence[str] = [*self.model.steps(), *self.model.revivals()]
        if self._profile is not profiles.ANY and rng.random() < _LEANS:
            possible = self._profile.leaning(self.format, possible)
        return Step(rng.choice(possible), seed)

    def _do(self, step: Step) -> None:
        world = self.world
        if step.name == "cycle":
            self._run_cycle(step)
        elif step.name == _TAKE_BACK:
            self._take_back(step)
        elif step.name == "wait":
            self.script.append(step)
            self._wait(step.seed)
        elif self._replayed is None or step.name in (*self.model.steps(), *self.model.revivals()):
            self.script.append(step)
            world.random = random.Random(step.seed)
            world.advance(timedelta(seconds=world.random.randrange(1, 3600), hours=2 if self._profile.slow else 0))
            self.model.do(step.name)
        self.oracle.check()

    def _wait(self, seed: int) -> None:
        span = timedelta(hours=random.Random(seed).choice([1, 6, 26, 50, 80, 80, 170, 200]))
        self.world.advance(span)
        self.world.say("world", f"{span} pass")

    def _end(self, shape: random.Random) -> None:
        """Quiet: whatever is dead has to go within some cycles."""
        world, rules = self.world, self.world.rules
        world.say("world", "from here on all is quiet")
        world.random = random.Random(shape.getrandbits(32))
        self.process.clock_error, self.process.drift = timedelta(0), 0.0
        self.model.settle()
        outcomes: list[str] = []
        for _ in range(5):
            world.advance(timedelta(hours=max(rules.grace, rules.stream_state, rules.max_snapshot_age, 1000) + 1))
            outcomes.append(self._run_cycle(None))
            self.oracle.check()
            if outcomes[-1] == "done" and not self.model.dead() and not self.model.overdue():
                break
        self.oracle.check_quiet(outcomes)

    # ---- cycles

    def _run_cycle(self, step: Step | None) -> str:
        told = Step("cycle", step.seed) if step else None
        if step is not None and told is not None:
            self.script.append(told)
            self._plan = Moments(self._interruptions(step) if self._replayed is None else step.inner)
        else:
            self._plan = Moments()
        self._counts, self._phase = Counter(), "planning"
        process = self.process
        process.alive, process.deleted, process.lost_answers, process.last_words = True, [], 0, 0
        process.took = {}
        self.world.asked.clear()
        first = self.world.calls
        self.world.say(process.name, "a cycle begins")
        listing = self.operator.listing(step.seed if step else None)
        full = self._full_plan() if listing is ListingMode.NEVER and not self._plan else None
        self.confirmed.begins()
        self._cycle, self.world.cycling = told, True
        execute = not (step and self._profile.dry_runs and random.Random(f"dry {step.seed}").random() < 0.5)
        run, outcome = self._ran(self.runner.cycle(listing, execute=execute))
        if run is not None:
            outcome = self._outcome(run)
            self.operator.compare(full, run, alone=not (told and told.inner))
        self._cycle, self.world.cycling, self.world.planned = None, False, False
        self._last_calls = max(20, self.world.calls - first)
        self.oracle.check_told(process.deleted, whole=outcome == "done" and not process.lost_answers)
        if self._anywhere:
            batches, _ = self._ran(anywhere.batches_of(self.runner, self.runner.run_id))
            anywhere.check_journal(batches or [], process.took, whole=outcome == "done" and not process.lost_answers)
        self.operator.cycle_ended(self.runner.run_id, process.took)
        if self.operator.ways.interval is None:
            self.confirmed.ended(process.took, outcome, alone=not (told and told.inner))
        self._deleted += len(process.deleted)
        self.outcomes[outcome] += 1
        self.world.say(process.name, "the cycle ends", outcome)
        self.model.cycle_ended(outcome)
        if outcome.startswith("refused ref_"):
            self.model.restore()
        return outcome

    def _ran(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, str]:
        """What it answers, or how it ended."""
        loop = VirtualLoop(lambda seconds: self.world.advance(timedelta(seconds=seconds)))
        try:
            return loop.run(work), ""
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt) or (self.process.alive and not isinstance(exc, LakesweepError)):
                raise
            # What a cycle cannot write down even at its beginning, the service reports and tries again.
            return None, f"failed: {exc}" if self.process.alive else "killed"

    def _full_plan(self) -> CleanupRun | None:
        """What a cycle with a listing would do now."""
        return self._ran(self.runner.cycle(execute=False))[0]

    def _take_back(self, step: Step) -> None:
        """Once with interruptions, then until it is done."""
        if not self.operator.taken:
            return
        told, process = Step(step.name, step.seed), self.process
        self.script.append(told)
        run_id, took = self.operator.choose(step.seed)
        files = set(self._ran(files_of(self.runner, run_id))[0] or ())
        wanted = self.operator.restorable(run_id, {path: one for path, one in took.items() if path in files})
        self._plan = Moments(self._troubles(step.seed) if self._replayed is None else step.inner)
        for number in range(2):
            self._cycle, self._counts, self._phase = (None if number else told), Counter(), "taking back"
            self.world.say("operator", f"{run_id} is taken back")
            _, outcome = self._ran(take_back(self.runner, run_id, sorted(wanted)))
            process.alive, self._plan, self._cycle = True, Moments(), None
        if outcome:
            raise Lost(f"in a quiet world {run_id} cannot be taken back: {outcome}")
        self.operator.check_back(run_id, wanted)

    def _troubles(self, seed: int) -> list[Step]:
        """What comes between a restore and its end."""
        rng = random.Random(f"trouble {seed}")
        names = [rng.choice(["kill", "writer", f"fault {rng.choice(FAULTS)}"]) for _ in range(rng.choice([0, 1, 2]))]
        on = ("copy", "copy", "delete", "begin_batch", "put", "stat")
        return [
            Step(one, rng.getrandbits(32), rng.choice([0, 0, 1, 2]), rng.choice(on), rng.random() < 0.4)
            for one in names
        ]

    def _outcome(self, run: CleanupRun) -> str:
        process = self.process
        told = run.deletion.deleted.files if run.deletion else 0
        if told != len(process.deleted) - process.lost_answers:
            raise Lost(
                f"the report says {told} deleted; {len(process.deleted)} went, {process.lost_answers} answers were lost"
            )
        if run.refusal is not None:
            return f"refused {run.refusal.code}"
        return str(run.outcome) if str(run.outcome) == "done" else f"{run.outcome}: {run.reason}"

    def _interruptions(self, step: Step) -> list[Step]:
        """Chosen before the cycle begins: when, and of what kind. What a writer does is chosen when it comes to it."""
        rng = random.Random(step.seed)
        found = []
        # A fault while planning ends most cycles: some leave that part alone, so that the rest is met often enough.
        operations = _LATE[self.format] if rng.random() < 0.6 else _OPERATIONS[self.format]
        if self.operator.ways.trash:
            operations = (*operations, "copy", "copy")
        for _ in range(rng.choice([0, 1, 2, 3, 4, 6])):
            kind = rng.random()
            name = "writer" if kind < 0.5 else f"fault {rng.choice(FAULTS)}" if kind < 0.75 else ""
            name = name or rng.choice(["kill", "kill", "kill", "wait", "clock"])
            on, at = rng.choice(operations), rng.choice([0, 0, 0, 0, 1, 1, 2, 4])
            if name == "writer" and rng.random() < 0.6:
                on, at = "", rng.randrange(self._last_calls)
            if name == "writer" and self._profile.between:
                on = rng.choice(self._profile.between)
                often = on.startswith(_OFTEN) or self._profile.last_words or "rollbacks" in self._profile.extras
                at = rng.choice([0, 0, 1, 2, 3, 5, 8]) if often else 0
            if name.startswith("fault") and self._profile.faults:
                on, at = rng.choice(self._profile.faults), rng.randrange(12)
            found.append(Step(name, rng.getrandbits(32), at, on, rng.random() < 0.35))
        if self._profile.wrong_clocks and rng.random() < 0.5:
            found.append(Step("clock", rng.getrandbits(32)))
        cuts = random.Random(f"cut {step.seed}")  # of its own, so that the stories of older seeds stay what they were
        if cuts.random() < (1 if self._profile.cuts else 0.2):
            found.append(Step("fault cut", cuts.getrandbits(32), cuts.choice([0, 1, 2, 3, 5, 8, 13, 21, 34]), "read"))
        if self.operator.ways.stale and cuts.random() < 0.5:
            found.append(Step("fault stale", cuts.getrandbits(32), cuts.choice([0, 0, 1, 1, 2, 3]), "pointer"))
        if self.operator.ways.repeats and cuts.random() < 0.6:
            found.append(Step("fault repeat", cuts.getrandbits(32), cuts.randrange(1, 12), "list"))
        if self._anywhere:
            found += [Step(*one) for one in anywhere.interruptions(self.format, step.seed)]
        if self._profile.couples and cuts.random() < 0.7:
            for on, name, at in cuts.choice(self._profile.couples):
                found.append(Step(name, cuts.getrandbits(32), at, on, name.startswith("fault ")))
        return found

    # ---- the adversary

    def before(self, call: Call) -> None:
        self.world.now += _CALL
        if self._cycle is None:
            return
        counts, operation = self._counts, call.operation
        counts[""] += 1
        counts[operation] += 1
        self._enter_phase(operation)
        if self._phase == "sweeping":
            counts[_SWEEPING + operation] += 1
        if self.process.last_words:
            counts[_ASKING_LAST + operation] += 1
        if self._plan:
            self._interrupt(call, after=False)

    def after(self, call: Call) -> None:
        if self._cycle is not None and self._plan:
            self._interrupt(call, after=True)

    def _interrupt(self, call: Call, *, after: bool) -> None:
        counted = ["", call.operation]
        if self._phase == "sweeping":
            counted.append(_SWEEPING + call.operation)
        if self.process.last_words:
            counted.append(_ASKING_LAST + call.operation)
        due = self._plan.take(counted, self._counts, after=after)
        if due:
            self.confirmed.interrupted()
        for one in due:
            self._happen(one, call)

    def _happen(self, one: Step, call: Call) -> None:
        where = f"{'after' if one.after else 'before'} {call.port}.{call.operation}"
        if one.name == "writer":
            for number in range(random.Random(one.seed).choice([1, 1, 1, 2, 4])):
                self._meanwhile(replace(one, name="", seed=one.seed + number), where)
            return
        if one.name.startswith("fault "):
            self._record(one, f"fault {where}")
            self.world.say("adversary", one.name, where)
            raise Fault(one.name.removeprefix("fault "))
        if one.name == "kill":
            self._record(one, f"kill {where}")
            self.world.say("adversary", "the process is killed", where)
            self.process.alive = False
            raise Killed(where)
        if one.name == "wait":
            self._record(one, f"the process stands still {where}")
            self._wait(one.seed)
        elif one.name == "clock":
            self._record(one, f"the clock is set {where}")
            minutes = random.Random(one.seed).choice([-10, 5, 14, -100, 100, 5000, -5000])
            self.process.clock_error += timedelta(minutes=minutes)
            self.world.say("adversary", f"the clock is set by {minutes} minutes", where)
        else:
            self._meanwhile(one, where)

    def _meanwhile(self, one: Step, where: str) -> None:
        """Another writer's step. What brings dead files back only comes where the product can still notice."""
        # Behind everything that is read to answer the last question, the catalog is asked for its pointer once more.
        noticed = ("before catalog.pointer", "before storage.read") if self.format == "iceberg" else ()
        # Of the other formats, the newest commit and the next one are looked at together as the last thing.
        noticed = noticed or (("before storage.stat_together",) if self._profile.last_moment else ())
        noticed += ("before storage.stat", "before storage.read", "before storage.list") * self._profile.last_words
        late = self.process.last_words and not where.endswith(noticed)
        revivals = [] if one.after or late else list(self.model.revivals())
        if self.process.last_words and self._profile.last_moment:
            revivals = [] if self._looks_at_a_branch() else [name for name in revivals if name in self.model.commits]
        if self.process.last_words and where.endswith("after storage.stat_together"):
            revivals += self.model.crossings()
        possible = [*self.model.steps(), *revivals]
        chance = random.Random(one.seed ^ 1)
        leans = self._profile is not profiles.ANY and chance.random() < _LEANS
        name = one.name or chance.choice(self._profile.leaning(self.format, possible) if leans else possible)
        if name not in possible:
            return
        self._record(replace(one, name=name), f"a writer's step while {self._phase}")
        self.world.seen[f"{name}, during a cycle"] += 1
        kept, self.world.random = self.world.random, random.Random(one.seed)
        self.model.do(name)
        self.world.random = kept

    def _looks_at_a_branch(self) -> bool:
        """Then the main line was looked at before."""
        call = self.world.call
        return call is not None and call.port == "storage" and "/branch/" in call.target

    def _record(self, one: Step, situation: str) -> None:
        self.world.seen[situation] += 1
        if self._cycle is not None:
            self._cycle.inner.append(one)

    def _enter_phase(self, operation: str) -> None:
        """Where a cycle is, as seen from outside."""
        phase = self._phase
        if operation in _TURNS or phase in _LEFT:
            if operation == "list" and phase in ("planning", "listed"):
                phase = "listing"
            elif operation != "list" and phase == "listing":
                phase = "listed"
            elif operation == "save_plan":
                phase = "planned"
            elif operation == "commit":
                phase = "committing"
            elif phase == "committing":
                phase = "committed"
            elif operation == "begin_batch":
                phase = "sweeping"
            self._phase = phase
        self.world.planned = phase not in _PLANNING


_TURNS = frozenset({"list", "save_plan", "commit", "begin_batch"})
"""Calls with which a cycle may enter another phase."""
_LEFT = frozenset({"listing", "committing"})
"""Phases that end with the next call, whichever it is."""
_PLANNING = frozenset({"planning", "listing", "listed"})
_SWEEP = ("delete", "delete", "delete", "begin_batch", "finish_batch", "update_run")
_PLAN = ("list", "list", "read", "read", "put", "now", "save_plan", "open_runs", "start_run", "pending_expiry")
_COMMIT = {
    "iceberg": ("commit", "commit", "commit", "set_pending_expiry", "pointer"),
    "delta": (),
    "paimon": ("put", "set_pending_expiry"),
}
_LATE = {name: (*_SWEEP, *commit) for name, commit in _COMMIT.items()}
_OPERATIONS = {name: (*_PLAN, *late) for name, late in _LATE.items()}


def _rules(rng: random.Random) -> Rules:
    return Rules(
        grace=rng.choice([24, 24, 48, 72]),
        max_snapshot_age=rng.choice([12, 24, 72, 72, 168]),
        min_snapshots=rng.choice([1, 1, 1, 2, 5]),
        stream_state=rng.choice([48, 168]),
        confirm_after=rng.choice([0] * 9 + [24]),
        batch_size=rng.choice([2, 5, 1000, 1000, 1000]),
    )


@contextmanager
def _deterministic(world: World, seed: int) -> Iterator[None]:
    """Names and jitter that the product draws by itself come from the story too."""
    kept = uuid.uuid4, secrets.token_bytes, random.getstate()
    own = random.Random(seed)
    uuid.uuid4 = lambda: uuid.UUID(int=own.getrandbits(128), version=4)
    secrets.token_bytes = lambda count=32: own.randbytes(count or 32)
    random.seed(seed)
    try:
        yield
    finally:
        uuid.uuid4, secrets.token_bytes = kept[0], kept[1]
        random.setstate(kept[2])
