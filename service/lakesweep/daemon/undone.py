"""What came of a restore, and what it cannot do by itself."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.cleanup.restore_finder import Finder, why_nothing
from lakesweep.model import run_document
from lakesweep.model.errors import LakesweepError
from lakesweep.model.run import CleanupRun, Outcome, Restored
from lakesweep.model.table import FACTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What came of a restore."""

    result: Restored
    paused: bool
    run: CleanupRun | None
    """None of a dry run."""
    taken: run_document.Run
    """The run that is taken back."""
    head_stands: bool = True
    """Is the metadata still there that the run began with?"""

    @property
    def in_vain(self) -> bool:
        """Can nothing be brought back?"""
        return self.why_in_vain is not None

    @property
    def why_in_vain(self) -> str | None:
        """Why nothing can be brought back, if so."""
        return why_nothing(self.result, dry_run=self.of_dry_run)

    @property
    def of_dry_run(self) -> bool:
        return self.taken["outcome"] == Outcome.DRY_RUN

    @property
    def remark(self) -> str | None:
        return remark(self.taken, head_stands=self.head_stands)


def remark(taken: run_document.Run, *, head_stands: bool) -> str | None:
    """What a restore cannot do by itself, and how a person does it."""
    expired, head = taken["expired_snapshots"], taken["head"]
    if not FACTS[taken["format"]].whole_metadata or not expired or not head:
        return None
    name = taken["table"].split("/", 2)[2]
    more = ", …" if len(expired) > 3 else ""
    found = f"the metadata no longer has the expired snapshots ({', '.join(expired[:3])}{more})"
    if not head_stands:
        return f"{found}, and {head}, which had them, is gone: without a copy of it they cannot be registered again"
    return (
        f"{found}; {head} still has them, and this registers it under another name: "
        f"CALL catalog.system.register_table(table => '{name}_restored', metadata_file => '{head}')"
    )


async def look_for_head(document: run_document.Run, finder: Finder) -> bool:
    """If that is unknown, it is assumed to be there."""
    head = document["head"]
    if not FACTS[document["format"]].whole_metadata or not document["expired_snapshots"] or not head:
        return True
    try:
        return await finder.stands(head)
    except LakesweepError:
        return True
