"""What a saved plan consists of, by reason, kind and directory, and the files whose path contains some text. Reads
only.

Whole columns at a time: a plan may name millions of files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import plan_file
from lakesweep.model.files import Candidate, Tally

DIRECTORIES_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGroups:
    """Files and bytes by name, the most bytes first."""

    by_reason: dict[str, Tally]
    by_kind: dict[str, Tally]
    by_directory: dict[str, Tally]
    """The largest ones only."""


def groups(rows_path: str) -> PlanGroups:
    found: dict[str, tuple[Counter[str], Counter[str]]] = {
        name: (Counter(), Counter()) for name in ("reason", "kind", "directory")
    }
    for rows in plan_file.read_rows(rows_path):
        directory = pc.replace_substring_regex(rows.column("path"), pattern="/[^/]*$", replacement="")
        for name, column in (
            ("reason", rows.column("reason")),
            ("kind", rows.column("kind")),
            ("directory", directory),
        ):
            table = pa.table({"name": column, "size": rows.column("size_bytes")})
            counted = table.group_by("name").aggregate([("size", "count"), ("size", "sum")])
            files, sizes = found[name]
            for key, number, size in zip(*(counted.column(one).to_pylist() for one in _COLUMNS), strict=True):
                files[key] += number
                sizes[key] += size or 0
    return PlanGroups(
        by_reason=_largest(*found["reason"]),
        by_kind=_largest(*found["kind"]),
        by_directory=dict(list(_largest(*found["directory"]).items())[:DIRECTORIES_SHOWN]),
    )


_COLUMNS = ("name", "size_count", "size_sum")


def search(rows_path: str, text: str, offset: int, limit: int) -> tuple[list[Candidate], int]:
    """Some of the files whose path holds the text, in the plan's order, and how many there are."""
    found: list[Candidate] = []
    matching = 0
    for rows in plan_file.read_rows(rows_path):
        hits = rows.filter(pc.match_substring(rows.column("path"), text, ignore_case=True))
        first = max(0, offset - matching)
        if first < hits.num_rows and len(found) < limit:
            found += plan_file.candidates(hits.slice(first, limit - len(found)))
        matching += hits.num_rows
    return found, matching


def _largest(files: Counter[str], sizes: Counter[str]) -> dict[str, Tally]:
    ordered = sorted(files, key=lambda name: (-sizes[name], name))
    return {name: Tally(files=files[name], bytes=sizes[name]) for name in ordered}
