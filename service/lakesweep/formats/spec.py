"""What a format is opened with: one configured dataset, filled from the settings by the composition root, and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakesweep.model.errors import UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.storage import KnownContents, Storage, Writer


class UnpublishedRemover:
    """The little deleting that a commit and a finished sweep need. Formats have no other way to delete. What they
    may ask for is narrow: files of their own making that were never published, and directories that are empty. The
    composition root gives them a child of this and keeps the gate. It never raises for what a store says: leaving
    something behind is harmless. This one leaves all: unpublished files stay until they are old enough to be
    orphans."""

    def within(self, roots: Sequence[Location]) -> UnpublishedRemover:  # noqa: ARG002
        """The same for one table: nothing outside its roots is touched. Before this is called, nothing at all is."""
        return self

    async def remove_unpublished(self, paths: Sequence[str]) -> None:
        """Remove files that this process wrote just now and that nothing can refer to."""

    async def empty_directories(self, root: Location, older_than: datetime) -> Sequence[str]:  # noqa: ARG002
        """Directories below `root` that hold no file and were not touched since; object stores have none."""
        return ()

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002
        """Remove those directories below `root` that are empty."""
        return 0


async def remove_empty_directories(
    remover: UnpublishedRemover, root: Location, older_than: datetime, is_ours: Callable[[str], bool]
) -> None:
    """Those of the table's own below `root` that have been empty since then."""
    ours = [path for path in await remover.empty_directories(root, older_than) if is_ours(path)]
    if ours:
        await remover.remove_empty_directories(root, ours)


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

    def ref(self, name: str) -> TableRef:
        return TableRef(tenant=self.tenant, dataset=self.dataset, name=name, format=self.format)

    def check_own(self, ref: TableRef) -> None:
        """Raises UnknownTable for a table of another dataset."""
        if ref != self.ref(ref.name):
            raise UnknownTable(f"{ref} is not a table of {self.tenant}/{self.dataset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What tables are read and changed with."""

    storage: Storage
    clock: Clock
    writer: Writer | None = None
    """Without one nothing can be committed by this process itself."""
    remover: UnpublishedRemover | None = None
    survey: Storage | None = None
    """Reads where a catalog's other tables are, which may be outside of what `storage` reads."""
    contents: KnownContents | None = None
    """What was read before of files whose names prove nothing."""
