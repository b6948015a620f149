"""Which files may be deleted by their name alone, and which are checked first. Pure. A name with a UUID is used only
once, so a file of that name is the one that the table's history means. Any other name (`part-0.parquet`, `snapshot-7`)
may have been used again: such a file is first checked by address, and its etag is sent with the delete. A file without
a recorded size is checked in the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakesweep.model.location import DOT_SEGMENT, Location
from lakesweep.ports.table import Shortlist

_HEX = "[0-9a-fA-F]"
_UUID = re.compile(f"(?<!{_HEX}){_HEX}{{8}}-{_HEX}{{4}}-[1-8]{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}(?!{_HEX})")
"""With its dashes, version and variant. 32 digits without them may be a digest or a fixed id, which are given again."""
_DOTS = re.compile(DOT_SEGMENT)


def is_unique(name: str) -> bool:
    return _UUID.search(name) is not None


def shortlist(sizes: Mapping[str, int | None]) -> Shortlist:
    """Of files with the sizes that metadata records, None where it does not. What is no plain address is left out."""
    checked: set[str] = set()
    recorded: dict[str, int] = {}
    for path, size in sizes.items():
        place = Location.parse_or_none(path)
        if place is None or place.raw.endswith("/") or _DOTS.search(place.path):
            continue
        if size is None or not is_unique(place.raw.rpartition("/")[2]):
            checked.add(place.raw)
        else:
            recorded[place.raw] = size
    return Shortlist(
        roots=(),
        objects=tuple(sorted(checked)),
        recorded=tuple(sorted((path, size) for path, size in recorded.items() if path not in checked)),
        tolerates_all=False,
    )
