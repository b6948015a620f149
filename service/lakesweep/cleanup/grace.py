"""How long an unreferenced file of a table waits, and why. Pure."""

from __future__ import annotations

from datetime import timedelta

from lakesweep.model.policy import CleanupPolicy
from lakesweep.ports.table import TableState


def span(policy: CleanupPolicy, state: TableState) -> timedelta:
    """The longest of the grace period, the format's own retention and, where a stream writes, what it may need."""
    return max(policy.grace_period, state.minimum_age, policy.stream_state if state.stream else timedelta(0))


def sentence(policy: CleanupPolicy, state: TableState) -> str | None:
    """For people, where files wait for a stream's sake longer than the table's other rules ask for; None elsewhere."""
    if state.stream is None or policy.stream_state <= max(policy.grace_period, state.minimum_age):
        return None
    return (
        f"{state.stream} writes to this table, so unreferenced files stay for "
        f"{policy.stream_state / timedelta(hours=1):g} h (stream_state_hours): it may come back and commit them"
    )
