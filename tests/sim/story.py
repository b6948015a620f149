"""A story: a seed makes a list of steps, each with a seed of its own, and each cycle step with its interruptions.

    Story("iceberg", seed=7).run()            make the story up while it goes, from the seed
    Story("iceberg", script=[...]).run()      replay exactly these steps: what shrinking does

A step that cannot happen any more, since an earlier one was left out, is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Step:
    """What happens next. `name` is a model's step, or `cycle`, `wait`, or an interruption's name.

    Of a cycle, `inner` are the interruptions: each with `at`, the how manyeth call of that cycle it comes before
    (or, with `after`, between whose effect and answer it comes)."""

    name: str
    seed: int
    at: int = 0
    after: bool = False
    inner: list[Step] = field(default_factory=list)
