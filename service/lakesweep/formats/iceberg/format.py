"""One dataset of Iceberg tables behind the TableFormat port: a catalog, perhaps narrowed to one namespace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from lakesweep.cleanup.storage_ports import Storage, Writer
from lakesweep.formats.iceberg.catalog import IcebergCatalog, Identifier
from lakesweep.formats.iceberg.source import CatalogSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.errors import CatalogUnavailable, LakesweepError, SettingsError, StorageError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef

_CONCURRENCY = 8
_PART = re.compile(r"`([^`]+)`|([^.`]+)")


class IcebergFormat:
    """Tables are named relative to the configured namespace, with dots between levels: `orders`, `daily.orders`."""

    name = FormatName.ICEBERG

    def __init__(self, spec: DatasetSpec, storage: Storage, writer: Writer | None) -> None:
        if not spec.catalog:
            raise SettingsError(f"dataset {spec.tenant}/{spec.dataset}: an Iceberg dataset needs a catalog")
        self._spec = spec
        self._storage = storage
        self._namespace = split_name(spec.namespace) if spec.namespace else ()
        self._catalog = IcebergCatalog(spec.dataset, spec.catalog, storage, writer)
        self._places: dict[TableRef, tuple[str | None, tuple[Location, ...]]] = {}

    async def tables(self) -> Sequence[TableRef]:
        """Ask the catalog."""
        identifiers = await self._catalog.tables(self._namespace or None)
        return [self._ref(identifier) for identifier in identifiers]

    async def open(self, ref: TableRef) -> IcebergTable:
        """A handle; whether there is such a table shows when it is loaded."""
        return self._table(ref, (*self._namespace, *split_name(ref.name)))

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where all tables of the catalog keep files, of other namespaces too: a place knows no namespaces.

        Of a table whose metadata is damaged the place of that metadata is all there is to go by; raising would let
        one damaged table stop its whole tenant.
        """
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def places(ref: TableRef, identifier: Identifier) -> tuple[TableRef, tuple[Location, ...]] | None:
            async with slots:
                table = self._table(ref, identifier)
                known = self._places.get(ref)
                try:
                    if known is None or known[0] != await table.head():
                        known = self._places[ref] = await table.places()
                except UnknownTable:
                    return None
                except (StorageError, CatalogUnavailable):
                    raise  # nothing is known now; a later answer may tell
                except (LakesweepError, ValueError):
                    known = known or (None, await _around_metadata(table))
                return ref, known[1]

        found = await asyncio.gather(*(places(self._ref(one), one) for one in await self._catalog.tables(None)))
        return dict(pair for pair in found if pair is not None)

    async def aclose(self) -> None:
        """Close the catalog."""
        await self._catalog.aclose()

    def _table(self, ref: TableRef, identifier: Identifier) -> IcebergTable:
        source = CatalogSource(catalog=self._catalog, identifier=identifier)
        return IcebergTable(ref, source, self._storage, self._spec.tenant_root)

    def _ref(self, identifier: Identifier) -> TableRef:
        """A table of another namespace than ours gets a name that no table of ours can have."""
        depth = len(self._namespace)
        ours = identifier[:depth] == self._namespace
        name = join_name(identifier[depth:]) if ours else f"/{join_name(identifier)}"
        return TableRef(tenant=self._spec.tenant, dataset=self._spec.dataset, name=name, format=FormatName.ICEBERG)


async def _around_metadata(table: IcebergTable) -> tuple[Location, ...]:
    """The directory that holds the metadata directory, as the catalog's pointer names it."""
    try:
        head = Location.parse(await table.head())
    except (LakesweepError, ValueError):
        return ()
    return (Location(head.scheme, head.authority, head.path.rpartition("/")[0].rpartition("/")[0]),)


def join_name(parts: Sequence[str]) -> str:
    """Levels joined with dots; a level that has a dot itself stands between backquotes."""
    return ".".join(f"`{part}`" if "." in part else part for part in parts)


def split_name(name: str) -> Identifier:
    """The reverse of `join_name`."""
    return tuple(quoted or plain for quoted, plain in _PART.findall(name))
