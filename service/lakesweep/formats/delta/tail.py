"""The commits behind the newest checkpoint, replayed. Pure.

The last action on a file wins. A remove protects its file until the retention of removed files has passed, and
it overrules the add that the older checkpoint still has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakesweep.formats.delta.actions import Actions, FileAction, FileKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The outcome of a replay: what was last said about each file."""

    last: dict[FileKey, FileAction] = field(default_factory=dict)

    @classmethod
    def replay(cls, commits: Iterable[Actions]) -> Tail:
        """Commits in ascending order."""
        last: dict[FileKey, FileAction] = {}
        for commit in commits:
            removes = (action for action in commit.files if action.removed_ms is not None)
            adds = (action for action in commit.files if action.removed_ms is None)
            # A valid commit never adds and removes one file; should one do so, the add keeps the file.
            for action in (*removes, *adds):
                last[action.key] = action
        return cls(last=last)

    def live(self) -> frozenset[str]:
        """Addresses of files that are part of the newest state."""
        return frozenset(a for action in self.last.values() if action.removed_ms is None for a in action.addresses)

    def tolerated(self, delete_before_ms: int) -> frozenset[str]:
        """Addresses to keep that may be absent: what was removed lately, and what outside paths may mean."""
        kept = [action for action in self.last.values() if protects(action, delete_before_ms)]
        removed = frozenset(a for action in kept if action.removed_ms is not None for a in action.addresses)
        return removed | frozenset(alias for action in kept for alias in action.aliases)

    def removed(self) -> frozenset[str]:
        """Addresses of files that commits removed and did not add again."""
        gone = (action for action in self.last.values() if action.removed_ms is not None)
        return frozenset(address for action in gone for address in action.addresses) - self.live()

    def still_held(self, removed: frozenset[str], checkpoint: Iterable[FileAction], delete_before_ms: int) -> set[str]:
        """Which of the removed addresses an action of the checkpoint keeps that no commit has overruled: one file of
        deletion vectors serves many data files."""
        return {
            address
            for action in checkpoint
            if action.key not in self.last and protects(action, delete_before_ms)
            for address in (*action.addresses, *action.aliases)
            if address in removed
        }


def protects(action: FileAction, delete_before_ms: int) -> bool:
    """Does this action keep its files? An add does, and a remove that has not expired."""
    return action.removed_ms is None or action.removed_ms >= delete_before_ms
