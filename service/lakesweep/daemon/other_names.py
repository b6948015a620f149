"""Files that tables use under another name of their place: through a link or a mount on a disk, through an access point
of a bucket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.storage.local.same_place import RealPaths

_STORE = r"^([^/]+//[^/]+/).*$"


def behind_access_points(addresses: pa.Array, root: Location) -> list[str]:
    """Those that may be below a root, as the root spells them, if they or the root name an access point."""
    if root.is_local:
        return []
    stores = pc.replace_substring_regex(addresses, _STORE, r"\1")
    named = {text: Location.parse_or_none(text) for text in pc.unique(stores).to_pylist()}
    alike = [text for text, store in named.items() if store is not None and store.may_be_bucket_of(root)]
    found = addresses.filter(pc.is_in(stores, pa.array(alike, pa.string())))
    root = root.as_directory()
    places = filter(None, map(Location.parse_or_none, found.to_pylist()))
    keys = [one.key_in_bucket for one in places if not one.match_key.startswith(root.match_key)]
    return [root.raw + key.removeprefix(root.key_in_bucket) for key in keys if key.startswith(root.key_in_bucket)]


async def through_links(used: Mapping[TableRef, list[str]], roots: Sequence[Location]) -> dict[TableRef, list[str]]:
    """By table: which of these local paths lead below the roots, as the roots spell them. Those that begin with a
    root's own name are left out."""
    local = [root for root in roots if root.is_local]
    if not local or not any(used.values()):
        return {}
    return await asyncio.to_thread(_through_links, used, local)


def _through_links(used: Mapping[TableRef, list[str]], roots: Sequence[Location]) -> dict[TableRef, list[str]]:
    real = RealPaths()
    ours = [(root.as_directory(), real.of_directory(root.path)) for root in roots]
    found: dict[TableRef, list[str]] = {}
    for ref, paths in used.items():
        for path in paths:
            theirs = real.of_file(path)
            for root, names in ours:
                below = [
                    name.removeprefix(own) for name, own in zip(theirs, names, strict=True) if name.startswith(own)
                ]
                if below and not path.startswith(root.path):
                    found.setdefault(ref, []).append(root.raw + below[0])
    return found


def top_directories(roots: Sequence[Location]) -> list[str]:
    """Where another name of a local place may begin."""
    return os.listdir("/") if any(root.is_local for root in roots) else []  # noqa: PTH208 - names only
