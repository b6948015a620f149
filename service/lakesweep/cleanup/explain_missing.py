"""Why a live file that is there may not be listed: on local disks, a symbolic link on the way to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from lakesweep.model.location import Location


async def explain(missing: Sequence[str], roots: Iterable[Location]) -> str:
    """A sentence to add to a refusal, naming the link; empty where there is none."""
    path = _local_path(missing[0]) if missing else None
    if path is None:
        return ""
    link = await asyncio.to_thread(_first_link, path, [one.path for one in roots])
    if link is None:
        return ""
    return f" ({link} is a symbolic link, and a listing follows none: move the files to where the table names them)"


def _local_path(text: str) -> Path | None:
    """Also None for a bare name: formats that match by name know no more of a file."""
    place = Location.parse_or_none(text)
    return Path(place.path) if place and place.is_local else None


def _first_link(path: Path, roots: Iterable[str]) -> Path | None:
    """The outermost link below the root that holds this path, the path itself included."""
    for root in roots:
        if path.is_relative_to(root):
            below = [*reversed(path.relative_to(root).parents), path.relative_to(root)]
            return next((Path(root) / part for part in below[1:] if (Path(root) / part).is_symlink()), None)
    return None
