"""The one list of table formats: how a dataset is opened, how a bare location is, and who decodes.

A new format is a line in each of the three functions and a sign in `_detect`.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import assert_never

from lakesweep.cleanup.ports import Clock, Decode, Storage, Table, TableFormat, Writer
from lakesweep.formats.iceberg import decode as iceberg_decode
from lakesweep.formats.iceberg.format import IcebergFormat
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES
from lakesweep.formats.iceberg.source import BareSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId

BARE_TENANT = TenantId("location")
"""The tenant of tables that are given as a location only."""


def open_format(spec: DatasetSpec, storage: Storage, clock: Clock, writer: Writer | None = None) -> TableFormat:  # noqa: ARG001
    """The way to one dataset's tables. Without a writer nothing can be committed by this process itself."""
    match spec.format:
        case FormatName.ICEBERG:
            return IcebergFormat(spec, storage, writer)
        case FormatName.PAIMON | FormatName.DELTA:
            raise _not_there(spec.format)
        case _:
            assert_never(spec.format)


def decoder(format: FormatName) -> Decode:
    """Bytes to references, for one format."""
    match format:
        case FormatName.ICEBERG:
            return iceberg_decode.decode
        case FormatName.PAIMON | FormatName.DELTA:
            raise _not_there(format)
        case _:
            assert_never(format)


async def open_location(
    location: Location,
    format: FormatName | None,
    storage: Storage,
    clock: Clock,  # noqa: ARG001
    root: Location | None = None,
) -> Table:
    """A table given as a place, its format detected unless it is named. Nothing outside `root` is touched."""
    found = format or await _detect(location, storage)
    ref = TableRef(tenant=BARE_TENANT, dataset=str(found), name=location.raw, format=found)
    match found:
        case FormatName.ICEBERG:
            return IcebergTable(ref, BareSource(location=location, storage=storage), storage, root or location)
        case FormatName.PAIMON | FormatName.DELTA:
            raise _not_there(found)
        case _:
            assert_never(found)


async def _detect(location: Location, storage: Storage) -> FormatName:
    if location.name.endswith(METADATA_SUFFIXES):
        return FormatName.ICEBERG
    if await _holds(storage, location.join("_delta_log"), (".json", ".parquet")):
        return FormatName.DELTA
    if await _holds(storage, location.join("schema"), ()) and await _holds(storage, location.join("snapshot"), ()):
        return FormatName.PAIMON
    if await _holds(storage, location.join("metadata"), METADATA_SUFFIXES):
        return FormatName.ICEBERG
    raise SettingsError(
        f"{location} is no table: it has neither _delta_log/, nor schema/ and snapshot/, nor metadata/*.metadata.json"
    )


async def _holds(storage: Storage, directory: Location, suffixes: tuple[str, ...]) -> bool:
    """Is there an object below `directory` whose name ends so (with no suffixes: any object)?"""
    async with aclosing(storage.list(directory.as_directory())) as batches:
        async for batch in batches:
            if any(not suffixes or path.endswith(suffixes) for path in batch.column("path").to_pylist()):
                return True
    return False


def _not_there(format: FormatName) -> SettingsError:
    return SettingsError(f"tables of format {format} are not supported by this version")
