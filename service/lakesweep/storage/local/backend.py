"""Open local disks. What `storage.registry` imports."""

from __future__ import annotations

from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleter
from lakesweep.ports.storage import Storage, Writer
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.local.options import LocalOptions
from lakesweep.storage.local.store import LocalStorage, LocalWriter
from lakesweep.storage.spec import StorageSpec


def storage(spec: StorageSpec) -> Storage:
    """Reading."""
    return LocalStorage(spec.options(LocalOptions).age_by, _places(spec))


def deleter(_spec: StorageSpec, _gate: Gate | None) -> Deleter:
    """Deleting. A disk does not throttle."""
    return LocalDeleter()


def writer(spec: StorageSpec) -> Writer:
    """Writing."""
    return LocalWriter(_places(spec))


def _places(spec: StorageSpec) -> tuple[Location, ...]:
    """Below which no link is followed. What is surveyed may be anywhere, so there the top is a place too."""
    if spec.confine is None:
        return ()
    top = (Location("file", "", "/"),) if spec.confine.survey else ()
    return (*spec.confine.places, *top)
