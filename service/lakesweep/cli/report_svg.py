"""The charts of the HTML report, as inline SVG. Numbers in, markup out; no text from outside comes here."""

from __future__ import annotations

from collections.abc import Sequence

from lakesweep.cli import screen
from lakesweep.model.lake_report import Day

_WIDTH, _SLIM, _HEIGHT = 900, 360, 220
_LEFT, _BOTTOM, _TOP = 70, 24, 10


def stacked(parts: Sequence[tuple[str, int]], *, label: str) -> str:
    """One bar of all parts; each part's name is its class."""
    total = sum(size for _, size in parts)
    drawn, start = [], 0.0
    for name, size in parts:
        width = size / total * _WIDTH if total else 0
        if size:
            drawn.append(
                f'<rect class="{name}" x="{start:.1f}" y="0" width="{max(width, 1.5):.1f}" height="28">'
                f"<title>{name} {screen.size(size)}</title></rect>"
            )
        start += width
    return f'<svg viewBox="0 0 {_WIDTH} 28" role="img" aria-label="{label}">{"".join(drawn)}</svg>'


def bar(value: int, most: int) -> str:
    """A small bar that compares one row with the others."""
    width = value / most * 120 if most else 0
    shown = f'<rect class="orphan" width="{max(width, 1):.1f}" height="10" rx="2"/>' if value else ""
    return f'<svg viewBox="0 0 120 10" width="120" height="10" aria-hidden="true" style="width:7.5rem">{shown}</svg>'


def trend(days: Sequence[Day], kind: str) -> str:
    """What could be deleted as a line, what was deleted as bars, on one scale. `slim` is drawn for a phone, so that its
    text is not smaller than other text."""
    all_across = _SLIM if kind == "slim" else _WIDTH
    most = max((max(day["waste_bytes"], day["freed_bytes"]) for day in days), default=0) or 1
    width = max(2.0, min(14.0, (all_across - _LEFT) / max(1, len(days)) * 0.6))
    left, right, up = _LEFT + width / 2, all_across - width / 2, _HEIGHT - _TOP - _BOTTOM
    step = (right - left) / max(1, len(days) - 1)

    def y(value: int) -> float:
        return _TOP + up * (1 - value / most)

    points = [(left + index * step, y(day["waste_bytes"])) for index, day in enumerate(days)]
    line = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
    floor = _TOP + up
    bars = "".join(
        f'<rect class="freed" x="{left + index * step - width / 2:.1f}" y="{y(day["freed_bytes"]):.1f}" '
        f'width="{width:.1f}" height="{floor - y(day["freed_bytes"]):.1f}"><title>{day["date"]}: '
        f"{screen.size(day['freed_bytes'])} freed</title></rect>"
        for index, day in enumerate(days)
        if day["freed_bytes"]
    )
    scale = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{all_across}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{screen.size(value)}</text>'
        for value in (0, most // 2, most)
    )
    return (
        f'<svg class="{kind}" viewBox="0 0 {all_across} {_HEIGHT}" role="img" '
        f'aria-label="Waste and deletions over time">{scale}'
        f'<polygon class="area" points="{left:.1f},{floor} {line} {points[-1][0]:.1f},{floor}"/>{bars}'
        f'<polyline class="line" points="{line}"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{days[0]["date"]}</text>'
        f'<text x="{all_across}" y="{_HEIGHT - 6}" text-anchor="end">{days[-1]["date"]}</text></svg>'
    )
