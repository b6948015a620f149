"""The long campaign: a Java writer acts before every so many calls of a cycle, and Java judges. `make soak` runs it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.paimon_campaign import ACTIONS, Round, play
from tests.builders.paimon_java import JavaTable, Peer, append, decoupled, primary_key, with_branch, with_tags
from tests.peers.paimon import shared_peer

from lakesweep.model.run import Outcome

TABLES: dict[str, Callable[[Peer, Path], JavaTable]] = {
    "append": append,
    "primary key": primary_key,
    "tags": with_tags,
    "branch": with_branch,
    "lasting changelogs": lambda peer, at: decoupled(peer, at, "none"),
}
LOOKS = {"list", "list_part", "parts", "directories", "irregular", "read", "stat", "stat_together"}
MOMENTS = 8
"""Of each table and action, before calls that only look at storage."""
OTHERS = 5
"""And before deletes and calls on the state store and the audit trail. 5 tables with 12 actions: about 800 cycles."""


def spread(numbers: list[int], count: int) -> list[int]:
    return numbers[:: max(1, len(numbers) // count)][:count]


def moments(calls: list[str], turn: int) -> list[int]:
    """Some calls of both kinds; each turn takes others, so that all turns together meet many of them."""
    looks = [number for number, name in enumerate(calls) if name in LOOKS]
    others = [number for number, name in enumerate(calls) if name not in LOOKS]
    return sorted({*spread(looks[turn:], MOMENTS), *spread(others[turn:], OTHERS)})


@pytest.fixture
def peer() -> Any:
    return shared_peer()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", TABLES)
async def test_no_action_of_a_java_writer_at_any_moment_loses_a_file(name: str, peer: Any, tmp_path: Path) -> None:
    built = TABLES[name](peer, tmp_path / "warehouse")
    quiet = await play(built, peer, tmp_path / "quiet", action=None, moment=None)
    assert (quiet.run.outcome, quiet.wrong) == (Outcome.DONE, []), quiet.run.reason
    cycles, lost = 0, {}
    met: Counter[str] = Counter()
    for turn, (action, act) in enumerate(ACTIONS.items()):
        for moment in moments(quiet.calls, turn):
            at = tmp_path / f"{action} {moment}"
            found: Round = await play(built, peer, at, action=act, moment=moment)
            cycles += 1
            met[quiet.calls[moment]] += 1
            if found.wrong:
                lost[f"{action} before call {moment}"] = (found.run.outcome, found.run.reason, found.wrong)
            shutil.rmtree(at)
    print(f"{name}: {cycles} cycles, {len(lost)} with losses; calls: {dict(met)}")
    assert lost == {}
