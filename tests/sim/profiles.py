"""What a story is about. Most are about anything; every fifth has one subject, so that rare things meet often enough.

A profile only leans: what it prefers happens more often, and everything else still does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_EVERY = 5
_BETWEEN = (
    *("save_plan", "begin_batch", "begin_batch", "finish_batch", "update_run", "delete", "delete", "delete"),
    *("sweeping: read", "sweeping: read", "sweeping: list", "sweeping: pointer", "sweeping: stat"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a story leans."""

    prefers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Steps of writers, by format."""
    small_batches: bool = False
    between: tuple[str, ...] = ()
    """Calls of a cycle at which writers come, instead of anywhere."""
    ageless: bool = False
    """The store does not say how old some objects are. They have to stay."""
    wrong_clocks: bool = False
    """Cycles often begin with a clock that was just set."""

    def leaning(self, format: str, possible: Sequence[str]) -> Sequence[str]:
        """Those of the possible steps that the story is about; all if there is none."""
        wanted = self.prefers.get(format, ())
        return [name for name in possible if name in wanted] or possible


ANY = Profile()
PROFILES: dict[str, Profile] = {
    "returns": Profile(
        prefers={
            "iceberg": ("add an old path again", "set the catalog back"),
            "delta": ("restore", "remove", "overwrite"),
            "paimon": ("roll_back_far", "rollback", "as_latest", "tag", "consume_again", "overwrite"),
        },
        small_batches=True,
        between=_BETWEEN,
    ),
    "lending": Profile(
        prefers={
            "iceberg": ("a neighbour uses our files", "create a table next door"),
            "delta": ("clone", "write_to_clone", "remove", "overwrite", "optimize"),
            "paimon": ("neighbour", "branch", "fast_forward", "overwrite"),
        },
        between=("recall", "recall", "recall", "pending_expiry", "save_plan", "begin_batch", "delete"),
    ),
    "clocks": Profile(wrong_clocks=True),
    "ages": Profile(
        prefers={
            "iceberg": ("begin a job", "commit a job", "fail to commit"),
            "delta": ("begin_job", "commit_job", "remove"),
            "paimon": ("begin_job", "commit_job", "stray"),
        },
        ageless=True,
    ),
    "streams": Profile(
        prefers={
            "iceberg": ("begin a stream", "stream: checkpoint", "stream: commit", "overwrite"),
            "delta": ("stream", "begin_job", "commit_job", "remove"),
            "paimon": ("stream", "consume", "append_with_changelog", "delete_consumer", "overwrite"),
        },
    ),
    "histories": Profile(
        prefers={
            "iceberg": ("a second catalog goes on", "set the catalog back", "the catalog runs ahead", "move"),
            "delta": ("restore", "other_log_cleanup", "other_vacuum", "drop_and_create", "checkpoint"),
            "paimon": ("drop_and_create", "fast_forward", "roll_back_to_tag", "other_expiry", "delete_branch"),
        },
    ),
}
_NAMES = tuple(PROFILES)


def of(seed: int) -> Profile:
    """What the story of a seed is about."""
    return PROFILES[_NAMES[seed // _EVERY % len(_NAMES)]] if seed % _EVERY == _EVERY - 1 else ANY


def seed_of(name: str | None, number: int) -> int:
    """The seed of the story with that number among those about one thing; without a name, among all."""
    return number if name is None else _EVERY * (len(_NAMES) * number + _NAMES.index(name)) + _EVERY - 1


def number_of(name: str | None, seed: int) -> int | None:
    """Which of these stories has the seed; None if none has."""
    number = seed if name is None else seed // _EVERY // len(_NAMES)
    return number if seed_of(name, number) == seed else None
