"""Take PromQL apart far enough to know which series and labels it asks for.

Prometheus itself says whether an expression parses; what it cannot say is whether the series exist. Every word of an
expression must be one of a few functions and keywords or the name of a series, so a slip in a name is noticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORDS = frozenset(
    {"sum", "max", "min", "count", "rate", "increase", "histogram_quantile", "max_over_time", "min_over_time"}
    | {"absent", "time", "by", "without", "on", "ignoring", "and", "or", "unless", "offset"}
)
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an expression is about."""

    series: frozenset[str]
    labels: frozenset[str]
    matched: frozenset[tuple[str, str]]
    """Label and pattern of every matcher."""


def asked(expression: str) -> Asked:
    """The series and labels of an expression. Grafana's variables may stand in matchers and ranges."""
    matchers = [pair for group in _MATCHERS.findall(expression) for pair in _MATCHER.findall(group)]
    bare = _MATCHERS.sub(" ", _DURATION.sub(" ", expression))
    grouped = {label.strip() for group in _GROUPING.findall(bare) for label in group.split(",") if label.strip()}
    bare = _GROUPING.sub(" ", bare)
    return Asked(
        series=frozenset(_NAME.findall(bare)) - _WORDS,
        labels=frozenset(grouped) | {label for label, _ in matchers},
        matched=frozenset(matchers),
    )
