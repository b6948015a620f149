"""What a story of a service is about. Below FIRST a story is about anything; from there on each has a subject, so that
rare things meet often enough. Stories of lower seeds do not change.

A script of a subject is made of its own operations, events and calls; everything that is checked is the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.sim.story import Step

FIRST = 20_000_000
_PLACES = 16
"""Subjects that there may be: a new one gets a place of its own, and the stories of the others stay what they are."""
FORMATS = ("iceberg", "delta", "paimon")

SWEEPING = "sweeping: "
"""Before an operation: only calls of a process count that is deleting."""
_AT = (0, 0, 0, 1, 1, 2, 4)
_SWEEP = (
    *("delete", "delete", "delete", "begin_batch", "finish_batch"),
    *(f"{SWEEPING}{name}" for name in ("holds", "read", "list", "pointer", "put")),
)
_DEAD = {
    "iceberg": ("overwrite", "compact", "delete files", "fail to commit", "append"),
    "delta": ("overwrite", "remove", "optimize", "stray", "append"),
    "paimon": ("overwrite", "compact", "stray", "append"),
}
"""Steps of writers that leave something to be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """How a story leans."""

    formats: tuple[str, ...] = FORMATS
    prefers: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _DEAD)
    """Steps of writers, by format."""
    begins: tuple[str, ...] = ("stray files",)
    """Steps at the beginning of each part of a story."""
    parts: tuple[tuple[str, ...], ...] = (("wait",),)
    """What comes then: one of these, step by step."""
    events: tuple[str, ...] = ()
    """What happens at calls of the product, while somebody waits."""
    calls: tuple[str, ...] = ()
    """At which calls."""
    together: tuple[tuple[str, str], ...] = ()
    """Events that come together in some waits, each with its call."""
    ceiling: int = 10_000
    batches: tuple[int, ...] = (1, 2, 3, 5)
    request_keys: int = 3
    local_clock: bool = False
    slow_end: float = 0
    """Seconds that each call takes when everybody has come to rest."""
    unasked: bool = False
    """In the end nobody requests runs: the schedule has to bring them."""

    def leaning(self, format: str, possible: list[str]) -> list[str]:
        """Those of the possible steps that the story is about; all if there is none."""
        wanted = self.prefers.get(format, ())
        return [name for name in possible if name in wanted] or possible

    def script(self, chance: random.Random) -> list[Step]:
        """A story by chance."""
        script: list[Step] = []
        for _ in range(chance.randint(2, 4)):
            names = [*self.begins, *["writer"] * chance.randint(0, 3), *chance.choice(self.parts)]
            script += [
                Step(name, chance.getrandbits(32), inner=self._events(chance) if name.endswith("wait") else [])
                for name in names
            ]
        return script

    def _events(self, chance: random.Random) -> list[Step]:
        found: list[Step] = []
        if self.together and chance.random() < 0.5:
            found += [self._event(name, on, chance) for name, on in self.together]
        for _ in range(chance.choice((1, 2, 3)) if self.events else 0):
            found.append(self._event(chance.choice(self.events), chance.choice(self.calls), chance))
        return found

    def _event(self, name: str, on: str, chance: random.Random) -> Step:
        after = chance.random() < 0.3 or name == "adopt"
        return Step(name, chance.getrandbits(32), at=chance.choice(_AT), on=on, after=after)


