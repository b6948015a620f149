"""Options for local disks."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.model.files import AgeBy


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How files on local disks are judged."""

    age_by: AgeBy = AgeBy.CHANGE
    counted: bool = True
    """Whether calls count as requests of the run that makes them. Those for the service's own files do not."""
