"""What a format needs to know of one configured dataset. The composition root fills it from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One dataset of one tenant. Which fields count depends on the format."""

    tenant: TenantId
    tenant_root: Location
    dataset: str
    format: FormatName
    catalog: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Iceberg: pyiceberg's catalog properties. May hold secrets, so it is never printed."""
    namespace: str | None = None
    """Iceberg: only this namespace and those nested in it."""
    warehouse: Location | None = None
    """Paimon."""
    database: str | None = None
    """Paimon."""
    location: Location | None = None
    """Delta."""
    vacuum_mode: str = "full"
    """Delta: `full` or `lite`."""
    has_shallow_clones: bool = False
    """Delta."""
