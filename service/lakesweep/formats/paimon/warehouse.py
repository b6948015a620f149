"""The Paimon tables of one warehouse: `<warehouse>/<database>.db/<table>`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads
from lakesweep.formats.paimon import decode
from lakesweep.formats.paimon.files import Unanswered
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.spec import DatasetSpec, Tools, UnpublishedRemover
from lakesweep.model.errors import LakesweepError, SettingsError, StorageError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.references import Decode

_DATABASE_SUFFIX = ".db"
_SCHEMA = "schema"
_METADATA = frozenset({_SCHEMA, "snapshot", "branch", "tag"})
"""Directories of which a table has some."""


class PaimonFormat:
    """Tables are named `table` where the dataset names its database, `database.table` where it has the warehouse."""

    name = FormatName.PAIMON

    def __init__(self, spec: DatasetSpec, tools: Tools) -> None:
        if spec.warehouse is None:
            raise SettingsError(f"dataset {spec.tenant}/{spec.dataset}: a Paimon dataset needs a warehouse")
        self._spec = spec
        self._warehouse = spec.warehouse
        self._storage = tools.storage
        self._tools = tools
        self._checked: dict[str, datetime] = {}

    async def tables(self) -> Sequence[TableRef]:
        """Every directory of a database that holds schemas, committed to or not. Only directories are looked at."""
        places = [
            (database, name)
            for database in await self._databases()
            for name in await self._storage.directories(self._database(database))
        ]
        found = await reads.those_that(self._has_schema, places)
        return [
            self._spec.ref(name if self._spec.database else f"{database}.{name}") for database, name in sorted(found)
        ]

    async def _databases(self) -> list[str]:
        if self._spec.database:
            return [self._spec.database]
        names = await self._storage.directories(self._warehouse)
        found = (name.removesuffix(_DATABASE_SUFFIX) for name in names if name.endswith(_DATABASE_SUFFIX))
        return [name for name in found if name]

    async def _has_schema(self, place: tuple[str, str]) -> bool:
        database, name = place
        return await reads.any_page(self._storage, self._database(database).join(name, _SCHEMA))

    async def open(self, ref: TableRef) -> PaimonTable:
        self._spec.check_own(ref)
        table = open_table(ref, await self._location(ref), self._spec.tenant_root, self._tools)
        table.checked = self._checked
        return table

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where all tables keep files; of a table that is damaged only its directory is known. A storage that does not
        answer raises: half of a neighbour's places could hide that it shares one with another table."""
        refs = await self.tables()
        return dict(zip(refs, await gather_bounded(refs, self._places), strict=True))

    async def claimed(self) -> Sequence[Location]:
        """The tables of all databases of the warehouse: to lie there is to be registered."""
        names = await self._storage.directories(self._warehouse)
        databases = [self._warehouse.join(name) for name in names if name.endswith(_DATABASE_SUFFIX)]
        inner = await gather_bounded(databases, self._storage.directories)
        tables = [database.join(name) for database, found in zip(databases, inner, strict=True) for name in found]
        return [table.as_directory() for table in await reads.those_that(self._has_metadata, tables)]

    async def _has_metadata(self, table: Location) -> bool:
        return not _METADATA.isdisjoint(await self._storage.directories(table))

    async def _places(self, ref: TableRef) -> tuple[Location, ...]:
        table = await self.open(ref)
        try:
            return await table.places()
        except (StorageError, Unanswered):
            raise
        except LakesweepError:
            return (table.location.as_directory(),)

    async def _location(self, ref: TableRef) -> Location:
        """Databases and tables may have dots in their names: then the one that is there is meant."""
        if self._spec.database:
            return self._database(self._spec.database).join(ref.name)
        parts = ref.name.split(".")
        places = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))] or [("", ref.name)]
        if len(places) > 1:
            places = await reads.those_that(self._has_schema, places) or places[:1]
        if len(places) > 1:
            raise UnknownTable(f"{len(places)} tables are called {ref}: rename all but one")
        ((database, name),) = places
        return self._database(database).join(name)

    def _database(self, name: str) -> Location:
        return self._warehouse.join(f"{name}{_DATABASE_SUFFIX}")


open_dataset = PaimonFormat


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> PaimonTable:
    """Its external paths are looked at inside the root only."""
    return PaimonTable(
        ref=ref,
        location=place,
        storage=tools.storage,
        tenant_root=root,
        writer=tools.writer,
        remover=tools.remover or UnpublishedRemover(),
        contents=tools.contents,
    )


def decoder() -> Decode:
    return decode.decode
