"""Turn a caller's argument into settings and a target: a location, a pyiceberg Table, a DeltaTable, or a configured
name.

Neither pyiceberg nor deltalake is imported: a caller with such an object has imported its library. Credentials never
come from a catalog's or a table's properties; only the endpoint and region do, which the caller's process uses too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

TENANT = "pyiceberg"
"""Tenant of tables that are given as objects and are in no configured tenant's root."""
_CATALOGS = {
    "SqlCatalog": "sql",
    "RestCatalog": "rest",
    "HiveCatalog": "hive",
    "GlueCatalog": "glue",
    "DynamoDbCatalog": "dynamodb",
}
_NOT_TAKEN = ("py-io-impl", "py-catalog-impl", "type", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The settings and the target of one call."""

    settings: Settings
    target: str
    format: FormatName | None = None
    root: str | None = None


def source_of(x: Any, settings: Settings, *, format: str | None = None, root: str | None = None) -> Source:
    """Settings and target for what a caller gave."""
    named = _format(format) if format is not None else None
    if _is_of(x, "pyiceberg.table"):
        return _of_iceberg(x, settings)
    if _is_of(x, "deltalake"):
        return _of_delta(x, settings)
    if isinstance(x, str | os.PathLike):
        return Source(settings=settings, target=os.fspath(x), format=named, root=root)
    raise TypeError(
        f"expected a location, a tenant/dataset/table, a pyiceberg Table or a DeltaTable, not {type(x).__name__}"
    )


def _format(name: str) -> FormatName:
    try:
        return FormatName(name)
    except ValueError as exc:
        raise SettingsError(f"format {name!r}: expected {', '.join(FormatName)}") from exc


def _is_of(x: Any, module: str) -> bool:
    return any(kind.__module__ == module or kind.__module__.startswith(f"{module}.") for kind in type(x).__mro__)


def _of_delta(table: Any, settings: Settings) -> Source:
    options = {str(key).lower(): str(value) for key, value in (getattr(table, "_storage_options", None) or {}).items()}
    endpoint = options.get("aws_endpoint_url") or options.get("endpoint_url") or options.get("aws_endpoint")
    region = options.get("aws_region") or options.get("region")
    reached = _reaching(settings, endpoint, region)
    return Source(settings=reached, target=str(table.table_uri), format=FormatName.DELTA)


def _of_iceberg(table: Any, settings: Settings) -> Source:
    place, catalog = str(table.location()), getattr(table, "catalog", None)
    properties = {str(key): str(value) for key, value in dict(getattr(catalog, "properties", {})).items()}
    region = properties.get("s3.region") or properties.get("client.region")
    settings = _reaching(settings, properties.get("s3.endpoint"), region)
    here = Location.parse(place)
    if any(Location.parse(tenant.root).overlaps(here) for tenant in settings.tenants):
        return Source(settings=settings, target=place)  # configured: its settings, lease and holds apply
    kind = _CATALOGS.get(type(catalog).__name__)
    if kind is None or ":memory:" in properties.get("uri", ""):
        # No other connection sees this catalog: the metadata file can be planned, not cleaned.
        metadata = str(table.metadata_location)
        return Source(settings=settings, target=metadata, format=FormatName.ICEBERG, root=place)
    *namespace, name = table.name()
    taken = {key: value for key, value in properties.items() if key not in _NOT_TAKEN}
    dataset = DatasetSettings(
        id=_identifier(".".join((str(getattr(catalog, "name", "catalog")), *namespace))),
        format=FormatName.ICEBERG,
        catalog={**taken, "type": kind, "name": str(getattr(catalog, "name", "catalog"))},
        namespace=".".join(_quoted(part) for part in namespace) or None,
    )
    tenant = TenantSettings(id=TENANT, root=place, datasets=(dataset,))
    whole = settings.model_copy(update={"tenants": (*settings.tenants, tenant)})
    return Source(settings=whole, target=f"{TENANT}/{dataset.id}/{_quoted(name)}")


def _reaching(settings: Settings, endpoint: str | None, region: str | None) -> Settings:
    """The same settings, with the S3 that the caller's object uses, unless they name one themselves."""
    storage: Any = settings.storage
    s3 = storage.s3
    given: dict[str, Any] = {}
    if endpoint and s3.endpoint_url is None:
        given |= {"endpoint_url": endpoint, "path_style": True}
    if region and s3.region is None:
        given["region"] = region
    if not given:
        return settings
    reached = storage.model_copy(update={"s3": s3.model_copy(update=given)})
    return settings.model_copy(update={"storage": reached})


def _identifier(text: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_.-]", "-", text).strip("-.")
    if not made:
        raise SettingsError(f"the catalog's name {text!r} cannot be used: give it one with letters")
    return made


def _quoted(part: str) -> str:
    return f"`{part}`" if "." in part else part
