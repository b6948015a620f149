"""Metadata that no listing shows. Reads only.

A listing holds regular files. A link in a directory of commits or snapshots is read by every writer and reader, and is
not in it: the newest state would be invisible to us, and its files would look like orphans.
"""

from __future__ import annotations

from lakesweep.model.errors import Indeterminate
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage


async def refuse(storage: Storage, *places: Location) -> None:
    """Raises Indeterminate if anything in one of these metadata directories is not a regular file."""
    for place in places:
        found = await storage.irregular(place)
        if found:
            raise Indeterminate(
                f"{found[0]} is a link or another kind of file that listings leave out (there are {len(found)} in "
                f"{place}), so the listing is incomplete: replace it with the real files"
            )
