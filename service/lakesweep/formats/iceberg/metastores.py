"""Catalogs in which the client commits: what makes the swap of the pointer conditional, and what else they list.

| catalog | the swap happens only if; where nothing makes it conditional, nothing is expired |
|---|---|
| SQL, in memory | the row still has the old pointer: the update says `where`, and its count of rows is checked |
| Glue | the entry's `VersionId` is still the one that was read with the old pointer; Amazon's service compares |
| Hive | the parameter `metadata_location` is still the old one; the metastore compares, see `_Metastore` |
| DynamoDB, BigQuery | pyiceberg cannot commit to these at all |

Other entries of a metastore (plain Hive or Delta tables, materialized views) are somebody's as well: no ghost is there.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

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
        return _why_not_hive(catalog)
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


CHECKS_EXPECTED = "checks-expected-parameter"
"""Our own catalog property: the operator asserts that the metastore has HIVE-26882. Versions before 4 do not report
it."""

_POINTER = "metadata_location"
_PREVIOUS = "previous_metadata_location"
_MODIFIED = "The table has been modified"
_LOCKING = frozenset({"lock", "check_lock", "unlock"})
_VERSION = re.compile(r"(\d+)\.\d+\.\d+(.*)")
_FIRST_CHECKING = 4
_LONGEST_TEXT = 64 << 20
_MOST_ENTRIES = 10_000_000


class GuardedClients:
    """Takes the place of a Hive catalog's one client: a connection of its own for each use, with limits."""

    def __init__(self, catalog: Any, timeout_seconds: float) -> None:
        self._catalog = catalog
        self._timeout_ms = int(timeout_seconds * 1000)
        self._thread = threading.local()

    def __enter__(self) -> _Metastore:
        client = self._catalog._create_hive_client(self._catalog.properties)  # noqa: SLF001 - the operator's own properties
        transport = client._transport  # noqa: SLF001 - there is no setting for its time limit
        socket = getattr(transport, "_TBufferedTransport__trans", None) or getattr(transport, "transport", None)
        if socket is not None:
            socket.setTimeout(self._timeout_ms)
        opened = client.__enter__()
        opened._iprot.string_length_limit = _LONGEST_TEXT  # noqa: SLF001 - nor for the size of what it reads
        opened._iprot.container_length_limit = _MOST_ENTRIES  # noqa: SLF001
        self._thread.client = client
        return _Metastore(opened)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.client.__exit__(kind, error, trace)


class _Metastore:
    """What of a Hive metastore's protocol may be used: read, lock, and swap one pointer on one condition.

    pyiceberg takes the table's lock and then alters the table whatever it has become: writers that do not lock
    (`engine.hive.lock-enabled = false`) would lose an acknowledged commit to us. So every alter carries what the
    pointer must still be, and the metastore compares (HIVE-26882). Nothing else of the table's entry is changed."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._before: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in _LOCKING or name.startswith("get"):
            return getattr(self._client, name)
        raise PermissionError(
            f"{name}: not allowed; only reads and the swap of the metadata pointer reach the metastore"
        )

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        found = self._client.get_table(dbname=dbname, tbl_name=tbl_name)
        self._before = copy.deepcopy(found)
        return found

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any
    ) -> None:
        """Swap the pointer if it is still what it was when the entry was read."""
        after = copy.deepcopy(self._before)
        expected = after.parameters[_POINTER]
        after.parameters |= {_POINTER: new_tbl.parameters[_POINTER], _PREVIOUS: expected}
        environment_context.properties |= {"expected_parameter_key": _POINTER, "expected_parameter_value": expected}
        try:
            self._client.alter_table_with_environment_context(dbname, tbl_name, after, environment_context)
        except Exception as exc:
            if _MODIFIED in str(getattr(exc, "message", "")):
                raise CommitFailedException("the metastore's pointer has changed") from None
            raise


def _why_not_hive(catalog: Catalog) -> str | None:
    """Why nothing proves that this metastore compares before it swaps; None when it does."""
    if str(catalog.properties.get(CHECKS_EXPECTED, "")).lower() == "true":
        return None
    with catalog._client as metastore:  # type: ignore[attr-defined]  # noqa: SLF001 - a Hive catalog has one
        version = str(metastore.getVersion())
    found = _VERSION.fullmatch(version)
    if found and int(found[1]) >= _FIRST_CHECKING and "alpha" not in found[2]:
        return None
    return (
        "nothing proves that this Hive metastore compares the pointer before it swaps it, so a commit of a writer that "
        f"does not lock could be lost. Hive 4 does; if yours has HIVE-26882 too (as 2.3.10 has), set {CHECKS_EXPECTED} "
        'to "true" in the catalog'
    )
