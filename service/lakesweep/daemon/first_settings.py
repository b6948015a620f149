"""The first settings file, for `lakesweep init`: looks what is at a place or in a catalog, and writes it down.

Reads only; the file it makes is in dry run, and holds no secret. Directories alone are looked at, never what is in the
tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from lakesweep.aio import gather_bounded
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import SystemClock
from lakesweep.formats import markers
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import FACTS
from lakesweep.ports.storage import Storage
from lakesweep.settings.schema import Settings
from lakesweep.settings.secrets import is_secret
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

EACH_DIRECTORY = "*"
"""For a tenant's name: every directory of the place is one."""
_SHOWN = 20
_DATABASE = ".db"
_HIDDEN = ("_", ".")
_HEAD = """\
# Written by `lakesweep init`. Every key: docs/settings.md; what applies to a table: `lakesweep settings`.

[orphan_cleanup]
# The service runs on its schedule, and only finds and reports: nothing is deleted while dry_run is true.
enabled = true
dry_run = true
# Unreferenced files stay for this long after their last change: longer than the slowest writer takes to commit.
grace_period_hours = 72
# Snapshots older than this may expire; a table's own retention wins. 720 hours are 30 days.
max_snapshot_age_hours = 720
"""
_CATALOG_IS_MISSING = """\
# An Iceberg table is cleaned through its catalog, which alone knows the current metadata. Fill it in and remove the #:
# [[tenants.datasets]]
# id = "iceberg"
# format = "iceberg"
# catalog = { type = "rest", uri = "https://…" }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One dataset that can be configured, and its tables by name."""

    settings: DatasetSettings
    tables: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One owner: a root, what was found below it, and Iceberg tables whose catalog nobody named."""

    id: str
    root: str
    datasets: Sequence[Dataset] = ()
    without_catalog: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not self.datasets and not self.without_catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a directory is."""

    has_delta: bool = False
    is_iceberg: bool = False
    is_warehouse: bool = False
    below: Sequence[str] = ()


async def look(settings: Settings, root: str, tenant: str, catalog: Mapping[str, str]) -> list[Tenant]:
    """The tenants of a place with their tables, as far as they have any."""
    if tenant != EACH_DIRECTORY:
        found = [await _look_at(settings, root, check_tenant(tenant), catalog)]
    elif catalog:
        raise SettingsError("--tenant '*' works only for directories: for a catalog, name one tenant")
    else:
        owner = _tenant(root)
        async with _adapters(settings, owner) as adapters:
            names = await adapters.storage(owner.id).directories(Location.parse(root))
        visible = [name for name in names if not name.startswith(_HIDDEN)]
        found = [await _look_at(settings, f"{root.rstrip('/')}/{name}", _identifier(name), {}) for name in visible]
    return [one for one in found if not one.is_empty]


async def _look_at(settings: Settings, root: str, tenant: str, catalog: Mapping[str, str]) -> Tenant:
    owner = _tenant(root)
    async with _adapters(settings, owner) as adapters:
        places = await _walk(adapters.storage(owner.id), Location.parse(root))
    wanted: list[dict[str, object]] = []
    if any(place.has_delta for place in places.values()):
        wanted.append(_dataset_at("location", root))
    for path in (path for path, place in places.items() if place.is_warehouse):
        warehouse = f"{root.rstrip('/')}/{path}".rstrip("/")
        wanted.append(_dataset_at("warehouse", warehouse, name=path))
    if catalog:
        wanted.append(_dataset_at("catalog", dict(catalog), name=catalog.get("name", "")))
    _number(wanted)
    datasets = [await _tables(settings, owner, DatasetSettings.model_validate(one)) for one in wanted]
    iceberg = [path or "." for path, place in places.items() if place.is_iceberg] if not catalog else []
    return Tenant(
        id=tenant, root=root, datasets=[one for one in datasets if one.tables], without_catalog=sorted(iceberg)
    )


def _dataset_at(key: str, place: object, *, name: str = "") -> dict[str, object]:
    wanted = next(one for one, facts in FACTS.items() if facts.keys[0] == key)
    return {"id": _identifier(name or str(wanted)), "format": wanted, key: place}


async def _walk(storage: Storage, root: Location) -> dict[str, _Place]:
    """Every directory that means something, by its path below the root. What is inside a table is not looked at."""
    found: dict[str, _Place] = {}
    level = [""]
    while level:
        places = await gather_bounded(level, lambda path: _visit(storage, root, path))
        found |= dict(zip(level, places, strict=True))
        level = [below for place in places for below in place.below]
    return {path: place for path, place in found.items() if replace(place, below=()) != _Place()}


