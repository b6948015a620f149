"""Stories from seed FIRST on: anything happens at any call, clocks drift, pages end early, and journals are checked.

Stories of lower seeds do not change: what is drawn here has a source of chance of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from tests.sim.product import Runner
from tests.sim.world import Lost, Stored

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.ports.state import BatchRecord, BatchState

FIRST = 30_000_000
EXTRAS = frozenset({"alterations"})
"""What the worlds of these stories have beside those of their subject: see `Model.extras`."""
_STORAGE = ("stat", "stat", "stat_together", "stat_together", "directories", "list", "read", "now", "put", "delete")
_STATE = (
    *("remember", "remember", "recall", "recall", "set_audit", "audit_head", "set_ledger", "get_ledger", "approvals"),
    *("journal", "get_plan", "list_runs", "open_runs", "start_run", "save_plan", "update_run"),
    *("begin_batch", "finish_batch", "pending_expiry", "set_pending_expiry"),
)
_CATALOG = {"iceberg": ("tables", "pointer", "commit")}
_SHORT = "fault short"
_FAULTS = tuple(f"fault {kind}" for kind in ("unavailable", "timeout", "throttled", "denied"))
_SPANS = (0, 0, 0, 1, 1, 2, 3, 5, 8, 13)


def interruptions(format: str, seed: int) -> Iterable[tuple[str, int, int, str, bool]]:
    """What else happens in a cycle: name, seed, number of the call, operation, does it come after the effect."""
    chance = random.Random(f"anywhere {seed}")
    for _ in range(chance.choice([0, 1, 1, 2])):
        calls = chance.choice((_STORAGE, _STATE, _STATE, _CATALOG.get(format, _STATE)))
        name = chance.choice((*_FAULTS, "kill", "kill", "kill", "writer", "clock"))
        yield name, chance.getrandbits(32), chance.choice(_SPANS), chance.choice(calls), chance.random() < 0.4
    if chance.random() < 0.3:
        yield _SHORT, chance.getrandbits(32), chance.choice(_SPANS), "list", False


def drift(seed: int) -> float:
    """How much faster than the world's the clock of the product goes: up to half an hour in three weeks."""
    return random.Random(f"drift {seed}").choice((0.0, 0.0, 1e-6, -1e-6, 1e-4, -1e-4, 1e-3, -1e-3))


async def batches_of(runner: Runner, run_id: str) -> list[tuple[BatchRecord, list[str]]]:
    """The journal of a run, and the files of each batch."""
    header = await runner.store.get_plan(run_id)
    if header is None:
        return []
    artifacts = Artifacts(runner.scratch)
    found = []
    for batch in await runner.store.journal(run_id):
        rows = await artifacts.page(header.rows_path, batch.first, batch.count)
        found.append((batch, [row.path for row in rows]))
    return found


def check_journal(
    batches: Sequence[tuple[BatchRecord, Sequence[str]]], took: Mapping[str, Stored], *, whole: bool
) -> None:
    """Whatever went was written down before, and, if the run ended well, how many of each batch went."""
    known = {path for _, paths in batches for path in paths}
    if unknown := sorted(set(took) - known):
        raise Lost(f"{unknown[0]} was deleted, and no batch of the journal has it")
    for batch, paths in batches if whole else ():
        gone = sum(path in took for path in paths)
        if batch.state is not BatchState.DONE or batch.deleted != gone:
            raise Lost(f"batch {batch.number} is {batch.state}, {batch.deleted} deleted; {gone} of it went")
