"""Ways to run the product that are not its default: some stories of higher seeds draw them.

Below FIRST every story runs as it always did, so that a seed that failed once still tells what it found.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.sim import profiles

FIRST = profiles.WAYS_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How the operator of a story has set it up."""

    trash: bool = False
    """Files are moved, and some runs are taken back."""
    interval: int | None = None
    """Hours between two listings. Some cycles in between list nothing at all."""

    client: bool = False
    """An Iceberg table's catalog only swaps a pointer: whoever commits writes the metadata file."""
    repeats: bool = False
    """The store lists in small pages, and hands one out twice now and then."""
    stale: bool = False
    """It answers from a cache now and then, while a plan is made."""


USUAL = Ways()


def of(format: str, seed: int) -> Ways:
    """Those of a story: each by itself, several, or none."""
    if seed < FIRST or profiles.has_subject(seed, format):
        return USUAL
    chance = random.Random(f"ways {format} {seed}")
    trash, interval = chance.random() < 0.4, chance.choice([None, 30, 100, 400])
    client, stale = (format == "iceberg" and chance.random() < share for share in (0.4, 0.3))
    repeats = chance.random() < 0.3
    return Ways(trash=trash, interval=interval, client=client, stale=stale, repeats=repeats)
