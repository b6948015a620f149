"""Divide one S3 prefix into parts that other processes list: by its `/` children, and wide levels by key range.

It takes a few requests, and the number of keys in a part is unknown. The border between two ranges is a page that both
know, never a key that is compared: the first range ends where it meets the page, the second begins with it. So no key
is lost or listed twice in a store whose StartAfter returns the rest of its own order, whatever that order is. Points
are guessed from key order, so a store that is seen to break it is not divided by range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep import aio
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part
from lakesweep.storage.s3.keys import midpoint
from lakesweep.storage.s3.list_parser import Page
from lakesweep.storage.s3.listing import FetchPage

T = TypeVar("T")
U = TypeVar("U")

MOST_PER_WANTED = 20
"""More parts than this multiple of the wanted number cost more than they help."""
_DEEPEST = 4
_MOST_ROUNDS = 48
"""Each round looks for one more point in every range: about six to pass a character that all keys share."""
_LOOKS_PER_PART = 2
"""Requests that the search for borders may take, in addition to one for each round."""
_BORDER_KEYS = 32
"""The number of keys that make a border: they will not all be deleted before the listing reaches it."""
_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Keys from the first page on, up to the next range."""

    after: str | None
    """The StartAfter of the request for that page."""
    border: tuple[str, ...]
    last_key: str
    """The last key of the first page."""
    bound: str | None = None
    """No key of this range is known to lie beyond this; a hint for the next point."""
    indivisible: bool = False
    depth: int = 0
    """How many times it was divided."""


class Division:
    """One root being divided."""

    def __init__(self, fetch: FetchPage, root: Location, *, may_split: bool) -> None:
        self._fetch = fetch
        self._root = root
        self._may_split = may_split

    async def parts(self, wanted: int) -> list[Part]:
        """About this many parts; fewer if the root cannot be divided further."""
        done: list[Part] = []
        wide: list[str] = []
        level = [self._root.as_directory().path]
        for _ in range(_DEEPEST):
            if not level or len(done) + len(wide) + len(level) >= wanted:
                break
            pages = await aio.gather_bounded(
                level, lambda prefix: self._fetch(Prefix=prefix, Delimiter="/"), limit=_AT_ONCE
            )
            above, level = level, []
            for prefix, page in zip(above, pages, strict=True):
                too_many = len(done) + len(level) + len(page.prefixes) > MOST_PER_WANTED * wanted
                if page.next_token is not None:
                    wide.append(prefix)
                elif too_many or not page.prefixes:
                    done.append(self._whole(prefix))
                else:
                    done.append(replace(self._whole(prefix), flat=True))
                    level += page.prefixes
        done += [self._whole(prefix) for prefix in level]
        for prefix in wide:
            done += await self._ranges(prefix, max(1, (wanted - len(done)) // len(wide)))
        return done

    def _whole(self, prefix: str) -> Part:
        return Part(root=self._root, prefix=prefix)

    async def _ranges(self, prefix: str, wanted: int) -> list[Part]:
        first = _range(None, await self._fetch(Prefix=prefix))
        if first is None or not self._may_split:
            return [self._whole(prefix)]
        ranges, looks = [first], _LOOKS_PER_PART * wanted
        for turn in range(_MOST_ROUNDS):
            # Alternate between all characters and those of one kind: hexadecimal names need both.
            ahead = _points(prefix, ranges, min(wanted - len(ranges), looks), within_kind=turn % 2 == 1)
            if not ahead:
                break
            looks = max(looks - len(ahead), 1)
            pages = await aio.gather_bounded(
                ahead.values(), lambda point: self._fetch(Prefix=prefix, StartAfter=point), limit=_AT_ONCE
            )
            found = dict(zip(ahead, pages, strict=True))
            if not all(_in_order(page, ahead[number]) for number, page in found.items()):
                return [self._whole(prefix)]
            ranges = _with_borders(ranges, ahead, found)
        borders = [(), *(one.border for one in ranges[1:]), ()]
        return [
            replace(self._whole(prefix), after=one.after, first=begin, until=end)
            for one, (begin, end) in zip(ranges, pairwise(borders), strict=True)
        ]


def _points(prefix: str, ranges: Sequence[_Range], most: int, *, within_kind: bool) -> dict[int, str]:
    """Where to look for the next borders, by the number of the range."""
    points: dict[int, str] = {}
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number].depth):
        one = ranges[number]
        high = one.bound or (ranges[number + 1].border[0] if number + 1 < len(ranges) else None)
        point = None if one.indivisible else midpoint(one.last_key, high, prefix, within_kind=within_kind)
        if point is not None and len(points) < most:
            points[number] = point
    return points


def _in_order(page: Page, point: str) -> bool:
    return not len(page.keys) or (page.is_ascending() and page.keys[0].as_py() > point)


def _with_borders(ranges: Sequence[_Range], points: dict[int, str], pages: dict[int, Page]) -> list[_Range]:
    """The ranges, divided where keys were found behind a point and before the next range."""
    divided: list[_Range] = []
    for number, one in enumerate(ranges):
        if number not in pages:
            divided.append(one)
            continue
        following = ranges[number + 1].border if number + 1 < len(ranges) else ()
        ahead = _range(points[number], pages[number], following)
        depth = one.depth if ahead is None else one.depth + 1
        divided.append(replace(one, bound=points[number], depth=depth))
        if ahead is not None:
            divided.append(replace(ahead, bound=one.bound, depth=depth))
    return divided


def _range(after: str | None, page: Page, following: tuple[str, ...] = ()) -> _Range | None:
    """The range that begins with a page; None if all of the page is behind the following border."""
    met = pc.index(pc.is_in(page.keys, pa.array(following, pa.string())), True).as_py()
    mine = page if met < 0 else page.head(met)
    if not len(mine.keys):
        return None
    return _Range(
        after=after,
        border=tuple(mine.keys[:_BORDER_KEYS].to_pylist()),
        last_key=mine.keys[-1].as_py(),
        indivisible=mine.next_token is None,
    )
