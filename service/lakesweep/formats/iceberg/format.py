"""One dataset of Iceberg tables behind the TableFormat port: a catalog, perhaps narrowed to one namespace."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from lakesweep import aio
from lakesweep.formats.iceberg.catalog import IcebergCatalog, Identifier
from lakesweep.formats.iceberg.metadata_source import BareSource, CatalogSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model import errors
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.storage import Storage, Writer

_CONCURRENCY = 8
_PART = re.compile(r"`([^`]+)`|([^.`]+)")


_ELSEWHERE = "/"
"""Begins the names of tables of other namespaces."""


class IcebergFormat:
    """Tables are named relative to the configured namespace, with dots between levels: `orders`, `daily.orders`."""

    name = FormatName.ICEBERG

    def __init__(
        self, spec: DatasetSpec, storage: Storage, writer: Writer | None, survey: Storage | None = None
    ) -> None:
        """`survey` reads the metadata files of the catalog's other tables; by default `storage` does."""
        if not spec.catalog:
            raise errors.SettingsError(f"dataset {spec.tenant}/{spec.dataset}: an Iceberg dataset needs a catalog")
        self._spec = spec
        self._storage = storage
        self._survey = survey or storage
        self._namespace = split_name(spec.namespace) if spec.namespace else ()
        self._catalog = IcebergCatalog(spec.dataset, spec.catalog, storage, writer)
        self._places: dict[TableRef, tuple[str | None, tuple[Location, ...]]] = {}
        self._not_found: tuple[Identifier, ...] = ()
        """Tables that the catalog listed and then did not have, when it was last asked for all."""

    async def tables(self) -> Sequence[TableRef]:
        identifiers = await self._catalog.tables(self._namespace or None)
        return [self._ref(identifier) for identifier in identifiers]

    async def open(self, ref: TableRef) -> IcebergTable:
        """A handle; whether there is such a table shows when it is loaded."""
        if ref.name.startswith(_ELSEWHERE):
            return self._table(ref, split_name(ref.name.removeprefix(_ELSEWHERE)))
        return self._table(ref, (*self._namespace, *split_name(ref.name)))

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where all tables of the catalog keep files, of other namespaces too: a place knows no namespaces."""

        not_found: list[Identifier] = []

        async def places(identifier: Identifier) -> tuple[TableRef, tuple[Location, ...]] | None:
            ref = self._ref(identifier)
            try:
                return ref, await self._places_of(self._table(ref, identifier, self._survey))
            except errors.UnknownTable:
                not_found.append(identifier)
                return None

        found = await aio.gather_bounded(await self._catalog.tables(None), places, limit=_CONCURRENCY)
        self._not_found = tuple(not_found)
        return dict(pair for pair in found if pair is not None)

    async def claimed(self) -> Sequence[Location]:
        """What else a metastore has. Raises for a table that is listed and cannot be loaded: it may be anywhere."""
        if self._not_found:
            listed = set(await self._catalog.tables(None))
            for identifier in filter(listed.__contains__, self._not_found):
                raise errors.CatalogUnavailable(
                    f"{self._catalog} lists {join_name(identifier)} and then says that there is no such "
                    "table: repair or drop it there"
                )
        return await self._catalog.other_places()

    @property
    def catalog_identity(self) -> Hashable:
        return self._catalog.identity

    async def aclose(self) -> None:
        await self._catalog.aclose()

    async def _places_of(self, table: IcebergTable) -> tuple[Location, ...]:
        """For a table whose metadata is damaged or gone, or readable only by another tenant, only the location of that
        metadata is known: raising would let that table stop all others. Errors that may pass later are raised."""
        known = self._places.get(table.ref)
        try:
            if known is None or known[0] != await table.head():
                known = self._places[table.ref] = await table.places()
        except (errors.UnknownTable, errors.CatalogUnavailable, errors.CommitConflict):
            raise
        except (errors.LakesweepError, ValueError) as exc:
            if isinstance(exc, errors.StorageError) and not self._is_not_for_us(exc):
                raise
            known = known or (None, await _around_metadata(table))
        return known[1]

    def _is_not_for_us(self, exc: errors.StorageError) -> bool:
        """Catalogs are shared by tenants that cannot read each other's files."""
        return isinstance(exc, errors.Denied) and not self._spec.tenant_root.overlaps(Location.parse(exc.address))

    def _table(self, ref: TableRef, identifier: Identifier, storage: Storage | None = None) -> IcebergTable:
        source = CatalogSource(catalog=self._catalog, identifier=identifier, tenant_root=self._spec.tenant_root)
        return IcebergTable(ref, source, storage or self._storage, self._spec.tenant_root)

    def _ref(self, identifier: Identifier) -> TableRef:
        """A table of another namespace than ours gets a name that no table of ours can have."""
        depth = len(self._namespace)
        ours = identifier[:depth] == self._namespace
        return self._spec.ref(join_name(identifier[depth:]) if ours else f"{_ELSEWHERE}{join_name(identifier)}")


async def _around_metadata(table: IcebergTable) -> tuple[Location, ...]:
    """The directory that holds the metadata directory, as the catalog's pointer names it; none if it names nothing."""
    try:
        head = Location.parse(await table.head())
    except errors.Unreadable:
        return ()
    return (Location(head.scheme, head.authority, head.path.rpartition("/")[0].rpartition("/")[0]),)


def join_name(parts: Sequence[str]) -> str:
    """Levels joined with dots; a level that has a dot itself stands between backquotes."""
    return ".".join(f"`{part}`" if "." in part else part for part in parts)


def split_name(name: str) -> Identifier:
    return tuple(quoted or plain for quoted, plain in _PART.findall(name))


def open_dataset(spec: DatasetSpec, tools: Tools) -> IcebergFormat:
    return IcebergFormat(spec, tools.storage, tools.writer, tools.survey)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> IcebergTable:
    """A table without a catalog: it can be planned, not cleaned."""
    return IcebergTable(ref, BareSource(location=place, storage=tools.storage), tools.storage, root)
