"""What makes each client-side catalog's swap of the pointer conditional. Where nothing does, nothing is expired.

| catalog | the swap happens only if |
|---|---|
| SQL, in memory | the row still has the old pointer: the update says `where`, and its count of rows is checked |
| Glue | the entry's `VersionId` is still the one that was read with the old pointer; Amazon's service compares |
| Hive | the parameter `metadata_location` is still the old one; the metastore compares, see `hive` |
| DynamoDB, BigQuery | pyiceberg cannot commit to these at all |
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

CHECKS_VERSION_ID = "glue.checks-version-id"
"""Our own catalog property: the operator asserts that a service with Glue's protocol compares `VersionId`."""

_CONDITIONAL = frozenset(
    {
        "pyiceberg.catalog.sql.SqlCatalog",
        "pyiceberg.catalog.memory.InMemoryCatalog",
    }
)
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
    """Needs the changes of `hive`."""
    return _name(catalog) == _HIVE


def why_unconditional(catalog: Catalog) -> str | None:
    """Why no snapshot can be expired through this catalog; None when its swap is known to be conditional."""
    name = _name(catalog)
    if name in _CONDITIONAL:
        return None
    if name == _HIVE:
        from lakesweep.formats.iceberg import hive  # noqa: PLC0415 - only where it is needed

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
