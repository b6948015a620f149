"""What a TARGET on the command line or in the API means: configured tables by glob, or one bare location."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lakesweep.model.errors import LakesweepError, SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.table import Table

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
        """What a hold may cover it by: its label, and a bare location also as one of its tenant's."""
        label = self.ref.label
        return (label, f"{self.bare_tenant}/{label}") if self.bare_tenant else (label,)


def as_location(target: str) -> Location | None:
    """The address a target spells, or None when it names configured tables.

    A relative path counts only if it exists: `acme/prod/orders` is a table unless such a directory is here.
    """
    if _ADDRESS.match(target):
        return _parse(target)
    if target.startswith(("/", "./", "../", "~")) or (target and Path(target).is_dir()):
        return _parse(str(Path(target).expanduser().absolute()))
    return None


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


def matching(target: str, refs: Sequence[TableRef]) -> list[TableRef]:
    """Tables whose label matches the glob. `acme` means all of a tenant, `acme/prod` all of a dataset."""
    return [ref for ref in refs if covers(target, ref.label)]


def covers(target: str, label: str) -> bool:
    """Does the target name this table, or something that holds it?"""
    if target == label:
        return True  # also of a name that would be a pattern
    return any(fnmatchcase(label, pattern) for pattern in (target, f"{target.rstrip('/')}/*"))


def may_match(target: str, tenant: str, dataset: str) -> bool:
    """Could some table of this dataset match? Datasets that cannot are not even opened."""
    wanted = target.split("/")
    parts = (tenant, dataset)[: len(wanted)]
    return all(fnmatchcase(part, pattern) for part, pattern in zip(parts, wanted, strict=False))
