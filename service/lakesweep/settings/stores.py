"""Settings of single stores. `storage.kinds` lists the stores; it is the only module of `storage` that settings
import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from pydantic import Field, create_model

from lakesweep.settings.values import Group
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
    """The group with a field for each store, whose keys are all optional."""
    fields: dict[str, Any] = {}
    for name, (_, settings) in _CONFIGURED.items():
        override = _override(name, settings)
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


def _override(name: str, settings: type[Group]) -> type[Group]:
    fields: dict[str, Any] = {}
    for key, info in settings.model_fields.items():
        # Constraints belong to the value, so that None, for an inherited key, is allowed as well.
        value: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        fields[key] = (value | None, Field(default=None, description=info.description, repr=info.repr))
    made = create_model(f"{settings.__name__.removesuffix('Settings')}Override", __base__=Group, **fields)
    made.__doc__ = f"Some of the keys of `[storage.{name}]`, for one tenant."
    return made


def _made(group: type[G], fields: dict[str, Any]) -> type[G]:
    made = create_model(group.__name__, __base__=group, **fields)
    made.__doc__ = group.__doc__
    return made
