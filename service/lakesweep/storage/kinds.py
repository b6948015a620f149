"""The one list of stores. A new store is its package and a line here.

Light on purpose: `settings` reads it at every start. What opens a store is imported when one is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakesweep.settings.values import Group
from lakesweep.storage.local.settings import LocalSettings
from lakesweep.storage.s3.settings import S3Settings


class StoreSettings(Protocol):
    """The settings of one store: a `Group` with these besides its keys."""

    def options(self) -> object:
        """What the store is opened with, as a value of a type of its own. Picklable, without secrets."""
        ...

    @property
    def identity(self) -> str:
        """Tells two stores apart that give other objects for the same addresses."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One kind of store."""

    name: str
    """Of its section in the settings."""
    scheme: str
    """Of its addresses."""
    about: str
    """What it is, in the settings' documentation."""
    backend: str
    """The module with `storage(spec)`, `deleter(spec, gate)` and `writer(spec)`."""
    settings: type[Group] | None = None
    """A Group that is also StoreSettings; None for a store that has none."""


KINDS: tuple[StoreKind, ...] = (
    StoreKind(
        name="local",
        scheme="file",
        about="Local disks and mounts.",
        backend="lakesweep.storage.local.backend",
        settings=LocalSettings,
    ),
    StoreKind(
        name="s3",
        scheme="s3",
        about="S3 and what speaks its protocol.",
        backend="lakesweep.storage.s3.backend",
        settings=S3Settings,
    ),
    StoreKind(
        name="memory",
        scheme="memory",
        about="A store in memory, for tests and demonstrations.",
        backend="lakesweep.storage.memory",
    ),
)
