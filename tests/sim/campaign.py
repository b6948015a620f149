"""Many stories at once: run them on some processes, add up what they saw, shrink what failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.sim.garbage import collect_much, collect_seldom
from tests.sim.story import Result, Story
from tests.sim.workers import Workers

SEEDS = Path(__file__).with_name("seeds.txt")
_CHUNK = 25
_MOST_FAILURES = 50
"""Of one campaign: more are not kept."""


@dataclass
class Figures:
    """What a campaign saw."""

    format: str
    stories: int = 0
    cycles: int = 0
    calls: int = 0
    deleted: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    """On the clock, of the whole campaign."""
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Seed, kind, sentence."""

    def add(self, result: Result) -> None:
        """One story more."""
        self.stories += 1
        self.cycles += result.cycles
        self.calls += result.calls
        self.deleted += result.deleted
        self.seen += result.seen
        for outcome, count in result.outcomes.items():
            self.outcomes[outcome.partition(":")[0]] += count
        if result.failure and len(self.failures) < _MOST_FAILURES:
            self.failures.append((result.seed, result.kind, result.failure))

    def join(self, other: Figures) -> None:
        """Those of another process."""
        self.stories += other.stories
        self.cycles += other.cycles
        self.calls += other.calls
        self.deleted += other.deleted
        self.cpu_seconds += other.cpu_seconds
        self.seen += other.seen
        self.outcomes += other.outcomes
        self.failures += other.failures

    @property
    def faults(self) -> int:
        """Calls that were made to fail."""
        return sum(count for name, count in self.seen.items() if name.startswith("fault "))

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return sum(count for name, count in self.seen.items() if name.startswith("kill "))

    def line(self) -> str:
        """For people."""
        each = self.cpu_seconds / self.stories * 1000 if self.stories else 0
        return (
            f"{self.format}: {self.stories} stories, {self.cycles} cycles, {self.calls} calls, {self.deleted} objects "
            f"deleted, {self.faults} faults, {self.kills} kills, {len(self.failures)} failed; {each:.1f} ms of CPU each"
        )


def kept_seeds(format: str) -> list[int]:
    """Seeds that failed once."""
    lines = (line.partition("#")[0].split() for line in SEEDS.read_text().splitlines())
    return [int(words[1]) for words in lines if len(words) == 2 and words[0] == format]


def tell(format: str, seeds: Iterable[int]) -> Figures:
    """Some stories, here and now."""
    collect_seldom()
    figures, began = Figures(format), time.process_time()
    for seed in seeds:
        figures.add(Story(format, seed).run())
    collect_much()
    figures.cpu_seconds = time.process_time() - began
    return figures


def campaign(seeds: range, workers: Workers, total: Figures) -> Iterator[Figures]:
    """The figures so far, again and again, until all stories are told. Those that `total` has already are not told
    again: it always has the first ones."""
    left = seeds[total.stories :]
    chunks = [(total.format, left[at : at + _CHUNK]) for at in range(0, len(left), _CHUNK)]
    began = time.monotonic() - total.seconds
    for figures in workers.each(_tell, chunks):
        total.join(figures)
        total.seconds = round(time.monotonic() - began, 1)
        yield total


def _tell(work: tuple[str, range]) -> Figures:
    return tell(*work)
