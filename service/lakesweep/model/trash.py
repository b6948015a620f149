"""Where files are that were moved instead of deleted. Pure.

A file's address in the trash keeps its name: `<trash>/<run id>/<path relative to the root>`. So the address alone shows
where a file came from and which run moved it."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

TRASH_NAME = ".lakesweep-trash"
"""Hidden: no format looks for tables or files below such a name."""


def default_trash(root: Location) -> Location:
    return root.join(TRASH_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrash:
    """What one run moves, and where to."""

    place: Location
    root: Location
    """The tenant's root: addresses in the trash are relative to it."""
    run_id: str

    @property
    def directory(self) -> Location:
        return self.place.join(self.run_id).as_directory()

    def address(self, path: str) -> str:
        """The address in the trash of the file at this address. Names are kept byte for byte."""
        found = Location.parse(path)
        if not self.root.contains(found):
            raise Refused(
                RefusalCode.OUTSIDE_ROOT, f"{path} is outside the tenant's root {self.root}; nothing was moved"
            )
        return _below(self.directory, found.path[len(self.root.as_directory().path) :])

    def origin(self, address: str) -> str:
        """The original address of a file at this address in the trash."""
        found = Location.parse(address)
        if not self.directory.contains(found):
            raise Refused(
                RefusalCode.OUTSIDE_ROOT, f"{address} is not in the trash of run {self.run_id}; nothing was moved"
            )
        return _below(self.root.as_directory(), found.path[len(self.directory.path) :])


def _below(directory: Location, relative: str) -> str:
    return Location(directory.scheme, directory.authority, directory.path + relative).raw
