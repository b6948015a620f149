"""What test_table.py and its neighbours are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.builders.paimon_world import World

from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TenantId


def once(condition: Callable[[str, str], bool], action: Callable[[], None]) -> Callable[[str, str], None]:
    """A hook that acts when a call comes for the first time."""
    done = False

    def hook(operation: str, address: str) -> None:
        nonlocal done
        if not done and condition(operation, address):
            done = True
            action()

    return hook


def vars_of(handle: PaimonTable) -> dict[str, Any]:
    return {one.name: getattr(handle, one.name) for one in dataclasses.fields(handle)}


LASTING = {"changelog.num-retained.min": "50", "changelog.num-retained.max": "100"}


def spec(world: World, database: str | None = None) -> DatasetSpec:
    root = Location.parse(f"memory://{world.name}/wh")
    return DatasetSpec(
        tenant=TenantId("t"), tenant_root=root, dataset="d", format=FormatName.PAIMON, warehouse=root, database=database
    )
