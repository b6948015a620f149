"""What an operator may choose for the Delta tables of a dataset. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class VacuumMode(StrEnum):
    """Where candidates for deletion come from."""

    FULL = "full"
    """Everything stored below the table: also finds what no commit ever named."""
    LITE = "lite"
    """Only what commits still in the log have removed, as VACUUM LITE does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    """The choices for one dataset's tables."""

    vacuum_mode: VacuumMode = VacuumMode.FULL
    has_shallow_clones: bool = False
    """Shallow clones read this table's files, and nothing in its log says so: with this flag its data files stay
    and only its log is cleaned."""
