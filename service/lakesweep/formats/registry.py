"""The one list of table formats: how a dataset is opened, how a bare location is, and who decodes. A new format is a
line in `FORMATS`: where its package has these three. What a format needs is imported when one of its tables is opened:
some libraries take longer to import than a small table takes to plan."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from lakesweep.formats import bounds, markers, reads
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import BARE_TENANT, FormatName, TableRef
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Table, TableFormat

FORMATS = {
    FormatName.ICEBERG: "lakesweep.formats.iceberg.format",
    FormatName.DELTA: "lakesweep.formats.delta.format",
    FormatName.PAIMON: "lakesweep.formats.paimon.warehouse",
}
_DECODERS = {FormatName.ICEBERG: "lakesweep.formats.iceberg.decode"}
"""Where `decoder` is, if not in the module above. Spark's workers decode and open no catalog: without pyiceberg each
saves 0.3 CPU seconds and 16 MB."""

_PLAIN_FILES = (".parquet", ".orc", ".avro", ".csv", ".json")
"""What a directory of plain files holds; `_SUCCESS` and the like may lie beside them."""


class Opening(Protocol):
    """What a module of `FORMATS` has."""

    def open_dataset(self, spec: DatasetSpec, tools: Tools) -> TableFormat: ...

    def open_table(self, ref: TableRef, place: Location, root: Location, tools: Tools) -> Table:
        """A table given as a place. Nothing outside `root` is touched."""


class Decoding(Protocol):
    """What such a module has too, or the one of `_DECODERS`."""

    def decoder(self) -> Decode: ...


def open_format(spec: DatasetSpec, tools: Tools) -> TableFormat:
    """The way to one dataset's tables."""
    return _opening(spec.format).open_dataset(spec, tools)


def decoder(format: FormatName, *, max_bytes: int | None = None) -> Decode:
    """Bytes to references, for one format. `max_bytes` is storage.max_metadata_bytes, for workers on other machines."""
    if max_bytes is not None:
        bounds.allow(max_bytes)
    return cast("Decoding", import_module(_DECODERS.get(format, FORMATS[format]))).decoder()


async def open_location(
    location: Location, format: FormatName | None, tools: Tools, root: Location | None = None
) -> Table:
    """A table given as a place, its format detected unless it is named. Nothing outside `root` is touched."""
    found = format or await _detect(location, tools.storage)
    ref = TableRef(tenant=BARE_TENANT, dataset=str(found), name=location.raw, format=found)
    return _opening(found).open_table(ref, location, root or location, tools)


def _opening(format: FormatName) -> Opening:
    return cast("Opening", import_module(FORMATS[format]))


async def _detect(location: Location, storage: Storage) -> FormatName:
    if location.name.endswith(markers.ICEBERG_SUFFIXES):
        return FormatName.ICEBERG
    for marker in markers.MARKERS:
        if await _is_marked(storage, location, marker):
            return marker.format
    raise SettingsError(f"{location} {await _why_no_table(location, storage)}")


async def _why_no_table(location: Location, storage: Storage) -> str:
    if await _holds(storage, location.join(markers.HUDI), ()):
        return "is a Hudi table: Lakesweep cleans Iceberg, Paimon and Delta tables"
    first = await _first_names(storage, location)
    if not first:
        if location.is_local and not await asyncio.to_thread(Path(location.path).exists):
            return "is not a table: there is no such directory"
        if location.is_local and await asyncio.to_thread(Path(location.path).is_file):
            return "is not a table but a file: give the directory of the table"
        return "is not a table: nothing is stored there" + (
            "" if location.is_local else "; check the bucket and prefix"
        )
    if all(name.endswith(_PLAIN_FILES) or name.rpartition("/")[2].startswith(("_", ".")) for name in first):
        return (
            "contains plain data files and no table's metadata: nothing says which of them are in use, so nothing can "
            "be cleaned there"
        )
    *most, last = (marker.shown for marker in markers.MARKERS)
    return (
        f"is not a table: nothing is stored there {', '.join(most)}, or {last}; "
        "to clean many tables in one directory, configure a dataset"
    )


async def _first_names(storage: Storage, location: Location) -> list[str]:
    async with aclosing(storage.list(location.as_directory())) as batches:
        async for batch in batches:
            if batch.num_rows:
                return [str(name) for name in batch.column("path").slice(0, 1000).to_pylist()]
    return []


async def _is_marked(storage: Storage, location: Location, marker: markers.Marker) -> bool:
    for name in marker.directories:
        if not await _holds(storage, location.join(name), marker.suffixes):
            return False
    return True


async def _holds(storage: Storage, directory: Location, suffixes: tuple[str, ...]) -> bool:
    """Is there an object below `directory` whose name ends so (with no suffixes: any object)?"""

    def has_suffix(page: pa.RecordBatch) -> bool:
        return any(not suffixes or path.endswith(suffixes) for path in page.column("path").to_pylist())

    return await reads.any_page(storage, directory.as_directory(), has_suffix)
