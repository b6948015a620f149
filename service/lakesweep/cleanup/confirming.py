"""What `confirm_after_hours` adds to the explanation of one file: since when the ledger has it, how long it waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime

from lakesweep.cleanup import ledger
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.explain import Explanation
from lakesweep.cleanup.records import StateStore
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.model.files import Verdict
from lakesweep.model.policy import CleanupPolicy


@dataclass(frozen=True, kw_only=True)
class Confirming:
    """Reads the ledger beside an explanation. Changes nothing."""

    policy: CleanupPolicy
    state: StateStore
    artifacts: Artifacts

    async def add(self, explanation: Explanation, now: datetime) -> Explanation:
        """An orphan that was not seen for long enough is kept for now, and the explanation says so."""
        wait = self.policy.confirm_after
        if explanation.verdict is not Verdict.ORPHAN or not wait:
            return explanation
        seen = await self._first_seen(explanation.table.label, explanation.path)
        if seen is None:
            sentence = f"no successful run has seen it so yet; it waits for {wait} from the first one that does"
            return replace(explanation, verdict=Verdict.YOUNG, sentences=(*explanation.sentences, sentence))
        first = f"first seen so by a run at {seen:%Y-%m-%d %H:%M} UTC"
        if seen + wait <= now:
            return replace(explanation, sentences=(*explanation.sentences, first))
        return replace(
            explanation,
            verdict=Verdict.YOUNG,
            sentences=(*explanation.sentences, f"{first}; confirm_after_hours keeps it for {wait} from then"),
            deletable_from=seen + wait,
        )

    async def _first_seen(self, table: str, path: str) -> datetime | None:
        header = await self.state.get_ledger(table)
        if header is None or not header.rows_path:
            return None
        try:
            async with self.artifacts.opened(header.rows_path) as rows:
                await asyncio.to_thread(ledger.check_digest, rows, header.rows_path)
                return await asyncio.to_thread(ledger.first_seen, rows, path)
        except (Unreadable, StorageError, OSError):
            return None  # a ledger that cannot be read counts as empty
