"""Hunt mutants: open each hole of the catalogue in a process of its own, and tell stories until one of them fails.

python -m tests.sim.hunt NAME...            some mutants
python -m tests.sim.hunt --docs             all of them, and the table of docs/simulator.md
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.sim import mutants, profiles
from tests.sim.garbage import collect_seldom
from tests.sim.mutants import Mutant
from tests.sim.tree import tree

STORIES = 2000
"""A mutant that outlives so many is not found."""
WANTED = 0.95
"""Of those that are not said to be beyond the simulator."""
_COLLECT = 25
"""Garbage is looked for after so many stories."""
KNOWN = Path(__file__).with_name("found_mutants.txt")
PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"
_NO_PROGRAM = ("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ImportError", "SyntaxError")
_BEGIN, _END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"


@dataclass(frozen=True, slots=True)
class Hunted:
    """How the hunt for one mutant went."""

    name: str
    stories: int
    story: str | None = None
    """Which stories found it: a format or `service`."""
    seed: int | None = None
    failure: str | None = None
    seconds: float = 0.0
    innocent: bool = False
    """The story fails without the mutant too, so that it proves nothing."""

    @property
    def found(self) -> bool:
        return self.seed is not None and not self.innocent and not self.broken

    @property
    def broken(self) -> bool:
        """What the mutant wrote is no sensible program, so that anything would notice."""
        return (self.failure or "").startswith(_NO_PROGRAM)


def tell(story: str, seed: int) -> str | None:
    """One story; what went wrong in it."""
    if story == "service":
        from tests.sim import service_runs  # noqa: PLC0415 - after the mutant was installed

        return service_runs.tell(seed)[1]
    from tests.sim.story import Story  # noqa: PLC0415 - likewise

    return Story(story, seed).run().failure


def import_all() -> None:
    """Once, before any process is forked: importing takes longer than most mutants live."""
    names = ("tests.sim.story", "tests.sim.service_runs", *(f"tests.sim.formats.{name}" for name in mutants.ALL))
    for name in names:
        importlib.import_module(name)
    for one in mutants.catalogue().values():
        if not mutants.needs_import(one):
            for change in one.edits:
                importlib.import_module(change.module)


def hunt(mutant: Mutant, stories: int, first: int = 0) -> Hunted:
    """In this process, which is good for nothing else afterwards."""
    began = time.monotonic()
    (mutants.install if mutants.needs_import(mutant) else mutants.apply)(mutant)
    collect_seldom()
    numbers = list(range(stories))
    known = known_number(mutant) if not first else None
    if known is not None:
        numbers.insert(0, known)  # what found it once finds it again at once, unless something has changed
    for number in numbers:
        story = mutant.stories[number % len(mutant.stories)]
        seed = _seeds(mutant).seed_of(mutant.profile, first + number // len(mutant.stories))
        failure = tell(story, seed)
        if number % _COLLECT == 0:
            gc.collect()
        if failure is not None:
            return Hunted(mutant.name, number + 1, story, seed, failure, time.monotonic() - began)
    return Hunted(mutant.name, stories, seconds=time.monotonic() - began)


def _seeds(mutant: Mutant) -> ModuleType:
    """What numbers the stories that are told for it."""
    if mutant.stories != mutants.SERVICE:
        return profiles
    from tests.sim import service_profiles  # noqa: PLC0415 - it imports the product: after the mutant was installed

    return service_profiles


@cache
def known() -> dict[str, tuple[str, int]]:
    """By mutant, the story that found it last."""
    lines = (line.split() for line in KNOWN.read_text().splitlines() if line and not line.startswith("#"))
    return {name: (story, int(seed)) for name, story, seed in lines}


def known_number(mutant: Mutant) -> int | None:
    """Which of the stories that are told for a mutant found it last."""
    story, seed = known().get(mutant.name, ("", 0))
    if story not in mutant.stories:
        return None
    number = _seeds(mutant).number_of(mutant.profile, seed)
    return None if number is None else number * len(mutant.stories) + mutant.stories.index(story)


def write_known(hunted: Iterable[Hunted]) -> None:
    """For the next hunt."""
    told = known() | {one.name: (one.story, one.seed) for one in hunted if one.found}
    head = (
        "# The story that found each mutant last: a hunt tells it first. Written by `python -m tests.sim --mutants`.\n"
    )
    rows = [f"{name} {story} {seed}\n" for name, (story, seed) in told.items() if name in mutants.catalogue()]
    KNOWN.write_text(head + "".join(sorted(rows)))


def hunt_all(wanted: Sequence[Mutant], stories: int, workers: int) -> Iterator[Hunted]:
    """Each in a process of its own, some at a time, in the order in which they end."""
    early = [one for one in wanted if mutants.needs_import(one)]
    yield from _some([one for one in wanted if one in early], stories, workers)
    import_all()
    collect_seldom()  # children need not do it each
    yield from _some([one for one in wanted if one not in early], stories, workers)


def _some(wanted: Sequence[Mutant], stories: int, workers: int) -> Iterator[Hunted]:
    waiting, running = list(reversed(wanted)), {}
    while waiting or running:
        while waiting and len(running) < workers:
            one = waiting.pop()
            reader = _forked(lambda one=one: hunt(one, stories))
            running[reader] = one
        ready, _, _ = select.select(list(running), [], [])
        for reader in ready:
            one = running.pop(reader)
            found = _answer(reader) or Hunted(one.name, 0, failure="its process ended: see above")
            yield _judged(found)


def _judged(found: Hunted) -> Hunted:
    """Does the same story end well without the mutant?"""
    if found.seed is None or found.story is None:
        return found
    story, seed = found.story, found.seed

    def alone() -> Hunted:
        return Hunted(found.name, found.stories, story, seed, tell(story, seed))

    again = _answer(_forked(alone))
    innocent = again is None or again.failure is not None
    return Hunted(found.name, found.stories, story, seed, found.failure, found.seconds, innocent)


def _forked(work: Callable[[], Hunted]) -> int:
    """Run it in a child. What it answers can be read from here."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return reader
    status = 1
    try:
        os.close(reader)
        answer = json.dumps(asdict(work())).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        status = 0
    except BaseException as exc:  # noqa: BLE001 - the child must never get out of here
        print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _answer(reader: int) -> Hunted | None:
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    with suppress(ChildProcessError):
        os.wait()
    return Hunted(**json.loads(text)) if text else None


