"""Empty directories on local disks: found here, removed by `local_delete`. Object stores have none. Reads only."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from lakesweep.model.files import AgeBy
from lakesweep.storage.local.walk import modified_at


def empty_directories(root: str, older_than: datetime, age_by: AgeBy) -> list[str]:
    """Directories below `root` that hold no file at any depth and were not touched since. Links are never followed,
    and a directory that cannot be read does not count as empty."""
    found: list[str] = []
    _collect(root, older_than, age_by, found, top=True)
    return found


def _collect(path: str, older_than: datetime, age_by: AgeBy, found: list[str], *, top: bool) -> bool:
    """Is this directory empty and old? Then it is in `found`, after everything below it."""
    empty = True
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                inner = entry.is_dir(follow_symlinks=False)
                if not inner or not _collect(entry.path, older_than, age_by, found, top=False):
                    empty = False
        old = modified_at(Path(path).lstat(), age_by) < older_than
    except OSError:
        return False
    if empty and old and not top:
        found.append(path)
    return empty and old
