"""What test_iceberg_more_ways_to_lose_data.py and its neighbours are made of."""

from __future__ import annotations

from datetime import timedelta

from lakesweep.model.policy import CleanupPolicy


class Wrapped:
    """A table, and what goes another way."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class NeverCommits(Wrapped):
    """A table whose expiry never comes to pass, for whatever reason, while everything else works."""

    async def commit_expiry(self, state, policy, now, fence):
        return state, state.plan_expiry(CleanupPolicy(max_snapshot_age=timedelta(days=9999)), now)
