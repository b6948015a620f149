"""Services frozen (SIGSTOP) in the middle of a sweep, longer than their lease, send nothing when they wake up."""

from __future__ import annotations

import asyncio
import random
import signal
from datetime import timedelta

import pytest
from tests.servers.postgres import running_postgres
from tests.servers.replicas import LABELS, Replicas, replicas

from lakesweep.daemon.clock import SystemClock
from lakesweep.model.run import Lease
from lakesweep.ports.state import StateStore
from lakesweep.state.registry import open_state

FREEZES = 30
"""Tried by hand once, of which three sent one more page."""
ORPHANS = 1500


async def taken_over(state: StateStore, label: str) -> Lease:
    """The lease of a table in other hands, as soon as the frozen owner's has ended."""
    async with asyncio.timeout(60):
        while (lease := await state.acquire_lease(label, "somebody else", timedelta(minutes=10))) is None:
            await asyncio.sleep(0.05)
    return lease


def send(fleet: Replicas, number: int) -> None:
    for one in fleet.running.values():
        one.process.send_signal(number)


async def freeze_and_wake(fleet: Replicas, state: StateStore) -> tuple[int, int]:
    """Freeze all services at once: how many of them in the middle of a run, and how many files went after waking up."""
    send(fleet, signal.SIGSTOP)
    leases = {label: await state.acquire_lease(label, "somebody else", timedelta(minutes=10)) for label in LABELS}
    met = [label for label, free in leases.items() if free is None]
    leases |= {label: await taken_over(state, label) for label in met}
    before, lost = fleet.left(), len(fleet.reasons("lease"))
    assert all(before.values()), "a sweep was over before the freeze"
    send(fleet, signal.SIGCONT)
    fleet.until(lambda: len(fleet.reasons("lease")) >= lost + len(met), "not all runs end with their lease")
    after = fleet.at_rest()
    fleet.fill()
    for lease in leases.values():
        await state.release_lease(lease)
    return len(met), sum(before.values()) - sum(after.values())


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_replicas_frozen_beyond_their_lease_delete_nothing_when_awake(tmp_path, capsys):
    chance, gone, freezes = random.Random(30), 0, 0
    with running_postgres() as postgres, replicas(tmp_path, postgres.url(), orphans=ORPHANS) as fleet:
        fleet.sweeping()
        state = await open_state(postgres.url(), SystemClock())
        while freezes < FREEZES:
            fleet.sweeping()
            await asyncio.sleep(chance.random() / 5)
            met, went = await freeze_and_wake(fleet, state)
            freezes, gone = freezes + met, gone + went
        await state.aclose()
        fleet.lake.check_live()
    with capsys.disabled():
        print(f"\n{freezes} freezes longer than the lease: {gone} files deleted after waking up")
    assert gone == 0
