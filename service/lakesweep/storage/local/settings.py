"""The settings `[storage.local]`, and the options that local disks are opened with."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.model.files import AgeBy
from lakesweep.settings.values import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How files on local disks are judged."""

    age_by: AgeBy = AgeBy.CHANGE
    counted: bool = True
    """Whether calls count as requests of the run that makes them. Those for the service's own files do not."""


class LocalSettings(Group):
    """`[storage.local]`: files on this machine's disks and mounts."""

    age_by: AgeBy = AgeBy.CHANGE
    """How old a file is: `change` counts from the later of its modification and its last change of status (mtime,
    ctime), since `mv`, `cp -p`, `rsync -a` and restores create files with an old mtime; `modification` counts from the
    mtime alone, for tests, demos and file systems whose ctime means nothing."""

    def options(self) -> LocalOptions:
        return LocalOptions(age_by=self.age_by)

    @property
    def identity(self) -> str:
        """Every process sees the same disks."""
        return ""
