"""The one list of stores. A new store is its package and a line here. It imports little, because `settings` reads it at
every start. The code of a store is imported when one is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakesweep.settings.values import Group
from lakesweep.storage.local.settings import LocalSettings
from lakesweep.storage.s3.settings import S3Settings


class StoreSettings(Protocol):
    """The settings of one store: a `Group` with these members in addition to its keys."""

    def options(self) -> object:
        """The options that the store is opened with. `StorageSpec.options` finds them by their type. Picklable, without
        secrets. The type called without arguments gives the defaults."""

    @property
    def identity(self) -> str:
        """Different for two stores in which the same address names different objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One kind of store."""

    name: str
    """The name of its section in the settings."""
    scheme: str
    """The scheme of its addresses."""
    about: str
    """What it is, in the settings' documentation."""
    backend: str
    """The module with `storage(spec)`, `deleter(spec, gate)`, `mover(spec, gate)`, `rules(spec)`, `writer(spec)` and
    `credentials(spec)`: see `Backend` in `storage.registry`."""
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


def has_store(address: str) -> bool:
    """Is there a store for this address, by its scheme alone? A path without a scheme is local."""
    return address.startswith("/") or address.partition(":")[0].lower() in {kind.scheme for kind in KINDS}
