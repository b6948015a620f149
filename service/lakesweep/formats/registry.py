"""The one list of table formats: how a dataset is opened, how a bare location is, and who decodes.

A new format is a line in `FORMATS`: where its package has these three. What a format needs is imported when one of its
tables is opened: some libraries take longer to import than a small table takes to plan.
"""

from __future__ import annotations

from contextlib import aclosing
from importlib import import_module
from typing import Protocol, cast

from lakesweep.formats import bounds, markers
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.formats.unpublished_files import Tidy
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import BARE_TENANT, FormatName, TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.table import Table, TableFormat

FORMATS = {
    FormatName.ICEBERG: "lakesweep.formats.iceberg.opening",
    FormatName.DELTA: "lakesweep.formats.delta.opening",
    FormatName.PAIMON: "lakesweep.formats.paimon.opening",
}

SURVEYED = markers.ICEBERG_SUFFIXES
"""How the names of files end that tell where other tables of a catalog are."""


class Opening(Protocol):
    """What a module of `FORMATS` has."""

    def open_dataset(self, spec: DatasetSpec, tools: Tools) -> TableFormat:
        """The way to one dataset's tables."""
        ...

    def open_table(self, ref: TableRef, place: Location, root: Location, tools: Tools) -> Table:
        """A table given as a place. Nothing outside `root` is touched."""
        ...

    def decoder(self) -> Decode:
        """Bytes to references."""
        ...


def open_format(
    spec: DatasetSpec,
    storage: Storage,
    clock: Clock,
    writer: Writer | None = None,
    tidy: Tidy | None = None,
    *,
    survey: Storage | None = None,
) -> TableFormat:
    """The way to one dataset's tables. Without a writer nothing can be committed by this process itself. `survey` reads
    where a catalog's other tables are, which may be outside of what `storage` reads."""
    tools = Tools(storage=storage, clock=clock, writer=writer, tidy=tidy, survey=survey)
    return _opening(spec.format).open_dataset(spec, tools)


def decoder(format: FormatName, *, max_bytes: int | None = None) -> Decode:
    """Bytes to references, for one format. `max_bytes` is storage.max_metadata_bytes, which workers elsewhere are told
    this way."""
    if max_bytes is not None:
        bounds.allow(max_bytes)
    return _opening(format).decoder()


async def open_location(
    location: Location,
    format: FormatName | None,
    storage: Storage,
    clock: Clock,
    root: Location | None = None,
    *,
    writer: Writer | None = None,
    tidy: Tidy | None = None,
) -> Table:
    """A table given as a place, its format detected unless it is named. Nothing outside `root` is touched."""
    found = format or await _detect(location, storage)
    ref = TableRef(tenant=BARE_TENANT, dataset=str(found), name=location.raw, format=found)
    tools = Tools(storage=storage, clock=clock, writer=writer, tidy=tidy)
    return _opening(found).open_table(ref, location, root or location, tools)


def _opening(format: FormatName) -> Opening:
    return cast("Opening", import_module(FORMATS[format]))


async def _detect(location: Location, storage: Storage) -> FormatName:
    if location.name.endswith(markers.ICEBERG_SUFFIXES):
        return FormatName.ICEBERG
    for marker in markers.MARKERS:
        if await _is_marked(storage, location, marker):
            return marker.format
    *most, last = (marker.shown for marker in markers.MARKERS)
    raise SettingsError(
        f"{location} is not a table: nothing is stored there {', '.join(most)}, or {last}; "
        "to clean many tables in one directory, configure a dataset"
    )


async def _is_marked(storage: Storage, location: Location, marker: markers.Marker) -> bool:
    for name in marker.directories:
        if not await _holds(storage, location.join(name), marker.suffixes):
            return False
    return True


async def _holds(storage: Storage, directory: Location, suffixes: tuple[str, ...]) -> bool:
    """Is there an object below `directory` whose name ends so (with no suffixes: any object)?"""
    async with aclosing(storage.list(directory.as_directory())) as batches:
        async for batch in batches:
            if any(not suffixes or path.endswith(suffixes) for path in batch.column("path").to_pylist()):
                return True
    return False
