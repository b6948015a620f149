"""What a story is about. Most are about anything; every fifth has one subject, so that rare things meet often enough.

A profile only leans: what it prefers happens more often, and everything else still does.

From seed LATER on the world can do more (`Model.more`), and there are more subjects, each with a slot of its own: one
that is added later changes no story of the others. There every story of Delta and Paimon has a subject: those are in
`subjects`, each with a place of its own among PLACES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_EVERY = 5
WAYS, WAYS_FIRST = "other ways", 10_000_000
"""Not a subject: stories that run the product in other ways, see ways.py. Mutants of the trash are hunted there."""
LATER, LATER_ENDS = 20_000_000, 30_000_000
_SLOTS = 20
"""From LATER on so many stories in a row have a slot each. Those whose slot nobody has are as those of lower seeds."""
PLACES = 40
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
    slot: int | None = None
    """Of a subject that is told from LATER on."""
    couples: tuple[tuple[tuple[str, str, int], ...], ...] = ()
    """What happens in one cycle, one of them by chance: before each of these calls a step of a writer (or `writer`, for
    any), or after it a fault. The number counts calls of that kind, from 0 on."""
    client: bool = False
    """The Iceberg catalog only swaps a pointer."""
    cuts: bool = False
    """In every cycle a read is cut short."""
    dry_runs: bool = False
    """Some cycles only plan, and files have to be seen unreferenced by an earlier run."""
    slow: bool = False
    """Writers commit every few hours at most, except while a cycle runs."""
    kind: str = ""
    """Of the Iceberg table: see `Around.begin`. By chance if empty."""
    extras: frozenset[str] = frozenset()
    """What else there is in the world of such a story, by names that its model knows."""
    faults: tuple[str, ...] = ()
    """Calls of a cycle that go wrong, instead of any."""
    many_cycles: bool = False
    """Cycles come more often."""
    last_moment: bool = False
    """Dead files become referenced up to the last look before a request is sent."""
    last_words: bool = False
    """Also while that look is prepared."""

    def leaning(self, format: str, possible: Sequence[str]) -> Sequence[str]:
        """Those of the possible steps that the story is about; all if there is none."""
        wanted = self.prefers.get(format, ())
        return [name for name in possible if name in wanted] or possible


ANY = Profile()
_DROPPING = ("overwrite", "delete files", "compact")
_AGAIN = "add an old path again"
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
    # From here on those with a slot. Iceberg's own have 0 to 13.
    "overtakes": Profile(
        slot=0,
        prefers={"iceberg": _DROPPING},
        # While the last question is answered, its reads are those of the metadata, of a manifest list, of a manifest.
        couples=tuple((("delete", "append", 0), ("asking last: read", _AGAIN, at)) for at in (0, 1, 2, 2, 3)),
    ),
    "swaps": Profile(
        slot=1,
        prefers={
            "iceberg": ("tag", "branch", "change a ref", "change retention", "roll back", "write a negative retention")
        },
        couples=((("commit", "writer", 0),), (("commit", "writer", 0), ("pointer", "writer", 0))),
        client=True,
    ),
    "replaced": Profile(
        slot=2,
        prefers={"iceberg": _DROPPING},
        couples=tuple(
            ((on, "rename and create anew", 0),) for on in ("delete", "begin_batch", "list", "pending_expiry")
        ),
    ),
    "places": Profile(
        slot=3,
        prefers={
            "iceberg": (
                *("move to a used place", "another format moves in", "a table of another catalog moves in"),
                *("a second catalog goes on", "append"),
            )
        },
    ),
    "branches": Profile(
        slot=4,
        prefers={"iceberg": ("branch", "change a ref", "begin a stream", "stream: commit to a branch", "append")},
    ),
    "refs": Profile(
        slot=5,
        prefers={"iceberg": ("tag", "branch", "append", "overwrite")},
        couples=(
            *((("commit", "tag", 0),), (("commit", "branch", 0),)),
            *((("commit", name, 0), ("commit", "fault timeout", 0)) for name in ("tag", "branch")),
        ),
    ),
    "shares": Profile(slot=6, prefers={"iceberg": ("stop garbage collection", *_DROPPING)}),
    "latecomers": Profile(
        slot=7,
        prefers={"iceberg": ("begin a silent stream",)},
        couples=tuple(
            ((on, "a silent stream shows itself", 0),) for on in ("delete", "begin_batch", "update_run", "list")
        ),
    ),
    "undone": Profile(
        slot=8,
        prefers={"iceberg": _DROPPING},
        couples=tuple(((on, "set the catalog back", 0),) for on in ("delete", "delete", "begin_batch", "update_run")),
    ),
    "cuts": Profile(slot=9, cuts=True),
    "elsewhere": Profile(
        slot=10,
        prefers={"iceberg": ("a second catalog goes on", "append")},
        kind="metadata outside",
    ),
    "rehearsals": Profile(slot=12, prefers={"iceberg": _DROPPING}, dry_runs=True),
    "slow": Profile(
        slot=13,
        prefers={"iceberg": ("a second catalog commits once", "append", "overwrite")},
        kind="short log",
        slow=True,
    ),
    "ahead": Profile(slot=11, prefers={"iceberg": ("the catalog runs ahead", "overwrite", "append")}),
}
_NAMES = tuple(name for name, one in PROFILES.items() if one.slot is None)
_SUBJECTS: dict[str, dict[str, tuple[int, Profile]]] = {}
_BY_SLOT = {one.slot: one for one in PROFILES.values() if one.slot is not None}


def subjects_of(format: str) -> dict[str, tuple[int, Profile]]:
    """The subjects that a format has from LATER on: the place and the profile of each."""
    if not _SUBJECTS:
        from tests.sim import subjects  # noqa: PLC0415 - it imports this module

        _SUBJECTS.update(subjects.SUBJECTS)
    return _SUBJECTS.get(format, {})


def has_subject(seed: int, format: str) -> bool:
    """Does the story of a seed have one of these?"""
    return LATER <= seed < LATER_ENDS and bool(subjects_of(format))


def of(seed: int, format: str) -> Profile:
    """What the story of a seed is about."""
    if has_subject(seed, format):
        places = dict(subjects_of(format).values())
        place = (seed - LATER) % PLACES
        return places.get(place) or [*places.values()][place % len(places)]
    if seed >= LATER and (found := _BY_SLOT.get((seed - LATER) % _SLOTS)):
        return found
    return PROFILES[_NAMES[seed // _EVERY % len(_NAMES)]] if seed % _EVERY == _EVERY - 1 else ANY


def seed_of(name: str | None, number: int) -> int:
    """The seed of the story with that number among those about one thing; without a name, among all."""
    if name == WAYS:
        return WAYS_FIRST + number
    if name is not None and name not in PROFILES:
        return LATER + PLACES * number + _place(name)
    if name is not None and (slot := PROFILES[name].slot) is not None:
        return LATER + _SLOTS * number + slot
    return number if name is None else _EVERY * (len(_NAMES) * number + _NAMES.index(name)) + _EVERY - 1


def number_of(name: str | None, seed: int) -> int | None:
    """Which of these stories has the seed; None if none has."""
    number = seed if name is None else seed // _EVERY // len(_NAMES)
    if name == WAYS:
        number = seed - WAYS_FIRST
    elif name is not None and name not in PROFILES:
        number = (seed - LATER) // PLACES
    elif name is not None and PROFILES[name].slot is not None:
        number = (seed - LATER) // _SLOTS
    return number if seed_of(name, number) == seed else None


def _place(name: str) -> int:
    """Of a subject of Delta or Paimon."""
    found = (subjects_of(one).get(name) for one in ("delta", "paimon"))
    return next(subject[0] for subject in found if subject)
