"""Where the entries of a Hive metastore or Glue lie, whatever they are: pyiceberg lists only the Iceberg tables.

Plain Hive tables, Delta tables and materialized views are somebody's as well, so no ghost is there. Their partitions
are not requested one by one: there may be millions. Blocking, and reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.catalog import Catalog

from lakesweep.model.errors import CatalogUnavailable
from lakesweep.model.location import Location

_HIVE = "pyiceberg.catalog.hive.HiveCatalog"
_GLUE = "pyiceberg.catalog.glue.GlueCatalog"
_PATH = "path"
"""Where Spark writes the real place of tables that Hive itself cannot read."""


def has_others(catalog: Catalog) -> bool:
    """May it hold anything but Iceberg tables? Also one whose class is made from such a catalog's."""
    return _is(catalog, _HIVE) or _is(catalog, _GLUE)


def places(catalog: Any, namespace: tuple[str, ...]) -> list[Location]:
    """Of all entries of a namespace."""
    named = _in_hive(catalog, namespace[0]) if _is(catalog, _HIVE) else _in_glue(catalog, namespace[0])
    found = []
    for name, text in named:
        place = Location.parse_or_none(text)
        if place is None:
            raise CatalogUnavailable(f"{'.'.join(namespace)}.{name} is at {text}, which is not a supported address")
        found.append(place)
    return found


def _in_hive(catalog: Any, database: str) -> Iterator[tuple[str, str]]:
    with catalog._client as client:  # noqa: SLF001 - pyiceberg's own list leaves all but Iceberg tables out
        names = client.get_all_tables(db_name=database)
        for table in client.get_table_objects_by_name(dbname=database, tbl_names=names):
            stored = table.sd
            if stored is not None:
                options = (stored.serdeInfo.parameters if stored.serdeInfo else None) or {}
                yield from _named(table.tableName, stored.location, (options, table.parameters or {}))


def _in_glue(catalog: Any, database: str) -> Iterator[tuple[str, str]]:
    for page in catalog.glue.get_paginator("get_tables").paginate(DatabaseName=database):
        for table in page["TableList"]:
            stored = table.get("StorageDescriptor") or {}
            options = (stored.get("SerdeInfo") or {}).get("Parameters") or {}
            yield from _named(table["Name"], stored.get("Location"), (options, table.get("Parameters") or {}))


def _named(name: str, location: str | None, options: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for text in (location, *(one.get(_PATH) for one in options)):
        if text:
            yield name, text


def _is(catalog: Catalog, name: str) -> bool:
    return any(f"{one.__module__}.{one.__qualname__}" == name for one in type(catalog).__mro__)
