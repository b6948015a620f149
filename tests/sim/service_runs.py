"""Many stories of services, or one: run them, count what came up, shrink and print what failed."""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.sim.campaign import kept_seeds
from tests.sim.garbage import collect_seldom
from tests.sim.service import ServiceStory
from tests.sim.service_profiles import FIRST, format_of
from tests.sim.story import Step
from tests.sim.workers import Workers

STORIES = 300
"""In so many stories every situation has to come up."""
REQUIRED = (
    "a replica was killed",
    "a replica was started again",
    "kill after state.begin_batch",
    "a lease was taken over while its holder was deleting",
    "a lease was taken over from a replica that stands still",
    "a replica woke up whose table is another's",
    "a pause while files are being deleted",
    "changed rules while files are being deleted",
    "a run that was interrupted was closed by another",
    "a plan above its ceilings was approved",
    "an answer of the state store was lost",
    "the state store did not answer",
    "a clock was set while a table is planned or cleaned",
    "a writer's step between two batches",
)
"""In stories about anything; below, in those with a subject."""
REQUIRED_OF_SUBJECTS = (
    "a replica was started again",
    "a lease was taken over while its holder was deleting",
    "a lease was taken over from a replica that stands still",
    "a lease that had nearly ended when it was known",
    "a replica woke up whose table is another's",
    "a pause while files are being deleted",
    "changed rules while files are being deleted",
    "a run that was interrupted was closed by another",
    "a plan above its ceilings was approved",
    "an object was replaced that a plan names",
    "a clock was set while a table is planned or cleaned",
    "a catalog that does not list its tables",
    "another table came into the place while a run planned",
    "an audit trail that cannot be written",
    "a log was put back to a backup",
    "kill before state.set_hold",
)


@dataclass
class Told:
    """What some stories saw."""

    stories: int = 0
    calls: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, seed: int, failure: str | None, calls: int, seen: Counter[str]) -> None:
        """One story more."""
        self.stories, self.calls = self.stories + 1, self.calls + calls
        self.seen += seen
        if failure is not None:
            self.failed.append((seed, failure))

    def document(self) -> dict[str, int]:
        """For the docs."""
        faults, kills = (
            sum(count for name, count in self.seen.items() if name.startswith(begins)) for begins in ("fault ", "kill ")
        )
        told = {"stories": self.stories, "calls": self.calls, "faults": faults, "kills": kills}
        return {**told, "failed": len(self.failed)}


def run_many(seeds: Sequence[int], workers: Workers, out: Path | None = None) -> int:
    """These, and those that failed once, which are not counted in the file. The exit code is 1 if one fails, or a
    situation that has to come up never does."""
    began, said, told, kept = time.monotonic(), 0.0, Told(), Told()
    every = (*seeds, *kept_seeds("service"))
    for number, answer in enumerate(workers.each(_tell, every)):
        (told if number < len(seeds) else kept).add(*answer)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            failed = len(told.failed) + len(kept.failed)
            print(f"  service: {number + 1} stories, {failed} failed", file=sys.stderr, flush=True)
    failures, seen = [*told.failed, *kept.failed], told.seen + kept.seen
    print(
        f"service: {told.stories} stories and {kept.stories} that failed once, {told.calls} calls, "
        f"{len(failures)} failed; {time.monotonic() - began:.0f} s"
    )
    for name, times in sorted(seen.items()):
        print(f"  {times:>9}  {name}")
    for seed, failure in failures[:20]:
        print(f"service {seed}: {failure}")
    wanted = REQUIRED if min(seeds, default=0) < FIRST else REQUIRED_OF_SUBJECTS
    missing = [name for name in wanted if not seen[name]] if told.stories >= STORIES else []
    for name in missing:
        print(f"this never happened: {name}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**told.document(), "seen": told.seen, "missing": missing}, indent=1))
    return 1 if failures or missing else 0


def _tell(seed: int) -> tuple[int, str | None, int, Counter[str]]:
    """One story of many: what a campaign wants to know of it."""
    collect_seldom()
    gc.collect()
    story, failure = tell(seed)
    return seed, failure, story.world.calls, story.world.seen


def tell(seed: int, script: list[Step] | None = None, *, tracing: bool = False) -> tuple[ServiceStory, str | None]:
    """One story, and what went wrong in it."""
    story = ServiceStory(format_of(seed), seed, script, tracing=tracing)
    try:
        story.run()
    except Exception as exc:  # noqa: BLE001 - a bug of the product ends a story too
        return story, f"{type(exc).__name__}: {exc}"
    return story, None


def replay(seed: int, *, whole: bool = False) -> int:
    """Tell one story aloud; a failing one is shrunk first."""
    story, failure = tell(seed)
    script = story.script if failure is None or whole else shrink(seed, story.script, failure)
    story, failure = tell(seed, script, tracing=True)
    for event in story.world.trace:
        print(event)
    print("\nthe steps:")
    for step in script:
        print(f"  {step.name}")
        for one in step.inner:
            where = f"the call {one.at + 1} of {one.on}" if one.on else f"call {one.at + 1}"
            print(f"    {one.name}, {'after' if one.after else 'before'} {where}")
    print(f"\nservice {seed} ({story.format}): {failure or 'nothing was lost'}")
    return 1 if failure else 0


def shrink(seed: int, script: list[Step], failure: str) -> list[Step]:
    """Leave out whatever is not needed for a failure of the same kind."""
    kind = failure[:24]
    again = True
    while again:
        again = False
        for shorter in _shorter(script):
            found = tell(seed, shorter)[1]
            if found is not None and found[:24] == kind:
                script, again = shorter, True
                break
    return script


def _shorter(script: list[Step]) -> Iterator[list[Step]]:
    for size in (len(script) // 2, len(script) // 4, 1):
        for at in range(0, len(script), size) if size else ():
            yield copy.deepcopy(script[:at] + script[at + size :])
    for at, step in enumerate(script):
        for number in range(len(step.inner)):
            shorter = copy.deepcopy(script)
            del shorter[at].inner[number]
            yield shorter
