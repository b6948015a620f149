"""What a TARGET on the command line or in the API means: configured tables by glob, or one bare location. And which run
the beginning of an id means."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from lakesweep.model.errors import LakesweepError, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef, is_ghost
from lakesweep.ports.state import StateStore
from lakesweep.ports.table import Table
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import TenantSettings

SHORTEST_ID = 4
"""Fewer letters of a run's id name nothing: one run today may be a thousand tomorrow."""
_WHOLE_ID = 32
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One table to plan or clean, or the reason why it cannot even be opened."""

    ref: TableRef
    tenant_root: Location
    table: Table | None = None
    problem: LakesweepError | None = None
    bare: bool = False
    """Given as a location on the command line, not configured."""
    bare_tenant: str = ""
    """The tenant whose root a bare location lies in, if any."""
    former: str | None = None
    """Of a ghost: the label of the table that was last planned there. Its rules and holds still apply."""

    def opened(self) -> Table:
        """The table. Raises why it could not be opened."""
        if self.table is None:
            raise self.problem or UnknownTable(f"{self.ref} cannot be opened")
        return self.table

    @property
    def tenant(self) -> str:
        """Whose stores and rules apply; empty for a bare location outside every tenant."""
        return self.bare_tenant if self.bare else self.ref.tenant

    @property
    def read_root(self) -> Location | None:
        """Of a bare location, where it may be read besides its tenant's places."""
        return self.tenant_root if self.bare else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a hold may cover it by: its label; for a bare location also with its tenant in front."""
        label = self.ref.label
        if self.former:
            return (label, self.former)
        return (label, f"{self.bare_tenant}/{label}") if self.bare_tenant else (label,)

    @property
    def is_held_with(self) -> str | None:
        """For a ghost whose former table is unknown: its tenant, because any hold there may be meant for it."""
        return self.ref.tenant if is_ghost(self.ref.label) and not self.former else None

    @property
    def rules_of(self) -> tuple[str, str]:
        if self.former:
            _, dataset, name = self.former.split("/", 2)
            return dataset, name
        return self.ref.dataset, self.ref.name


def as_location(target: str) -> Location | None:
    """The address a target spells, or None when it names configured tables.

    A relative path counts only if it exists: `acme/prod/orders` is a table unless such a directory is here.
    """
    if _ADDRESS.match(target):
        return _parse(target)
    is_path = target.startswith(("/", "./", "../", "~"))
    if is_path or os.path.isdir(target):  # noqa: PTH112 - False, not an error, where nobody may look
        return _parse(str(Path(target).expanduser().absolute()))
    return None


def file_location(path: str) -> Location | None:
    """The address of one file. A relative path counts only if something is there."""
    if not _ADDRESS.match(path) and os.path.exists(path):  # noqa: PTH110 - False, not an error, where nobody may look
        return _parse(str(Path(path).absolute()))
    return as_location(path)


def without_slash(location: Location) -> Location:
    """A table's place without trailing slashes: `s3://lake/t/` and `s3://lake/t` are one table, with one lease."""
    path = location.path.rstrip("/")
    return replace(location, path=path) if path else location


def real(location: Location) -> Location:
    """Where a local path leads, through all links; other stores have none. For comparing only, never to delete by."""
    return Location("file", "", os.path.realpath(location.path)) if location.is_local else location


def root_location(text: str) -> Location:
    """What `--root` spells; a relative path is read from the working directory."""
    location = as_location(text)
    if location is None:
        raise SettingsError(f"--root {text!r} is not an address or an existing directory")
    return location


def _parse(text: str) -> Location:
    try:
        return Location.parse(text)
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc


def covers(target: str, label: str) -> bool:
    """Does the target name this table, or something that holds it? It may be a glob; `acme` means all of a tenant,
    `acme/prod` all of a dataset."""
    name = target.rstrip("/")
    if f"{label}/".startswith(f"{name}/"):
        return True  # also of a name that would be a pattern
    return any(fnmatchcase(label, pattern) for pattern in (target, f"{name}/*"))


def suggestion(target: str, known: Iterable[str]) -> str:
    """`did you mean 'acme/prod/orders'?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(target, list(dict.fromkeys(known)), n=1, cutoff=0.75)
    return f"did you mean {near[0]!r}?" if near else ""


def unknown_tenant(name: str | None, known: Iterable[str], remark: str = "") -> UnknownTable:
    """The error for a name that no tenant has, or for none where there are no tenants."""
    if name is None:
        return UnknownTable("no tenant is configured")
    hints = "; ".join(filter(None, (suggestion(name, known), remark)))
    return UnknownTable(f"no tenant is called {name!r}{hints and ': ' + hints}")


def tenant(settings: Settings, name: str) -> TenantSettings:
    found = settings.tenant(name)
    if found is None:
        raise unknown_tenant(name, [one.id for one in settings.tenants])
    return found


def may_match(target: str, tenant: str, dataset: str) -> bool:
    """Could some table of this dataset match? Datasets that cannot are not even opened."""
    wanted = target.split("/")
    parts = (tenant, dataset)[: len(wanted)]
    return all(fnmatchcase(part, pattern) for part, pattern in zip(parts, wanted, strict=False))


async def whole_run_id(state: StateStore, text: str) -> str:
    """The id of the one run that begins so. Never guesses: SettingsError if it is too short or if several runs begin
    with it. A text that no run begins with is returned as it is: the caller knows best how to report that."""
    if len(text) >= _WHOLE_ID or await state.get_run(text) is not None:
        return text
    if len(text) < SHORTEST_ID:
        raise SettingsError(
            f"{text!r} is too short for the beginning of a run's id: give {SHORTEST_ID} letters or more"
        )
    found = await state.runs_beginning(text, limit=6)
    if len(found) > 1:
        named = [f"  {run['run_id']}  {run['started_at'] or ''}  {run['table']}" for run in found[:5]]
        more = ["  …"] if len(found) > 5 else []
        raise SettingsError("\n".join([f"several runs begin with {text!r}; give more of the id:", *named, *more]))
    return found[0]["run_id"] if found else text
