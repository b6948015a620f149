"""A model table in memory, and cycles over it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.cycles import Bench, SetClock
from tests.builders.paimon_model import ModelTable
from tests.builders.stores import GatedUnpublishedRemover, StorageSpec

from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.memory import bucket
from lakesweep.storage.registry import open_deleter

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class World:
    """One model table and a bench to clean it with."""

    def __init__(self, scratch: Path) -> None:
        self.name = uuid.uuid4().hex
        self.bucket = bucket(self.name)
        self.bucket.clock = lambda: NOW
        self.bench = Bench(root=f"memory://{self.name}/wh", clock=SetClock(NOW), scratch=scratch)  # type: ignore[arg-type]
        self.table = self.make({})

    def make(self, options: dict[str, str], name: str = "t") -> ModelTable:
        self.table = ModelTable(self.bucket, f"wh/d.db/{name}", NOW - timedelta(days=1), options)
        return self.table

    def handle(self, **changes: Any) -> PaimonTable:
        root = Location.parse(str(self.bench.root))
        settings = {
            "ref": TableRef(tenant=TenantId("t"), dataset="d", name="t", format=FormatName.PAIMON),
            "location": Location.parse(self.table.address),
            "storage": self.bench.storage,
            "tenant_root": root,
            "writer": self.bench.writer,
            "remover": GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), root),
        }
        return PaimonTable(**(settings | changes))

    async def clean(self, keep: int = 1, *, execute: bool = True, handle: PaimonTable | None = None) -> CleanupRun:
        policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0), min_snapshots_to_keep=keep)
        return await self.bench.run(handle or self.handle(), policy, execute=execute)
