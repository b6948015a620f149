"""How a law of a cycle is run: on every format, each example in a directory of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.builders.cycles import to_trash
from tests.laws import examples
from tests.laws.worlds import delta, iceberg, paimon

from lakesweep.model.table import FormatName

KINDS = {FormatName.ICEBERG: iceberg, FormatName.DELTA: delta, FormatName.PAIMON: paimon}
assert KINDS.keys() == set(FormatName), "a format without laws"
every_format = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def laws(number: int, *, soak: int) -> settings:
    """Without shrinking: a world takes too long to build."""
    return settings(
        deadline=None,
        max_examples=examples(number, soak=soak),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
    )


def fresh(home: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=home))


@contextmanager
def trashing() -> Iterator[None]:
    """Every cycle within moves files to the trash."""
    token = to_trash.set(True)
    try:
        yield
    finally:
        to_trash.reset(token)
