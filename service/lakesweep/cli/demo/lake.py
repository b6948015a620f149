"""A small real lake for `lakesweep demo`: tables of all three formats, with the litter that lakes gather.

Three tenants, tags, a branch, deletes, overwrites and compactions; files of failed writers, some old and some of
this minute; notes that are nobody's business; and one table that has lost a live file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakesweep.cli.demo import delta, iceberg, paimon
from lakesweep.cli.demo.tables import DemoTable, Rows
from lakesweep.model.trash import TRASH_NAME

SPARK_ABOVE_FILES = 75
"""Far below the default, so that one of these small tables counts as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLake:
    """Where the lake is, and its tables as they should look afterwards."""

    root: Path
    tables: tuple[DemoTable, ...]

    @property
    def settings(self) -> dict[str, Any]:
        initech = {"id": "initech", "root": f"file://{self.root}/initech"}
        datasets = [paimon.dataset(self.root / "initech"), delta.dataset(self.root / "initech")]
        return {
            "tenants": [*iceberg.tenants(self.root), {**initech, "datasets": datasets}],
            "engine": {"spark_above_files": SPARK_ABOVE_FILES},
            # Its old files were made just now and then dated back.
            "storage": {"local": {"age_by": "modification"}},
        }

    @property
    def planted(self) -> dict[str, tuple[Path, ...]]:
        """By table: files that no writer ever committed and that are old enough to go."""
        return {table.label: table.planted for table in self.tables}

    def rows(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for table in self.tables:
            try:
                found[table.label] = table.read()
            except FileNotFoundError:
                found[table.label] = {}
        return found

    def size(self) -> tuple[int, int]:
        """Files and bytes in the lake, catalogs and the trash not counted."""
        found = [path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".db"]
        sizes = [path.stat().st_size for path in found if TRASH_NAME not in path.parts]
        return len(sizes), sum(sizes)


def build(root: Path) -> DemoLake:
    tables = [*iceberg.build(root), asyncio.run(paimon.build(root / "initech")), delta.build(root / "initech")]
    return DemoLake(root=root, tables=tuple(tables))
