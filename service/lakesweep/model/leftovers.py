"""What storage keeps and charges for besides the files that a listing shows. Pure.

None of it is waste that a cycle deletes: the trash empties itself, and a bucket's lifecycle rules end the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class LeftoverKind(StrEnum):
    """Kinds of stored bytes that no listing shows as files of a table."""

    TRASH = "trash"
    """Deleted by a run of ours, and moved aside until `trash_hours` have passed."""
    NONCURRENT_VERSIONS = "noncurrent_versions"
    """Deleted or overwritten in a bucket that keeps versions."""
    INCOMPLETE_UPLOADS = "incomplete_uploads"
    """Parts of multipart uploads that nobody has completed or aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverPage:
    """One page of a store's response for one kind. Only the last page has a `problem`."""

    kind: LeftoverKind
    files: Sequence[tuple[str, int]] | None = None
    """Full address and bytes of each; None if the store did not answer."""
    requests: int = 0
    """Requests sent so far for this kind."""
    problem: str | None = None
    """Why counting of this kind stopped, although there may be more."""


def not_counted(why: str) -> list[LeftoverPage]:
    """The result for a store without versions and uploads."""
    kinds = (LeftoverKind.NONCURRENT_VERSIONS, LeftoverKind.INCOMPLETE_UPLOADS)
    return [LeftoverPage(kind=kind, problem=why) for kind in kinds]
