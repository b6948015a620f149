"""What the demo's tables have in common: rows, ages, and files that nobody ever committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

Rows = dict[str, tuple[int, ...]]
"""The ids of the rows in each state that a reader can ask for: the newest, tags, branches, old versions."""

HEAD = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTable:
    """One table of the lake."""

    label: str
    format: str
    about: str
    read: Callable[[], Rows]
    planted: tuple[Path, ...] = ()
    """Orphans that must be gone afterwards."""
    curious: tuple[Path, ...] = ()
    """Files that look deletable and are not: what `lakesweep explain` is for."""
    expiring: frozenset[int] = frozenset()
    """Ids of rows that the table's own rules let go of: they leave the newest state, and no other."""
    damaged: bool = False
    """A live file is gone, so the table cannot be read and must be refused."""

    def expected(self, before: Rows) -> Rows:
        if self.damaged:
            return before
        return {**before, HEAD: tuple(number for number in before[HEAD] if number not in self.expiring)}


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def rows(first: int, count: int, day: str) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "day": [day] * count, "what": [f"item {number}" for number in ids]})


def ids_of(table: pa.Table) -> tuple[int, ...]:
    return tuple(sorted(table.column("id").to_pylist()))


def plant_old(*paths: Path) -> tuple[Path, ...]:
    """Files of writers that never committed, ten days old."""
    for path in paths:
        plant_young(path)
        set_time(path, days_ago(10))
    return paths


def plant_young(*paths: Path) -> tuple[Path, ...]:
    """Files of this minute: a running writer may be about to commit them."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not committed by anybody" * 400)
    return paths


def set_time(path: Path, moment: datetime) -> None:
    os.utime(path, (moment.timestamp(), moment.timestamp()))
