"""Every error Lakesweep raises on purpose. The class says what the caller does next.

LakesweepError
├── SettingsError          the operator must mend a file, an option or a name    exit 2
│   ├── UnknownTable       no configured table matches a target                  exit 2
│   └── UnknownRun         the state store has no such run                       exit 2
│       └── NoPlan         it has the run, but no plan of it                     exit 2
├── NotYet                 not known yet: ask again after `seconds`
├── Refused                a guard said no; a person reads `reason`              exit 3
├── Indeterminate          what must be kept could not be read: delete nothing   exit 4
│   └── Unreadable         one named object could not be read or is damaged
├── CatalogUnavailable     the catalog does not answer                           exit 4
├── CommitConflict         somebody else committed first: load again and retry
├── CommitUnknown          the commit may or may not have happened: load and look
├── EngineFailed           the engine could not finish its work                  exit 4
├── Interrupted            somebody requested a stop: nothing is wrong
├── LeaseLost              another worker owns the table now: stop at once
├── StateError             the state store does not answer or is too new         exit 4
├── AuditFailed            what was done or is to be done cannot be recorded     exit 4
└── StorageError           the object store said no
    ├── NotFound           the object is not there
    ├── Denied             the credentials do not allow it: retrying is useless
    ├── AlreadyThere       a create-only write found the name taken
    ├── OutOfOrder         the store does not list in key order: list it whole
    └── Unavailable        time-out, throttling, 5xx, refused: a later try may work

Adapters translate vendor errors into these, chained, and nobody else does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from lakesweep.model.refusal import RefusalCode


class FailureKind(StrEnum):
    """The kind of a store's failure, for counting. The store's message is for people."""

    DENIED = "denied"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    OTHER = "other"


class LakesweepError(Exception):
    """Base of all errors raised on purpose."""


class SettingsError(LakesweepError):
    """Settings or command-line input that only the operator can correct. Contains every fault found."""

    def __init__(self, faults: list[str] | str) -> None:
        self.faults: list[str] = [faults] if isinstance(faults, str) else list(faults)
        super().__init__("\n".join(self.faults))


class UnknownTable(SettingsError):
    """A target names no configured table."""


class UnknownRun(SettingsError):
    """No run of that id was ever recorded, or it has been forgotten."""


class NoPlan(UnknownRun):
    """The run was recorded, but no plan of it is kept."""


class NotYet(LakesweepError):
    """The answer is not known yet. The caller tries again after some seconds."""

    def __init__(self, reason: str, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(reason)


class Refused(LakesweepError):
    """A guard said no. Not retried by itself; a person reads `reason`."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code}: {reason}")


class Indeterminate(LakesweepError):
    """What must be kept is not known for certain, so nothing may be deleted."""


class Unreadable(Indeterminate):
    """An object that decides what is live is missing, damaged or of an unknown kind."""

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        self.why = why
        super().__init__(f"cannot read {address}: {why}")


class CatalogUnavailable(LakesweepError):
    """The catalog cannot be reached or refuses to answer."""


class CommitConflict(LakesweepError):
    """Another writer committed first. Load the table again and decide anew."""


class CommitUnknown(LakesweepError):
    """No answer to a commit: it may have happened. Load the table and look before anything else."""


class EngineFailed(LakesweepError):
    """The engine (a process pool, a Spark cluster) could not finish."""


class Interrupted(LakesweepError):
    """The run was stopped, by a shutdown or by a person. The next cycle continues."""


class LeaseLost(LakesweepError):
    """The lease on the table is no longer ours."""


class StateError(LakesweepError):
    """The state store cannot be used."""


class AuditFailed(LakesweepError):
    """A record of the audit trail could not be stored. Nothing is deleted without one."""


class StorageError(LakesweepError):
    """The object store refused or failed. `address` is the requested object or prefix."""

    kind: ClassVar[FailureKind] = FailureKind.OTHER

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        self.why = why
        super().__init__(f"{address}: {why}")


class NotFound(StorageError):
    """There is no such object."""


class Denied(StorageError):
    """The credentials do not allow this."""

    kind = FailureKind.DENIED


class OutsideRoot(Denied):
    """Neither inside the tenant's root nor in a place that the operator allowed. The store was not used, so the error
    reveals nothing about what is there."""

    def __init__(self, address: str) -> None:
        super().__init__(
            address,
            "it is not in the tenant's root, so it is not opened; if the table needs it, the operator must "
            "name its place in `allow_read` of the tenant, or with --root for a bare location",
        )


class TooLarge(StorageError):
    """More bytes than a table's metadata may have."""

    def __init__(self, address: str, limit: int) -> None:
        self.limit = limit
        super().__init__(address, f"it is larger than {limit} bytes: its recorded size, or storage.max_metadata_bytes")


class AlreadyThere(StorageError):
    """A create-only write found the name taken."""


class OutOfOrder(StorageError):
    """The store does not list in key order, so parts of a listing may overlap or leave gaps."""


class Unavailable(StorageError):
    """The store did not answer in time, throttled us or failed. A later try may work."""

    kind = FailureKind.UNAVAILABLE
    tried_again = False
    """Did the store's own client repeat the request? Then no layer above does."""
