"""Settings of single stores. `storage.kinds` lists the stores; it is the only module of `storage` that settings
import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import Field, create_model

from lakesweep.settings.values import Group, override_of
from lakesweep.storage.kinds import KINDS, StoreSettings

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings

G = TypeVar("G", bound=Group)

_CONFIGURED = {kind.name: (kind, kind.settings) for kind in KINDS if kind.settings is not None}


def add_settings(group: type[G]) -> type[G]:
    fields: dict[str, Any] = {
        name: (settings, Field(default=settings(), description=kind.about))
        for name, (kind, settings) in _CONFIGURED.items()
    }
    return _made(group, fields)


def add_overrides(group: type[G]) -> type[G]:
    fields: dict[str, Any] = {}
    for name, (_, settings) in _CONFIGURED.items():
        override = override_of(settings, f"Some of the keys of `[storage.{name}]`, for one tenant.")
        about = f"Keys of `[storage.{name}]` that differ for this tenant; the others are inherited."
        fields[name] = (override, Field(default=override(), description=about))
    return _made(group, fields)


def for_tenant(settings: Settings, tenant: str | None = None) -> Mapping[str, StoreSettings]:
    """How one tenant's stores are reached, by the name of their section."""
    configured, found = settings.tenant(tenant), {}
    for name in _CONFIGURED:
        given = getattr(configured.storage, name).model_dump(exclude_none=True) if configured else {}
        found[name] = cast("StoreSettings", getattr(settings.storage, name).model_copy(update=given))
    return found


def _made(group: type[G], fields: dict[str, Any]) -> type[G]:
    made = create_model(group.__name__, __base__=group, **fields)
    made.__doc__ = group.__doc__
    return made
