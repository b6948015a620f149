"""Make what a test wrote look old, so that default grace periods apply as they do in production."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.peers.independent import plain

DAY = 24 * 3600


def age(root: str, *, days: float = 10) -> None:
    """Set the times of all files below a local root back."""
    past = time.time() - days * DAY
    for path in Path(plain(root)).rglob("*"):
        if path.is_file():
            os.utime(path, (past, past))


def plant(root: str, *names: str, content: bytes = b"stray", days: float = 10) -> frozenset[str]:
    """Write files that no snapshot names, old ones by default; returns their plain addresses."""
    past = time.time() - days * DAY
    planted = []
    for name in names:
        path = Path(plain(root)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (past, past))
        planted.append(str(path))
    return frozenset(planted)
