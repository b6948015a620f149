"""Results of a comparison as text, JSON and a chart."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from tests.bench import charts
from tests.bench.measuring import Cost

_HEADINGS = (
    "work",
    "table",
    "against",
    "ours s",
    "theirs s",
    "x faster",
    "ours CPU s",
    "theirs CPU s",
    "ours MB",
    "theirs MB",
    "requests",
)
_BEGIN, _END = "<!-- results -->", "<!-- end of results -->"
_PACKAGES = ("pyspark", "deltalake", "duckdb", "pyarrow", "aiobotocore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One piece of work on one table, done by both."""

    work: str
    table: str
    files: int
    ours: Cost
    peer: str
    theirs: Cost

    @property
    def name(self) -> tuple[str, str, str]:
        """Two results of this name are of the same comparison."""
        return self.work, self.table, self.peer

    @property
    def faster(self) -> float:
        """How many times as long they take."""
        return self.theirs.seconds / self.ours.seconds

    def cells(self) -> tuple[str, ...]:
        """As a row of a table."""
        asked = "" if self.ours.requests is None else f"{self.ours.requests:,} / {self.theirs.requests:,}"
        return (
            self.work,
            self.table,
            self.peer,
            f"{self.ours.seconds:.1f}",
            f"{self.theirs.seconds:.1f}",
            f"{self.faster:.1f}",
            f"{self.ours.cpu_seconds:.1f}",
            f"{self.theirs.cpu_seconds:.1f}",
            f"{self.ours.memory_mb:,.0f}",
            f"{self.theirs.memory_mb:,.0f}",
            asked,
        )


def line(result: Result) -> str:
    """One result while others are still being measured."""
    return "  " + " | ".join(result.cells())


def table(found: list[Result]) -> str:
    """All results as a Markdown table."""
    rows = [_HEADINGS, *(result.cells() for result in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def machine() -> dict[str, str]:
    """What it was measured on."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    names = described.read_text().splitlines() if described.is_file() else []
    return next((text.partition(":")[2].strip() for text in names if text.startswith("model name")), platform.machine())


def write(found: list[Result], docs: Path) -> None:
    """The JSON and one chart each for time and memory. What other runs measured stays, unless it was measured anew."""
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    target = images / "bench-results.json"
    fresh = {result.name: result for result in found}
    before = [_read(row) for row in json.loads(target.read_text())["results"]] if target.is_file() else []
    kept = {result.name: result for result in before} | fresh
    shown = sorted(kept.values(), key=lambda result: (result.work, "S3" in result.table, result.files, result.peer))
    document = {"machine": machine(), "results": [asdict(result) for result in shown]}
    target.write_text(json.dumps(document, indent=2) + "\n")
    _refresh(docs / "benchmarks.md", shown)
    for file, cost, title, unit in (
        ("bench-time.svg", "seconds", "Time in seconds", "{:.1f} s"),
        ("bench-memory.svg", "memory_mb", "Peak memory in MB", "{:,.0f} MB"),
    ):
        pairs = [
            charts.Pair(
                label=f"{result.work}, {result.table}",
                against=result.peer,
                ours=getattr(result.ours, cost),
                theirs=getattr(result.theirs, cost),
            )
            for result in shown
        ]
        (images / file).write_text(charts.draw(f"{title} (logarithmic; shorter is better)", pairs, unit))


def _refresh(page: Path, shown: list[Result]) -> None:
    """Put the machine and the table where the page says that they go."""
    if not page.is_file():
        return
    before, rest = page.read_text().split(_BEGIN)
    _, after = rest.split(_END)
    described = "".join(f"- {name}: {value}\n" for name, value in machine().items())
    page.write_text(f"{before}{_BEGIN}\n{described}\n{table(shown)}\n{_END}{after}")


def _read(row: dict[str, Any]) -> Result:
    return Result(**row | {"ours": Cost(**row["ours"]), "theirs": Cost(**row["theirs"])})
