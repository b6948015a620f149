"""Check a dataset's catalog without connecting to it: its type, its properties, and the client it needs here.

Pure, except that it looks whether packages are installed; it imports none of them. Remarks are hints only: an
operator's own catalog class may take any property, so only `lakesweep settings` shows them, and nothing is refused
because of one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

TYPES = ("rest", "sql", "hive", "glue", "dynamodb", "bigquery", "in-memory")
"""Of pyiceberg."""

_CLIENTS = {
    "hive": ("thrift", "pip install 'lakesweep[hive]'"),
    "glue": ("boto3", "pip install 'lakesweep[glue]'"),
    "dynamodb": ("boto3", "pip install 'lakesweep[glue]'"),
    "bigquery": ("google.cloud.bigquery", "pip install 'lakesweep[bigquery]'"),
}
"""The additional package that a type of catalog needs, and how to install it."""

_DRIVERS = {
    "postgresql": ("psycopg2", "it comes with lakesweep: pip install psycopg2-binary"),
    "postgresql+psycopg2": ("psycopg2", "it comes with lakesweep: pip install psycopg2-binary"),
    "postgresql+psycopg": ("psycopg", "write postgresql://, whose driver comes with lakesweep, or pip install psycopg"),
    "mysql": ("MySQLdb", "pip install pymysql, and write mysql+pymysql://"),
    "mysql+pymysql": ("pymysql", "pip install pymysql"),
    "mssql": ("pyodbc", "pip install pyodbc"),
    "oracle": ("cx_Oracle", "pip install oracledb, and write oracle+oracledb://"),
}
"""The package that SQLAlchemy imports for the URI of a SQL catalog, and how to install it. SQLite needs nothing."""
_ASYNC = frozenset({"asyncpg", "aiosqlite", "aiomysql", "asyncmy"})

_NAMES = """
    name type uri warehouse py-catalog-impl py-io-impl location downcast-ns-timestamp-to-us-on-write token credential
    scope audience resource oauth2-server-uri prefix ssl auth access-delegation snapshot-loading-mode scan-planning-mode
    rest-page-size namespace-separator view-endpoints-supported echo pool_pre_ping init_catalog_tables ugi
    lock-check-min-wait-time lock-check-max-wait-time lock-check-retries hive2-compatible table-name
    hive.kerberos-authentication hive.kerberos-service-name hive.hive2-compatible rest.sigv4-enabled
    rest.signing-region rest.signing-name rest.authorization-url glue.id glue.skip-archive glue.endpoint
    glue.profile-name glue.region glue.access-key-id glue.secret-access-key glue.session-token glue.max-retries
    glue.retry-mode glue.checks-version-id dynamodb.profile-name dynamodb.region dynamodb.access-key-id
    dynamodb.secret-access-key dynamodb.session-token client.profile-name client.region client.access-key-id
    client.secret-access-key client.session-token client.role-arn client.role-session-name gcp.bigquery.project-id
    gcp.bigquery.location gcp.bigquery.credential-file gcp.bigquery.credentials-info
"""
_KNOWN = frozenset(_NAMES.split())
_OPEN = ("header.", "s3.", "gcs.", "adls.", "hdfs.", "hf.", "auth.", "ssl.", "rest.", "hive.", "gcp.")
"""Prefixes under which every name is accepted: custom headers, and properties of file readers that Lakesweep does not
use."""


def type_fault(catalog: Mapping[str, Any]) -> str | None:
    """What is wrong with `type`; None if it is known, implied by the URI, or an operator's own class."""
    kind = catalog.get("type")
    if kind is None or "py-catalog-impl" in catalog or str(kind).lower() in TYPES:
        return None
    near = difflib.get_close_matches(str(kind).lower(), TYPES, n=1)
    meant = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(TYPES)}"
    return f"type = {str(kind)!r}: no such type of catalog; {meant}"


def remarks(catalog: Mapping[str, Any]) -> Iterator[str]:
    """Unknown properties, and a client that is not installed here. Never shows a value."""
    if "py-catalog-impl" in catalog:
        return
    for name in catalog:
        if name in _KNOWN or name.startswith(_OPEN):
            continue
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "pyiceberg's catalogs do not read it"
        yield f"unknown property '{name}': {hint}"
    kind = str(catalog.get("type", "")).lower()
    package, remedy = _CLIENTS.get(kind, ("", ""))
    if package and not _is_installed(package):
        yield f"its client is not installed here ({package}): {remedy}"
    if kind == "sql" and (fault := _driver_fault(str(catalog.get("uri", "")))):
        yield fault


def _driver_fault(uri: str) -> str | None:
    scheme = uri.partition("://")[0].lower()
    dialect, _, driver = scheme.partition("+")
    if dialect == "postgres":  # the spelling of libpq and many providers
        return "uri: SQLAlchemy needs postgresql:// instead of postgres://"
    if driver in _ASYNC:
        plain = "postgresql" if dialect.startswith("postgres") else dialect
        return f"uri: {driver} is a driver for asyncio, and a catalog needs another one: {plain}://"
    package, remedy = _DRIVERS.get(scheme, ("", ""))
    return f"its driver is not installed here ({package}): {remedy}" if package and not _is_installed(package) else None


def remedy_for(kind: str) -> str | None:
    return _CLIENTS[kind.lower()][1] if kind.lower() in _CLIENTS else None


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
