"""A dataset with one table, the model's, opened as the product's own formats open it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.formats import Model
from tests.sim.replicas import SimAdapters

from lakesweep.formats.delta.table import DeltaTable
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import Table


class OneTable:
    """The TableFormat port."""

    def __init__(self, adapters: SimAdapters, model: Model) -> None:
        self._adapters, self._model = adapters, model
        self.name = FormatName(model.format)
        self._ref = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=self.name)
        self._checked: dict[str, Any] = {}

    async def tables(self) -> Sequence[TableRef]:
        return [self._ref]

    async def open(self, ref: TableRef) -> Table:
        adapters, root = self._adapters, Location.parse(self._model.tenant_root)
        storage, place = adapters.storage("acme"), Location.parse(self._model.location)
        tidy = adapters._tidy("acme", root)
        if self.name is FormatName.DELTA:
            return DeltaTable(ref, place, storage, adapters.process, tidy=tidy)
        return PaimonTable(
            ref=ref,
            location=place,
            storage=storage,
            tenant_root=root,
            writer=adapters.writer("acme", root),
            tidy=tidy,
            checked=self._checked,
        )

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        return {self._ref: (Location.parse(self._model.location).as_directory(),)}


def open_format(adapters: SimAdapters, model: Model) -> Any:
    """The way to the model's table."""
    return OneTable(adapters, model)
