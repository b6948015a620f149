"""Catalogs in which the client commits: what makes the swap of the pointer conditional, and what else they list.

| catalog | the swap happens only if; where nothing makes it conditional, nothing is expired |
|---|---|
| SQL, in memory | the row still has the old pointer: the update says `where`, and its count of rows is checked |
| Glue | the entry's `VersionId` is still the one that was read with the old pointer; Amazon's service compares |
| Hive | the parameter `metadata_location` is still the old one; the metastore compares, see `hive` |
| DynamoDB, BigQuery | pyiceberg cannot commit to these at all |

Other entries of a metastore (plain Hive or Delta tables, materialized views) are somebody's as well: no ghost is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

from lakesweep.formats.iceberg import hive
from lakesweep.model.errors import CatalogUnavailable
from lakesweep.model.location import Location

CHECKS_VERSION_ID = "glue.checks-version-id"
"""Our own catalog property: the operator asserts that a service with Glue's protocol compares `VersionId`."""

_CONDITIONAL = frozenset({"pyiceberg.catalog.sql.SqlCatalog", "pyiceberg.catalog.memory.InMemoryCatalog"})
_GLUE = "pyiceberg.catalog.glue.GlueCatalog"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_HIVE = "pyiceberg.catalog.hive.HiveCatalog"
_READ_ONLY = {
    "pyiceberg.catalog.dynamodb.DynamoDbCatalog": "DynamoDB",
    "pyiceberg.catalog.bigquery_metastore.BigQueryMetastoreCatalog": "BigQuery",
}


def is_known(catalog: Catalog) -> bool:
    """Is it one of pyiceberg's own classes, and not one made from it? A child may swap as it likes."""
    name = _name(catalog)
    return name in _CONDITIONAL or name in (_HIVE, _GLUE) or name in _READ_ONLY


def is_hive(catalog: Catalog) -> bool:
    return _name(catalog) == _HIVE


def why_unconditional(catalog: Catalog) -> str | None:
    """Why no snapshot can be expired through this catalog; None when its swap is known to be conditional."""
    name = _name(catalog)
    if name in _CONDITIONAL:
        return None
    if name == _HIVE:
        return hive.why_unconditional(catalog)
    if name == _GLUE:
        return _why_not_glue(catalog)
    if name in _READ_ONLY:
        return f"pyiceberg cannot commit to a {_READ_ONLY[name]} catalog"
    return "nothing is known about how this catalog's own class commits"


def _why_not_glue(catalog: Any) -> str | None:
    """Amazon's own compares. Others that speak its protocol (moto among them) may not."""
    host = urlsplit(str(catalog.glue.meta.endpoint_url)).hostname or ""
    if host.endswith(_AMAZON) or str(catalog.properties.get(CHECKS_VERSION_ID, "")).lower() == "true":
        return None
    return (
        f"{host} speaks Glue's protocol but is not Amazon's, and nothing proves that it compares VersionId before it "
        f'swaps the pointer. If it does, set {CHECKS_VERSION_ID} to "true" in the catalog'
    )


def _name(catalog: Catalog) -> str:
    return f"{type(catalog).__module__}.{type(catalog).__qualname__}"


_PATH = "path"
"""Where Spark writes the real place of tables that Hive itself cannot read."""


def has_others(catalog: Catalog) -> bool:
    """May it hold anything but Iceberg tables? Also one whose class is made from such a catalog's."""
    return _is(catalog, _HIVE) or _is(catalog, _GLUE)


def places(catalog: Any, namespace: tuple[str, ...]) -> list[Location]:
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
