"""One page of the report: searched, filtered and sorted here, so that a browser never holds all tables. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lakesweep.admin import documents
from lakesweep.model import lake_report

Sort = Literal["waste", "table", "live", "planned", "problem"]


class Wanted(BaseModel):
    """Which of the tables."""

    model_config = ConfigDict(extra="forbid")

    q: Annotated[str, Field(max_length=200, description="Only tables whose name contains this, ignoring case.")] = ""
    problem: Annotated[
        str,
        Field(
            max_length=100,
            description="Only tables with this problem code; `*` for any, `person` for those that wait for a person.",
        ),
    ] = ""
    tenant: Annotated[str, Field(max_length=1000, description="Only this tenant's.")] = ""
    sort: Annotated[Sort, Field(description="Sort by waste, or by another column.")] = "waste"
    descending: Annotated[bool, Field(description="Reverse the order.")] = False
    offset: Annotated[int, Field(ge=0, le=10**9, description="Number of tables to skip.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of tables to return.")] = 50


_KEYS: dict[Sort, Callable[[lake_report.ReportTable], Any]] = {
    "waste": lambda row: -row["waste_bytes"],
    "table": lambda row: row["table"],
    "live": lambda row: -row["bytes"]["live"] if row["bytes"] else 1,
    "planned": lambda row: row["last_planned_at"] or "",
    "problem": lambda row: (row["why"] is None, not (row["why"] and row["why"]["needs_person"]), row["problem"] or ""),
}


def of(report: lake_report.Report, wanted: Wanted) -> documents.ReportPage:
    """The report with the tables that were requested; its sums are of all."""
    found = [row for row in report["tables"] if _matches(row, wanted)]
    # Sorting is stable and the report comes by waste, so equal rows stay in that order.
    found.sort(key=_KEYS[wanted.sort], reverse=wanted.descending)
    page = found[wanted.offset : wanted.offset + wanted.limit]
    shown = wanted.offset + len(page)
    return {**report, "tables": page, "matching": len(found), "next": shown if page and shown < len(found) else None}


def _matches(row: lake_report.ReportTable, wanted: Wanted) -> bool:
    if wanted.q.lower() not in row["table"].lower():
        return False
    if wanted.tenant and row["table"].partition("/")[0] != wanted.tenant:
        return False
    why = row["why"]
    match wanted.problem:
        case "":
            return True
        case "*":
            return why is not None
        case "person":
            return why is not None and why["needs_person"]
    return why is not None and why["code"] == wanted.problem
