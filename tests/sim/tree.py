"""Which code is this? Figures of another one are of no use."""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCES = ("service/lakesweep", "tests/sim", "tests/builders")


def tree() -> str:
    """A digest of everything that decides how a story goes."""
    digest = hashlib.sha256()
    for top in _SOURCES:
        for path in sorted((_ROOT / top).rglob("*.py*")):
            if path.suffix in (".py", ".pyx", ".pxi"):
                digest.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