def table(hunted: Iterable[Hunted]) -> str:
    """For people."""
    catalogue = mutants.catalogue()
    rows = ["| mutant | what the product does wrong with it | found after | story |", "|---|---|---:|---|"]
    for one in sorted(hunted, key=lambda one: list(catalogue).index(one.name)):
        mutant = catalogue[one.name]
        after = f"{one.stories:,}" if one.found else "not found"
        story = f"`{one.story}` {one.seed}" if one.found else (mutant.beyond or "")
        rows.append(f"| {one.name} | {mutant.hole} | {after} | {story} |")
    return "\n".join(rows) + "\n"


def summary(hunted: Sequence[Hunted]) -> str:
    """One sentence."""
    found = [one for one in hunted if one.found]
    middle = sorted(one.stories for one in found)[len(found) // 2] if found else 0
    return (
        f"{len(found)} of {len(hunted)} mutants were found within {STORIES:,} stories each "
        f"({len(found) / max(1, len(hunted)):.1%}); half of them within {middle}. Of a mutant that has a subject, only "
        "the stories of that subject are counted."
    )


def write_page(hunted: Sequence[Hunted]) -> None:
    """Into the docs, between two marks."""
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    PAGE.write_text(f"{before}{_BEGIN}{summary(hunted)}\n\n{table(hunted)}{_END}{after}")


class _Kept:
    """Mutants that were found in this very tree, in a file: a hunt that was stopped goes on."""

    def __init__(self, path: Path) -> None:
        self._path, self._tree = path, tree()
        self.found: dict[str, Hunted] = {}
        for line in path.read_text().splitlines() if path.is_file() else ():
            told = json.loads(line)
            if told.pop("tree") == self._tree and (one := Hunted(**told)).found:
                self.found[one.name] = one

    def add(self, one: Hunted) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"tree": self._tree, **asdict(one)}) + "\n")


def main() -> int:
    """Fails if too few are found, or one that was not said to be beyond the simulator is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.hunt", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants, or beginnings of their names; all if there is none")
    parser.add_argument("--stories", type=int, default=STORIES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", default="build/mutants.jsonl", help="what was found, to go on from after a stop")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/simulator.md")
    options = parser.parse_args()
    catalogue = mutants.catalogue()
    names = tuple(options.names)
    wanted = [one for name, one in catalogue.items() if not names or name.startswith(names)]
    kept = _Kept(Path(options.out))
    hunted = [one for one in kept.found.values() if one.name in {mutant.name for mutant in wanted}]
    for one in hunt_all([one for one in wanted if one.name not in kept.found], options.stories, options.workers):
        hunted.append(one)
        kept.add(one)
        write_known(hunted)
        story = "" if one.seed is None else f"{one.story} {one.seed}: "
        where = f"{story}{one.failure or catalogue[one.name].beyond or ''}"
        told = "found" if one.found else "BROKEN" if one.broken else "NO PROOF" if one.innocent else "NOT FOUND"
        print(f"{told:<10} {one.name:<45} {one.stories:>5} stories {one.seconds:>6.1f} s  {where[:110]}", flush=True)
    print(summary(hunted))
    if options.docs:
        write_page(hunted)
    found = sum(one.found for one in hunted)
    return 0 if found >= WANTED * len(hunted) else 1


if __name__ == "__main__":
    sys.exit(main())
