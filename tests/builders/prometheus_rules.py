"""What test_prometheus_rules.py and its neighbours are made of."""

from __future__ import annotations

from tests.deploy import exposed
from tests.deploy.promql import asked

from lakesweep.model.run import Outcome


def faults(expression, recorded):
    """What an expression asks for and nobody gives."""
    wanted, known = asked(expression), exposed.series()
    found = [f"no series {name}" for name in sorted(wanted.series - known.keys() - recorded.keys())]
    labels = set(exposed.TARGET_LABELS)
    for name in wanted.series:
        labels |= known.get(name, frozenset()) | recorded.get(name, frozenset())
    found += [f"no label {label} on {sorted(wanted.series)}" for label in sorted(wanted.labels - labels)]
    for label, pattern in wanted.matched:
        found += [f"{label} is never {value}" for value in pattern.split("|") if not possible(label, value)]
    return found


def possible(label, value):
    if label == "status":
        return value in set(Outcome)
    return label != "reason" or value.removesuffix(".*") in exposed.words()
