"""A bar chart of pairs as SVG, drawn by hand: no library, readable on light and dark pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

_LEFT, _WIDTH, _RIGHT = 330, 520, 110
_BAR, _GAP, _TOP = 16, 22, 70
_OURS, _THEIRS = "#0b7a75", "#b0763a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What we took and what they took for the same work."""

    label: str
    against: str
    ours: float
    theirs: float


def draw(title: str, pairs: list[Pair], unit: str) -> str:
    """One group of two bars per pair, on a logarithmic scale that begins below the smallest."""
    values = [value for pair in pairs for value in (pair.ours, pair.theirs)]
    low, high = math.floor(math.log10(min(values))), math.log10(max(values))
    width = _LEFT + _WIDTH + _RIGHT
    height = _TOP + len(pairs) * (2 * _BAR + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(16, 24, title, size=16, weight="bold"),
        _box(16, 36, 12, _OURS) + _text(34, 47, "Lakesweep, from the start of the process, empty cache"),
        _box(400, 36, 12, _THEIRS) + _text(418, 47, "the other tool, session started and warm"),
    ]
    for index, pair in enumerate(pairs):
        top = _TOP + index * (2 * _BAR + _GAP)
        parts += [_text(_LEFT - 10, top + 12, pair.label, anchor="end")]
        parts += [_text(_LEFT - 10, top + _BAR + 12, pair.against, anchor="end", fill="#666666")]
        for row, (value, colour) in enumerate(((pair.ours, _OURS), (pair.theirs, _THEIRS))):
            length = max(2.0, _WIDTH * (math.log10(value) - low) / (high - low))
            y = top + row * _BAR
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            parts.append(_text(_LEFT + length + 6, y + 12, unit.format(value)))
    return "\n".join([*parts, "</svg>", ""])


def _box(x: float, y: float, size: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 13,
    weight: str = "normal",
    fill: str = "#111111",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )
