"""How the stores are reached, as a value that can be sent to worker processes. It never holds a key or a password:
credentials come from the machine that opens the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from lakesweep.model.location import Location

Options = TypeVar("Options")

MAX_METADATA_BYTES = 2 * 1024**3
"""The default of storage.max_metadata_bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confine:
    """The places that may be read and written, whatever a table's metadata names."""

    places: tuple[Location, ...]
    """The tenant's root and what the operator allowed beside it."""
    survey: tuple[str, ...] = ()
    """Objects with these suffixes may be read anywhere in the same stores: metadata of a catalog's other tables, to
    know where they keep files."""

    def allows(self, location: Location) -> bool:
        return any(place.as_directory() == location.as_directory() or place.contains(location) for place in self.places)

    def allows_reading(self, location: Location) -> bool:
        """May it be read: inside a place, or by one of the suffixes?"""
        if self.allows(location):
            return True
        surveyed = bool(self.survey) and location.name.endswith(self.survey)
        return surveyed and location.scheme in {place.scheme for place in self.places}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec:
    """Everything needed to open the same stores elsewhere. Picklable."""

    stores: tuple[object, ...] = ()
    """The options of single stores, at most one of each kind."""
    delete_concurrency: int | None = None
    """Deletion requests that one deleter has in flight; None is the store's own default."""
    max_in_flight: int = 64
    """Concurrent read, stat and listing steps, over all stores."""
    call_timeout_seconds: float = 300
    """Time limit for one call, or for one batch of a listing."""
    attempts: int = 2
    """Attempts of a read or a plain overwrite, where the store's own client does not repeat the request."""
    max_bytes: int = MAX_METADATA_BYTES
    """No object with more bytes is read."""
    confine: Confine | None = None
    """None: everything that the credentials allow, for places that only the operator can name."""

    def options(self, kind: type[Options]) -> Options:
        """The options of one store, by their type; the defaults if none are given."""
        return next((one for one in self.stores if isinstance(one, kind)), None) or kind()


class NothingToClose:
    """A port of a store without connections: disks and memory."""

    async def aclose(self) -> None:
        """What is stored stays."""
