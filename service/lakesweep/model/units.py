"""Numbers as people read them. Pure."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """1 file, 12,345 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(size_bytes: int) -> str:
    """Bytes in the largest unit that leaves a whole number before the point: 1.5 GiB."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} PiB"
