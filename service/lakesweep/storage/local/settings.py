"""The settings `[storage.local]`."""

from __future__ import annotations

from lakesweep.model.files import AgeBy
from lakesweep.settings.values import Group
from lakesweep.storage.local.options import LocalOptions


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
