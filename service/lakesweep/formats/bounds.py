"""How large metadata of any format may become. A tenant chooses what a table's metadata inflates to, so nothing is
decompressed, decoded or parsed without a limit. The limit grows with the stored size, by more than any real metadata
compresses, up to storage.max_metadata_bytes."""

from __future__ import annotations

_FREE = 64 * 1024 * 1024
"""Bytes that any object may become."""
_RATIO = 100
"""How many times its own size a larger one may become. Manifests compress to a tenth, log files to a twentieth."""
_most = 2 * 1024**3
_memory: int | None = None


def allow(most: int, memory: int | None = None) -> None:
    """Set storage.max_metadata_bytes for this process, and the memory that a run may take if that is limited."""
    global _most, _memory
    _most, _memory = most, memory


def check_memory(needed: int) -> None:
    """Raise ValueError if a run may not take so much memory: before it is taken, if one call takes it all."""
    if _memory is not None and needed > _memory:
        raise ValueError(
            f"reading it takes about {needed >> 20} MiB of memory, and a run may take {_memory >> 20} MiB: raise "
            "engine.memory_limit"
        )


def most() -> int:
    return _most


def allowance(stored: int, ratio: int = _RATIO) -> int:
    """How many bytes an object of this size may become."""
    return min(expansion(stored, ratio), _most)


def expansion(stored: int, ratio: int = _RATIO) -> int:
    """The same for what is read in pieces and need never be there as a whole."""
    return max(_FREE, ratio * stored)


class TooMuch(ValueError):
    """More than the allowance. A ValueError, as other damage is."""

    def __init__(self, allowed: int) -> None:
        super().__init__(f"it expands to more than the {allowed} bytes that are allowed for a file of its size")