SUBJECTS: dict[str, Subject] = {
    "leases": Subject(
        events=("overtaken", "overtaken", "overtaken", "freeze", "writer"),
        calls=(*_SWEEP, "acquire_lease", "renew_lease", "update_run", "save_plan"),
        parts=(("wait",), ("wait", "stray files", "late wait")),
        slow_end=2.0,
    ),
    "pauses": Subject(
        begins=("resume", "settings back", "stray files"),
        events=("pause", "pause", "pause", "stop", "quiet settings"),
        calls=(*_SWEEP, "save_plan", "acquire_lease"),
        batches=(5,),
        request_keys=1,
    ),
    "approvals": Subject(
        formats=("iceberg", "delta"),
        begins=("stray files",),
        parts=(
            ("wait", "writer", "wait", "approve any", "short wait"),
            ("wait", "stray files again", "wait", "approve any", "short wait"),
            ("wait", "pause", "approve any", "wait", "resume", "short wait"),
        ),
        events=("writer", "fault", "kill"),
        calls=("delete", "begin_batch", "save_plan", "approvals"),
        ceiling=3,
    ),
    "clocks": Subject(
        prefers={
            "iceberg": ("begin a job", "append", "overwrite", "commit a job"),
            "delta": ("begin_job", "append", "remove", "overwrite", "commit_job"),
            "paimon": ("begin_job", "append", "overwrite", "commit_job"),
        },
        begins=("clock right", "writer"),
        parts=(
            ("wait", "begin a job", "writer", "clock ahead", "short wait"),
            ("wait", "begin a job", "clock ahead", "clock", "short wait"),
            ("wait", "clock", "wait"),
        ),
        events=("clock", "clock", "kill", "writer"),
        calls=("list", "read", "save_plan", "now", "acquire_lease", "recall", "delete"),
        local_clock=True,
    ),
    "neighbours": Subject(
        formats=("iceberg",),
        prefers={
            "iceberg": ("a neighbour uses our files", "create a table next door", "overwrite", "delete files", "append")
        },
        parts=(
            ("short wait", "lend", "overwrite", "catalog away"),
            ("pause", "files inside", "wait", "resume", "short wait"),
        ),
        events=("adopt", "adopt", "writer"),
        calls=("list", "list", "list", "read"),
        together=(("adopt", "list"), ("adopt", "list"), ("adopt", "list")),
    ),
    "kills": Subject(
        events=("kill", "kill", "writer", "freeze"),
        calls=(*_SWEEP, "finish_batch", "finish_batch", "update_run", "start_run", "close_run", "set_due"),
        batches=(1, 2),
    ),
    "away": Subject(
        events=("fault", "fault", "writer"),
        calls=(*_SWEEP, "begin_batch", f"{SWEEPING}put", "update_run", "set_due", "renew_lease", "check_lease"),
        together=(("audit away", "update_run"),) * 2,
        batches=(1, 2),
        unasked=True,
    ),
    "commits": Subject(
        formats=("iceberg",),
        prefers={"iceberg": ("append", "overwrite", "tag", "branch", "change retention", "change a ref")},
        begins=("resume", "writer"),
        events=("overtaken", "overtaken", "pause", "pause", "writer", "writer"),
        calls=("commit", "commit", "set_pending_expiry", "pointer", "save_plan", "list", "read", "put", "holds"),
    ),
    "lasting": Subject(
        formats=("delta",),
        prefers={"delta": ("append", "append", "overwrite", "checkpoint")},
        begins=("resume", "writer"),
        parts=(("wait", "back up", "wait"), ("wait", "back up", "wait", "wait")),
        events=("kill", "fault", "fault"),
        calls=("set_hold", "set_hold", "remember", "update_run", "put", "finish_batch"),
    ),
}
_NAMES = tuple(SUBJECTS)


def of(seed: int) -> Subject | None:
    """What the story of a seed is about; None if it is about anything."""
    place = (seed - FIRST) % _PLACES
    return SUBJECTS[_NAMES[place]] if seed >= FIRST and place < len(_NAMES) else None


def format_of(seed: int) -> str:
    """Whose table the service of a story cleans."""
    subject = of(seed)
    if subject is None:
        return FORMATS[seed % len(FORMATS)]
    return subject.formats[(seed - FIRST) // _PLACES % len(subject.formats)]


def seed_of(name: str | None, number: int) -> int:
    """The seed of the story with that number among those about one subject; without a name, among the first ones."""
    return number if name is None else FIRST + _PLACES * number + _NAMES.index(name)


def number_of(name: str | None, seed: int) -> int | None:
    """Which of these stories has the seed; None if none has."""
    number = seed if name is None else (seed - FIRST) // _PLACES
    return number if number >= 0 and seed_of(name, number) == seed else None
