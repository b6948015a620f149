"""The effective value of every setting, and the level that set it. Pure: the values come from the cascade.

Values are safe to show. A field that is excluded from `repr` may contain a secret, and its value is never shown.
"""

from __future__ import annotations

import hashlib
import json
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
    """Where a value is set, from the widest to the narrowest."""

    DEFAULT = "default"
    GLOBAL = "global"
    TENANT = "tenant"
    DATASET = "dataset"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One effective setting."""

    name: str
    """Its sections and its name, joined by dots."""
    value: Any
    """A JSON value, without secrets."""
    level: Level
    variable: str | None
    """The environment variable that set it, if the file did not."""


_NARROWER = (Level.TENANT, Level.DATASET, Level.TABLE)
_FOR_TABLES = frozenset({"orphan_cleanup", "storage", "engine", "tenants"})
_NOT_ITS_OWN = frozenset({"id", "format", "orphan_cleanup", "storage", "datasets", "tables"})
"""Keys of a tenant or dataset that name it, or that are shown under other names."""


def for_service(settings: Settings, variable_of: VariableOf) -> list[Effective]:
    """Settings that exist once and do not concern a table."""
    sections = [name for name in Settings.model_fields if name not in _FOR_TABLES]
    found = [one for name in sections for one in _own(getattr(settings, name), (name,), Level.GLOBAL, variable_of)]
    # Keys of `[storage]` for every store. Those of one store are shown for each table.
    storage = settings.storage
    stores = frozenset(name for name in type(storage).model_fields if isinstance(getattr(storage, name), BaseModel))
    return found + _own(storage, ("storage",), Level.GLOBAL, variable_of, leave_out=stores)


def for_table(
    settings: Settings, variable_of: VariableOf, tenant: str, dataset: str | None = None, table: str | None = None
) -> list[Effective]:
    """Settings of one table; without its name, of the dataset's tables that the settings do not name."""
    found = _cleanup(settings, variable_of, tenant, dataset, table)
    if (owner := settings.tenant(tenant)) is not None:
        if (source := owner.dataset(dataset)) is not None:
            found += _own(source, ("tenants", "datasets"), Level.DATASET, variable_of, leave_out=_NOT_ITS_OWN)
        found += _own(owner, ("tenants",), Level.TENANT, variable_of, leave_out=_NOT_ITS_OWN)
    found += _storage(settings, variable_of, tenant)
    return found + _own(settings.engine, ("engine",), Level.GLOBAL, variable_of)


def _cleanup(settings: Settings, variable_of: VariableOf, *names: str | None) -> list[Effective]:
    above = ("orphan_cleanup",)
    levels = _given(settings.orphan_cleanup, above, Level.GLOBAL)
    for level, override in zip(_NARROWER, overrides(settings, *names), strict=False):
        levels |= dict.fromkeys(_keys(decided(override), above), level)
    return _levelled(cleanup_for(settings, *names), above, levels, variable_of)


def _storage(settings: Settings, variable_of: VariableOf, tenant: str) -> list[Effective]:
    owner, found = settings.tenant(tenant), []
    for store, holds in stores.for_tenant(settings, tenant).items():
        above = ("storage", store)
        levels = _given(getattr(settings.storage, store), above, Level.GLOBAL)
        if owner is not None:
            own = getattr(owner.storage, store).model_dump(exclude_none=True)
            levels |= dict.fromkeys(_keys(own, above), Level.TENANT)
        found += _levelled(cast("BaseModel", holds), above, levels, variable_of)
    return found


def _own(
    group: BaseModel, above: Key, level: Level, variable_of: VariableOf, leave_out: frozenset[str] = frozenset()
) -> list[Effective]:
    """A group that only this level can set."""
    return _levelled(group, above, _given(group, above, level), variable_of, leave_out)


def _levelled(
    holds: BaseModel,
    above: Key,
    levels: Mapping[Key, Level],
    variable_of: VariableOf,
    leave_out: frozenset[str] = frozenset(),
) -> list[Effective]:
    """A group with its effective values, set at `levels`."""
    leaves = _leaves(holds, above, leave_out)
    return [_one(key, value, levels.get(key, Level.DEFAULT), variable_of) for key, value in leaves]


def _one(key: Key, value: Any, level: Level, variable_of: VariableOf) -> Effective:
    match level:
        case Level.DEFAULT:
            variable = None
        case Level.GLOBAL:
            variable = variable_of(key)
        case Level.TENANT | Level.DATASET | Level.TABLE:
            variable = variable_of(("tenants",))  # they are set as a whole
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
    """The level of the keys that were set in a group; the rest are defaults."""
    return dict.fromkeys(_keys(group.model_dump(exclude_unset=True), above), level)


def _keys(document: Mapping[str, Any], above: Key) -> Iterator[Key]:
    """Every key, including nested ones: a table of properties is one setting, and so is each key of a section."""
    for name, value in document.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _keys(value, (*above, name))


def digest(settings: Settings) -> str:
    """SHA-256 of all settings, including defaults: shows whether two sets of settings differ without revealing them.
    Secrets are left out, because a digest can be attacked by guessing."""
    shown = mask(settings.model_dump(mode="json"))
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
