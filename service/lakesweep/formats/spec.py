"""What a format is opened with: one configured dataset, filled from the settings by the composition root, and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakesweep.formats.unpublished_files import Tidy
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.storage import Storage, Writer


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What tables are read and changed with."""

    storage: Storage
    clock: Clock
    writer: Writer | None = None
    """Without one nothing can be committed by this process itself."""
    tidy: Tidy | None = None
    survey: Storage | None = None
    """Reads where a catalog's other tables are, which may be outside of what `storage` reads."""
