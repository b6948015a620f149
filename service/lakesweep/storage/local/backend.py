"""Open local disks. Imported by `storage.registry`."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from lakesweep.model.location import Location
from lakesweep.model.store_rules import LeftoverPage, StoreRules, Versioning, not_counted
from lakesweep.ports.deleter import Deleter, Mover
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.local.mover import LocalMover
from lakesweep.storage.local.settings import LocalOptions
from lakesweep.storage.local.store import LocalStorage, LocalWriter
from lakesweep.storage.spec import NothingToClose, StorageSpec


def storage(spec: StorageSpec) -> Storage:
    options = spec.options(LocalOptions)
    return LocalStorage(options.age_by, _places(spec), counted=options.counted)


def deleter(spec: StorageSpec, _gate: Gate | None) -> Deleter:
    """Deleting. A disk does not throttle."""
    return LocalDeleter(spec.options(LocalOptions).age_by)


def mover(spec: StorageSpec, _gate: Gate | None) -> Mover:
    return LocalMover(spec.options(LocalOptions).age_by)


class LocalRules(NothingToClose):
    """A disk does not keep deleted files. Snapshots of the file system are not considered."""

    async def rules(self, place: Location) -> StoreRules:  # noqa: ARG002  # the port's
        return StoreRules(versioning=Versioning.OFF)

    async def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:  # noqa: ARG002  # the port's
        for page in not_counted("a disk has neither versions nor uploads"):
            yield page


def rules(_spec: StorageSpec) -> StoreRulesReader:
    return LocalRules()


def writer(spec: StorageSpec) -> Writer:
    return LocalWriter(_places(spec), counted=spec.options(LocalOptions).counted)


async def credentials(_spec: StorageSpec) -> str | None:
    return None


def _places(spec: StorageSpec) -> tuple[Location, ...]:
    """The places below which no link is followed. Metadata of other tables may be read anywhere, so with those the root
    directory is one too."""
    if spec.confine is None:
        return ()
    top = (Location("file", "", "/"),) if spec.confine.survey else ()
    return (*spec.confine.places, *top)
