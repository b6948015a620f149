"""Files of a local disk that are used through links or mounts, so by another name than their table's. Reads only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.storage.local.same_place import RealPaths


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
