"""Which value of every setting holds, and which level gave it. Pure: the values are the cascade's own.

Values are fit to be shown. A field that is kept out of `repr` may hold a secret, and nothing of its value is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from pydantic import BaseModel

from lakesweep.settings import stores
from lakesweep.settings.cascade import cleanup_for, decided, overrides
from lakesweep.settings.error_messages import Key
from lakesweep.settings.load import VariableOf
from lakesweep.settings.schema import Settings
from lakesweep.settings.secrets import MASK, mask


class Level(StrEnum):
    """Where a value is given, from the widest to the narrowest."""

    DEFAULT = "default"
    GLOBAL = "global"
    TENANT = "tenant"
    DATASET = "dataset"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One setting as it holds."""

    name: str
    """Its sections and its own name, joined by dots."""
    value: Any
    """As JSON would have it, without secrets."""
    level: Level
    variable: str | None
    """The environment variable that gave it, if none of the file's keys did."""


_NARROWER = (Level.TENANT, Level.DATASET, Level.TABLE)
_FOR_TABLES = frozenset({"orphan_cleanup", "storage", "engine", "tenants"})
_NOT_ITS_OWN = frozenset({"id", "format", "orphan_cleanup", "storage", "datasets", "tables"})
"""Of a tenant or dataset: what names it, and what is told by other names."""


def for_service(settings: Settings, variable_of: VariableOf) -> list[Effective]:
    """What exists once and is about no table."""
    sections = [name for name in Settings.model_fields if name not in _FOR_TABLES]
    told = [one for name in sections for one in _global(getattr(settings, name), (name,), variable_of)]
    return told + _storage_itself(settings, variable_of)


def for_table(
    settings: Settings, variable_of: VariableOf, tenant: str, dataset: str | None = None, table: str | None = None
) -> list[Effective]:
    """What holds for one table; without its name for those of the dataset that the settings do not name."""
    told = _cleanup(settings, variable_of, tenant, dataset, table)
    if (owner := settings.tenant(tenant)) is not None:
        if (source := owner.dataset(dataset)) is not None:
            told += _own(source, ("tenants", "datasets"), Level.DATASET, variable_of)
        told += _own(owner, ("tenants",), Level.TENANT, variable_of)
    told += _storage(settings, variable_of, tenant)
    return told + _global(settings.engine, ("engine",), variable_of)


def _cleanup(settings: Settings, variable_of: VariableOf, *names: str | None) -> list[Effective]:
    above, (tenant, dataset, table) = ("orphan_cleanup",), names
    levels = _given(settings.orphan_cleanup, above, Level.GLOBAL)
    for level, override in zip(_NARROWER, overrides(settings, tenant, dataset, table), strict=False):
        levels |= dict.fromkeys(_keys(decided(override), above), level)
    return _told(cleanup_for(settings, tenant, dataset, table), above, levels, variable_of)


def _storage_itself(settings: Settings, variable_of: VariableOf) -> list[Effective]:
    """Keys of `[storage]` that are for every store. Those of one store are told for each table."""
    above, storage = ("storage",), settings.storage
    stores = frozenset(name for name in type(storage).model_fields if isinstance(getattr(storage, name), BaseModel))
    return _told(storage, above, _given(storage, above, Level.GLOBAL), variable_of, leave_out=stores)


def _storage(settings: Settings, variable_of: VariableOf, tenant: str) -> list[Effective]:
    owner, told = settings.tenant(tenant), []
    for store, holds in stores.for_tenant(settings, tenant).items():
        above = ("storage", store)
        levels = _given(getattr(settings.storage, store), above, Level.GLOBAL)
        if owner is not None:
            own = getattr(owner.storage, store).model_dump(exclude_none=True)
            levels |= dict.fromkeys(_keys(own, above), Level.TENANT)
        told += _told(cast("BaseModel", holds), above, levels, variable_of)
    return told


def _own(holder: BaseModel, above: Key, level: Level, variable_of: VariableOf) -> list[Effective]:
    """The keys that only a tenant or only a dataset has."""
    return _told(holder, above, _given(holder, above, level), variable_of, leave_out=_NOT_ITS_OWN)


def _global(group: BaseModel, above: Key, variable_of: VariableOf) -> list[Effective]:
    return _told(group, above, _given(group, above, Level.GLOBAL), variable_of)


def _told(
    holds: BaseModel,
    above: Key,
    levels: Mapping[Key, Level],
    variable_of: VariableOf,
    leave_out: frozenset[str] = frozenset(),
) -> list[Effective]:
    """A group as it holds, given where `levels` says."""
    leaves = _leaves(holds, above, leave_out)
    return [_one(key, value, levels.get(key, Level.DEFAULT), variable_of) for key, value in leaves]


def _one(key: Key, value: Any, level: Level, variable_of: VariableOf) -> Effective:
    match level:
        case Level.DEFAULT:
            variable = None
        case Level.GLOBAL:
            variable = variable_of(key)
        case Level.TENANT | Level.DATASET | Level.TABLE:
            variable = variable_of(("tenants",))  # they are given as a whole
    return Effective(name=".".join(map(str, key)), value=value, level=level, variable=variable)


def _leaves(group: BaseModel, above: Key, leave_out: frozenset[str]) -> Iterator[tuple[Key, Any]]:
    plain = group.model_dump(mode="json")
    for name, info in type(group).model_fields.items():
        value = getattr(group, name)
        if name in leave_out:
            continue
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*above, name), frozenset())
        else:
            yield (*above, name), (mask(plain[name], name) if info.repr or not value else MASK)


def _given(group: BaseModel, above: Key, level: Level) -> dict[Key, Level]:
    """The level of what was given of a group; the rest of it are defaults."""
    return dict.fromkeys(_keys(group.model_dump(exclude_unset=True), above), level)


def _keys(document: Mapping[str, Any], above: Key) -> Iterator[Key]:
    """Every key, and those inside it: a table of properties is one setting, and so is each key of a section."""
    for name, value in document.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _keys(value, (*above, name))
