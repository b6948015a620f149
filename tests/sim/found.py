"""Stories that were written by hand after a thought, and that lost something once. `python -m tests.sim.found`

Each is a race at the commit of an expiry: somebody makes a branch or changes a retention between our look at the table
and our commit, and then the answer is lost, or the process dies before it can look at what its commit was applied to.
"""

from __future__ import annotations

import random
import sys

from tests.sim.story import Result, Step, Story

RACES = (5, 9, 75, 179)
CHANGES = ("change retention", "tag", "branch", "change retention", "change a ref", "roll back")
ENDS = ("kill", "fault timeout", "fault unavailable", None)


def race(number: int) -> Result:
    """A table with some history, an expiry that is overtaken, and two more cycles."""
    rng = random.Random(number)
    steps = [Step("append", rng.getrandbits(32)) for _ in range(3)]
    change, end = rng.choice(CHANGES), rng.choice(ENDS)
    meanwhile = [Step(change, rng.getrandbits(32), 0, "commit")]
    if end:
        meanwhile.append(Step(end, rng.getrandbits(32), 0, "commit", after=True))
    steps += [Step("overwrite", rng.getrandbits(32)), Step("wait", 6), Step("wait", 5)]
    steps += [Step("cycle", rng.getrandbits(32), inner=meanwhile), Step("wait", 1), Step("cycle", rng.getrandbits(32))]
    return Story("iceberg", number * 3 + 1, [*steps, Step("append", 3), Step("cycle", 4)]).run()


SCRIPTS = {
    # A rollback to a snapshot that was to go, and a commit on top of it, between two batches: it went.
    ("paimon", 205500): [
        Step(
            "cycle",
            3348853107,
            inner=[
                Step("roll_back_far", 2749239371, 0, "finish_batch"),
                Step("as_latest", 2749239373, 0, "finish_batch"),
            ],
        )
    ],
}
"""Shrunk stories that lost something, step by step: they stay what they are when writers learn new steps."""


def main() -> int:
    """1 if one of them loses something again."""
    numbers = range(int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) == 3 else RACES
    results = {number: race(number) for number in numbers}
    for number, result in results.items():
        if result.failure or len(numbers) < 10:
            print(f"race {number}: {result.failure or 'nothing was lost'} ({dict(result.outcomes)})")
    told = {key: Story(*key, script).run() for key, script in SCRIPTS.items()}
    for key, result in told.items():
        print(*key, result.failure or "nothing was lost", dict(result.outcomes))
    return 1 if any(result.failure for result in (*results.values(), *told.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
