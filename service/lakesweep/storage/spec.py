"""How the stores are reached, as a value that travels to worker processes. It never holds a key or a password.

Credentials come from the usual AWS chain on the machine that opens the store: environment, profile, web
identity, container or instance role.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location

MAX_METADATA_BYTES = 2 * 1024**3
"""The default of storage.max_metadata_bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """One S3 endpoint and how hard it may be worked."""

    endpoint_url: str | None = None
    """None is AWS itself; else the address of an S3-speaking store."""
    region: str | None = None
    """None leaves it to the AWS chain; stores other than AWS mostly ignore it."""
    path_style: bool = False
    """`endpoint/bucket/key` instead of `bucket.endpoint/key`: most stores other than AWS need it."""
    profile: str | None = None
    """A profile of the AWS configuration files."""
    max_connections: int = 64
    """Sockets of one client. More requests wait for a free one."""
    listing_concurrency: int = 16
    """List requests in flight for one root."""
    page_size: int = 1000
    """Keys asked for per list request; S3 never gives more than 1000."""
    delete_concurrency: int = 10
    """DeleteObjects requests that one deleter has in flight when the store does not throttle."""
    compare_etags: bool = True
    """Have the store compare the etag of each object that is deleted, where it can."""
    connect_timeout_seconds: float = 10
    read_timeout_seconds: float = 60
    attempts: int = 4
    """Tries of one request, the first included; throttled requests slow the client down (adaptive mode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confine:
    """What may be read and written at all, whatever a table's metadata names."""

    places: tuple[Location, ...]
    """The tenant's root and what the operator allowed beside it."""
    survey: tuple[str, ...] = ()
    """Objects whose names end so may be read anywhere in the stores that the places are in: a catalog's other tables,
    for which it has to be known where they keep files."""

    def allows(self, location: Location) -> bool:
        """Is it one of the places, or inside one?"""
        return any(place.as_directory() == location.as_directory() or place.contains(location) for place in self.places)

    def allows_reading(self, location: Location) -> bool:
        """The same, or a name that is surveyed."""
        if self.allows(location):
            return True
        surveyed = bool(self.survey) and location.name.endswith(self.survey)
        return surveyed and location.scheme in {place.scheme for place in self.places}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How files on local disks are judged."""

    age_by: AgeBy = AgeBy.CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec:
    """Everything needed to open the same stores elsewhere. Picklable."""

    local: LocalOptions = field(default_factory=LocalOptions)
    s3: S3Options = field(default_factory=S3Options)
    max_in_flight: int = 64
    """Read, stat and listing steps that run at once, over all stores."""
    call_timeout_seconds: float = 300
    """For one call, or one batch of a listing, to be answered."""
    attempts: int = 2
    """Tries of a read whose store was unavailable even after the client's own retries."""
    max_bytes: int = MAX_METADATA_BYTES
    """No object with more bytes is read."""
    confine: Confine | None = None
    """None: everything that the credentials allow, for places that only the operator names."""
