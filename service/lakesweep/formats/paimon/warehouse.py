"""The Paimon tables of one warehouse: `<warehouse>/<database>.db/<table>`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime

from lakesweep.cleanup.ports import Storage, Writer
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.paimon.tidy import LeaveAll, Tidy
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.errors import LakesweepError, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef

_DATABASE_SUFFIX = ".db"
_SCHEMA = "schema"


class PaimonFormat:
    """Tables are named `table` where the dataset names its database, `database.table` where it has the warehouse."""

    name = FormatName.PAIMON

    def __init__(
        self, spec: DatasetSpec, storage: Storage, writer: Writer | None = None, tidy: Tidy | None = None
    ) -> None:
        if spec.warehouse is None:
            raise SettingsError(f"dataset {spec.tenant}/{spec.dataset}: a Paimon dataset needs a warehouse")
        self._spec = spec
        self._warehouse = spec.warehouse
        self._storage = storage
        self._writer = writer
        self._tidy = tidy or LeaveAll()
        self._checked: dict[str, datetime] = {}

    async def tables(self) -> Sequence[TableRef]:
        """Every directory of a database that holds schemas; a table that was never committed to counts too."""
        root = self._database(self._spec.database) if self._spec.database else self._warehouse
        prefix = root.as_directory().raw
        found: set[str] = set()
        async with aclosing(self._storage.list(root.as_directory())) as pages:
            async for page in pages:
                for path in page.column("path").to_pylist():
                    name = self._table_of(path[len(prefix) :].split("/"))
                    if name:
                        found.add(name)
        return [self._ref(name) for name in sorted(found)]

    async def open(self, ref: TableRef) -> PaimonTable:
        """A handle for one cycle."""
        if ref.format is not self.name or (ref.tenant, ref.dataset) != (self._spec.tenant, self._spec.dataset):
            raise UnknownTable(f"{ref} is not a table of {self._spec.tenant}/{self._spec.dataset}")
        return PaimonTable(
            ref=ref,
            location=self._location(ref),
            storage=self._storage,
            tenant_root=self._spec.tenant_root,
            writer=self._writer,
            tidy=self._tidy,
            checked=self._checked,
        )

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where all tables keep files; of a table that cannot be read only its directory is known."""
        places: dict[TableRef, tuple[Location, ...]] = {}
        for ref in await self.tables():
            table = await self.open(ref)
            try:
                places[ref] = await table.places()
            except LakesweepError:
                places[ref] = (table.location.as_directory(),)
        return places

    def _table_of(self, parts: list[str]) -> str | None:
        """The table whose schema file this is, given the path below the database or the warehouse."""
        *directories, schema, _ = parts if len(parts) >= 3 else ["", ""]
        if schema != _SCHEMA:
            return None
        if self._spec.database:
            return directories[0] if len(directories) == 1 else None
        if len(directories) == 2 and directories[0].endswith(_DATABASE_SUFFIX):
            return f"{directories[0].removesuffix(_DATABASE_SUFFIX)}.{directories[1]}"
        return None

    def _location(self, ref: TableRef) -> Location:
        if self._spec.database:
            return self._database(self._spec.database).join(ref.name)
        database, _, name = ref.name.partition(".")
        return self._database(database).join(name)

    def _database(self, name: str) -> Location:
        return self._warehouse.join(f"{name}{_DATABASE_SUFFIX}")

    def _ref(self, name: str) -> TableRef:
        return TableRef(tenant=self._spec.tenant, dataset=self._spec.dataset, name=name, format=FormatName.PAIMON)
