"""Run stories, or replay one.

python -m tests.sim --format iceberg --stories 1000 --workers 2    many, from seed 0 on
python -m tests.sim --format iceberg --first 10000000 --stories 10 some with a trash, restores, cycles that list nothing
python -m tests.sim --format iceberg --first 20000000 --stories 10 some in a wider world: see profiles.py
python -m tests.sim --format iceberg --first 30000000 --stories 10 some with faults at any call: see anywhere.py
python -m tests.sim --format iceberg --seed 42                     one, printed; shrunk first if it fails
python -m tests.sim --service --stories 300                        services of several replicas; --seed 42 replays one
python -m tests.sim --service --first 20000000 --stories 320       services whose stories have a subject
python -m tests.sim --stories 100000 --out build/sim.json          with its figures in a file: `make sim`
python -m tests.sim --mutants                                      open holes again and find them, for docs/simulator.md
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.sim import anywhere, profiles, service_runs, situations, ways
from tests.sim.book import Book
from tests.sim.campaign import Figures, campaign, kept_seeds, tell
from tests.sim.service_profiles import FORMATS
from tests.sim.shrink import shrink
from tests.sim.story import Result, Step, Story
from tests.sim.workers import Workers


def main() -> int:
    """The exit code is 1 if a story failed, or if a situation that has to come up never did."""
    options = _options()
    out = Path(options.out) if options.out else None
    if options.mutants:
        # Mutants must be there before the product is imported, so in another process.
        command = [sys.executable, "-m", "tests.sim.hunt", "--docs", "--workers", str(options.workers)]
        return subprocess.run(command, check=False).returncode
    if options.service:
        seeds = range(options.first, options.first + options.stories)
        if options.seed is not None:
            return service_runs.replay(options.seed, whole=options.whole)
        with Workers(options.workers) as workers:
            return service_runs.run_many(seeds, workers, out)
    formats = [options.format] if options.format else list(FORMATS)
    if options.seed is not None:
        return max(replay(one, options.seed, whole=options.whole) for one in formats)
    first = _random_first(options.stories) if options.random else options.first
    book = Book(out, first, options.stories)
    seeds = range(first, first + options.stories)
    with Workers(options.workers) as workers:
        code = max([run_many(one, seeds, workers, book) for one in formats])
    book.finish(code)
    return code


def _random_first(stories: int) -> int:
    """By chance of the wider world, where every story has a subject, or of those that configure the product."""
    dice = random.SystemRandom()
    wider = range(profiles.LATER, max(profiles.LATER_ENDS - stories, profiles.LATER) + 1)
    return dice.choice([dice.randrange(10**9, 10**12), dice.choice(wider)])


def run_many(format: str, seeds: range, workers: Workers, book: Book) -> int:
    """A campaign of one format, and the seeds that failed before."""
    said, told = time.monotonic(), 0
    total = book.known(format) or Figures(format)
    for figures in campaign(seeds, workers, total):
        for seed, _, failure in figures.failures[told:]:
            print(f"  {format} {seed}: {failure}", file=sys.stderr, flush=True)
        told = len(figures.failures)
        if time.monotonic() - said > 20:
            said = time.monotonic()
            left = (len(seeds) - figures.stories) * figures.seconds / figures.stories
            print(f"  {figures.line()}; about {left / 60:.0f} min left", file=sys.stderr, flush=True)
            book.write(figures)
    book.write(total)
    print(f"{total.line()}; {total.seconds:.0f} s, seeds {seeds.start} to {seeds.stop - 1}")
    total.join(tell(format, kept_seeds(format)))
    _print_seen(total)
    for kind in dict.fromkeys(kind for _, kind, _ in total.failures):
        seeds_of = [seed for seed, other, _ in total.failures if other == kind]
        print(f"\n{len(seeds_of)} stories failed like this one (seeds {', '.join(map(str, seeds_of[:10]))}):")
        replay(format, seeds_of[0])
    other_ways = seeds.start >= ways.FIRST and not profiles.has_subject(seeds.start, format)
    wider = profiles.LATER <= seeds.start < profiles.LATER_ENDS
    at_any_call = seeds.start >= anywhere.FIRST
    missing = situations.missing(
        format, total.seen, total.stories, other_ways=other_ways, wider=wider, at_any_call=at_any_call
    )
    for name in missing:
        print(f"this never happened: {name}")
    return 1 if total.failures or missing else 0


def replay(format: str, seed: int, *, whole: bool = False) -> int:
    """Tell one story aloud."""
    result = Story(format, seed).run()
    if result.failure and not whole:
        shorter = shrink(result)
        print(f"{format} {seed} fails; of its {_count(result.script)} steps these {_count(shorter.script)} are enough")
        result = shorter
    again = Story(format, seed, result.script, tracing=True).run()
    _print_story(again)
    return 1 if again.failure else 0


def _print_story(result: Result) -> None:
    for event in result.trace:
        print(event)
    print("\nthe steps:")
    for step in result.script:
        print(f"  {step.name}")
        for one in step.inner:
            where = f"the call {one.at + 1} of {one.on}" if one.on else f"call {one.at + 1}"
            print(f"    {one.name}, {'after' if one.after else 'before'} {where}")
    print(f"\n{result.format} {result.seed}: {result.failure or 'nothing was lost'}")


def _print_seen(total: Figures) -> None:
    for title, counts in (("outcomes", total.outcomes), ("situations", total.seen)):
        print(f"\n{title}")
        for name, count in sorted(counts.items()):
            print(f"  {count:>9}  {name}")


def _count(script: list[Step]) -> int:
    return sum(1 + len(step.inner) for step in script)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__.partition("\n")[0])
    parser.add_argument("--format", choices=FORMATS, help="only this one")
    parser.add_argument("--stories", type=int, default=1000, help="how many of each format")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--random", action="store_true", help="begin with a seed that nobody knows: for nightly runs")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="replay this one, and print it")
    parser.add_argument("--service", action="store_true", help="stories of services instead of single cycles")
    parser.add_argument("--mutants", action="store_true", help="hunt the catalogue of mutants instead")
    parser.add_argument("--out", help="keep the figures in this file; an interrupted campaign goes on from it")
    parser.add_argument("--whole", action="store_true", help="with --seed: do not shrink it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
