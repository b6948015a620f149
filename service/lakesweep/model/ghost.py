"""A directory that looks like a table and that nobody claims, and its JSON document. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import cast

from typing_extensions import TypedDict

from lakesweep.model.run_document import Count, Moment

UNKNOWN_FORMAT = "unknown"
"""Of a directory in which only data files are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """What is left of a table that no catalog, dataset or table refers to any more."""

    location: str
    format: str
    tenant: str
    files: int
    bytes: int
    newest_modified_at: datetime | None
    evidence: tuple[str, ...]
    """Sentences: why it looks like a table, its former name, and what was checked."""
    name: str | None = None
    """The label under which Lakesweep last knew it."""
    uuid: str | None = None


class GhostDocument(TypedDict):
    """One of `ghosts --json`."""

    location: str
    format: str
    tenant: str
    files: Count
    bytes: Count
    newest_modified_at: Moment | None
    evidence: list[str]
    name: str | None
    uuid: str | None


def document(ghost: Ghost) -> GhostDocument:
    newest = ghost.newest_modified_at
    moment = newest.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if newest else None
    found = {**asdict(ghost), "newest_modified_at": moment, "evidence": list(ghost.evidence)}
    return cast("GhostDocument", found)


def digest(ghosts: Iterable[Ghost]) -> str:
    """Equal for the same places with the same content, in any order."""
    lines = sorted(
        json.dumps([one.location, one.format, one.files, one.bytes, document(one)["newest_modified_at"]])
        for one in ghosts
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
