"""Make a failing story as short as it can be: leave out steps and interruptions as long as it fails in the same way."""

from __future__ import annotations

from dataclasses import replace

from tests.sim.story import Result, Step, Story

_MOST_TRIES = 400


def shrink(failed: Result) -> Result:
    """The shortest story found that fails like this one."""
    best, tries = failed, 0
    size = max(1, len(best.script) // 2)
    while size:
        at = 0
        while at < len(best.script) and tries < _MOST_TRIES:
            tries += 1
            shorter = _told_again(best, [*best.script[:at], *best.script[at + size :]])
            if shorter is None:
                at += size
            else:
                best = shorter
        size //= 2
    for number in range(len(best.script)):
        at = 0
        while number < len(best.script) and at < len(best.script[number].inner) and tries < _MOST_TRIES:
            tries += 1
            step = best.script[number]
            less = replace(step, inner=[*step.inner[:at], *step.inner[at + 1 :]])
            shorter = _told_again(best, [*best.script[:number], less, *best.script[number + 1 :]])
            if shorter is None:
                at += 1
            else:
                best = shorter
    return best


def _told_again(failed: Result, script: list[Step]) -> Result | None:
    found = Story(failed.format, failed.seed, script).run()
    return found if found.failure and found.kind == failed.kind else None
