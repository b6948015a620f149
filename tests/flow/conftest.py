"""Lakes on local disk, and what cycles over them run with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import Lake, later
from tests.builders.small_lake import LocalLake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(tmp_path / "lake")


@pytest.fixture
def deltas(tmp_path: Path) -> LocalLake:
    made = LocalLake(root=tmp_path)
    made.add("acme", ["source", "clone"])
    return made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Ten days from now, so that everything just written is older than the grace period."""
    return Bench(root=tmp_path / "lake", clock=SetClock(later(days=10)), scratch=tmp_path / "scratch")