async def _visit(storage: Storage, root: Location, path: str) -> _Place:
    here = root.join(path) if path else root
    names = await storage.directories(here)
    if markers.DELTA_LOG in names:
        return _Place(has_delta=True)
    if set(markers.PAIMON_DIRECTORIES) <= set(names):
        return _Place()  # found with its warehouse
    if markers.ICEBERG_METADATA in names and await _has_metadata(storage, here.join(markers.ICEBERG_METADATA)):
        return _Place(is_iceberg=True)
    below = [f"{path}/{name}".lstrip("/") for name in names if not name.startswith(_HIDDEN)]
    return _Place(is_warehouse=any(name.endswith(_DATABASE) for name in names), below=below)


async def _has_metadata(storage: Storage, directory: Location) -> bool:
    async with aclosing(storage.list(directory)) as pages:
        async for page in pages:
            if any(str(path).endswith(markers.ICEBERG_SUFFIXES) for path in page.column("path").to_pylist()):
                return True
    return False


async def _tables(settings: Settings, owner: TenantSettings, dataset: DatasetSettings) -> Dataset:
    tenant = owner.model_copy(update={"datasets": (dataset,)})
    async with _adapters(settings, tenant) as adapters:
        refs = await adapters.format(tenant, dataset).tables()
    return Dataset(settings=dataset, tables=[ref.name for ref in refs])


def _tenant(root: str) -> TenantSettings:
    return TenantSettings(id="init", root=root, datasets=())


def _adapters(settings: Settings, tenant: TenantSettings) -> aclosing[Adapters]:
    return aclosing(Adapters(settings.model_copy(update={"tenants": (tenant,)}), SystemClock()))


def _number(wanted: Sequence[dict[str, object]]) -> None:
    """No two datasets of a tenant have one name."""
    taken: set[object] = set()
    for one in wanted:
        name, number = one["id"], 2
        while one["id"] in taken:
            one["id"], number = f"{name}-{number}", number + 1
        taken.add(one["id"])


def text(tenants: Sequence[Tenant], *, endpoint: str | None) -> str:
    """The settings file. What is secret is left to the environment, and the file says where."""
    parts = [_HEAD]
    if endpoint:
        parts.append(f"[storage.s3]\nendpoint_url = {_value(endpoint)}\npath_style = true\n")
    for tenant in tenants:
        head = "# Nothing outside this location is ever touched.\n"
        parts.append(f"[[tenants]]\nid = {_value(tenant.id)}\n{head}root = {_value(tenant.root)}\n")
        parts += [_dataset(one) for one in tenant.datasets]
        if tenant.without_catalog:
            parts.append(f"# {_listed(tenant.without_catalog, 'Iceberg table')}\n{_CATALOG_IS_MISSING}")
    return "\n".join(parts)


def _dataset(found: Dataset) -> str:
    made = found.settings
    lines = [f"# {_listed(found.tables, 'table')}", "[[tenants.datasets]]", f"id = {_value(made.id)}"]
    lines.append(f"format = {_value(made.format.value)}")
    lines += [f"{key} = {_value(place)}" for key, place in made.places.items()]
    if made.catalog is not None:
        shown = {key: value for key, value in made.catalog.items() if not _secret(key, value)}
        inner = ", ".join(f"{_value(key)} = {_value(value)}" for key, value in shown.items())
        lines.append(f"catalog = {{ {inner} }}")
        lines += [
            f"# {key} is secret: set PYICEBERG_CATALOG__{made.catalog.get('name', made.id).upper()}__{key.upper()} in "
            "the environment."
            for key in made.catalog
            if key not in shown
        ]
    return "\n".join(lines) + "\n"


def _listed(tables: Sequence[str], noun: str) -> str:
    first = ", ".join(tables[:_SHOWN]) + (", …" if len(tables) > _SHOWN else "")
    found = f"{len(tables)} {noun}{'' if len(tables) == 1 else 's'} found: {first}"
    return "".join(one if one.isprintable() else "?" for one in found)


def _secret(key: str, value: str) -> bool:
    return is_secret(key) or key in ("credential", "token") or bool(re.search(r"//[^/@\s]*:[^/@\s]*@", value))


def _value(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text).strip("-.") or "main"


def check_tenant(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise SettingsError(f"--tenant {name!r}: letters, digits, dots and dashes only, or '*' for each directory")
    return name
