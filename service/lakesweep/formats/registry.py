"""The one list of table formats: how a dataset is opened, how a bare location is, and who decodes.

A new format is a line in each of the three functions and a sign in `_detect`. What a format needs is imported when
one of its tables is opened: some libraries take longer to import than a small table takes to plan.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import assert_never

from lakesweep.formats import bounds
from lakesweep.formats.delta.options import DeltaOptions, VacuumMode
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES
from lakesweep.formats.spec import DatasetSpec
from lakesweep.formats.unpublished_files import LeaveAll, Tidy
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import BARE_TENANT, FormatName, TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.table import Table, TableFormat

SURVEYED = METADATA_SUFFIXES
"""How the names of files end that tell where other tables of a catalog are."""


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
    match spec.format:
        case FormatName.ICEBERG:
            from lakesweep.formats.iceberg.format import IcebergFormat  # noqa: PLC0415 - see above

            return IcebergFormat(spec, storage, writer, survey)
        case FormatName.DELTA:
            from lakesweep.formats.delta.format import DeltaFormat  # noqa: PLC0415 - see above

            options = DeltaOptions(vacuum_mode=VacuumMode(spec.vacuum_mode), has_shallow_clones=spec.has_shallow_clones)
            return DeltaFormat(spec, storage, clock, options, tidy=tidy)
        case FormatName.PAIMON:
            from lakesweep.formats.paimon.warehouse import PaimonFormat  # noqa: PLC0415 - see above

            return PaimonFormat(spec, storage, writer, tidy)
        case _:
            assert_never(spec.format)


def decoder(format: FormatName, *, max_bytes: int | None = None) -> Decode:
    """Bytes to references, for one format. `max_bytes` is storage.max_metadata_bytes, which workers elsewhere are told
    this way."""
    if max_bytes is not None:
        bounds.allow(max_bytes)
    match format:
        case FormatName.ICEBERG:
            from lakesweep.formats.iceberg import decode as iceberg  # noqa: PLC0415 - see above

            return iceberg.decode
        case FormatName.DELTA:
            from lakesweep.formats.delta import decode as delta  # noqa: PLC0415 - see above

            return delta.decode
        case FormatName.PAIMON:
            from lakesweep.formats.paimon import decode as paimon  # noqa: PLC0415 - see above

            return paimon.decode
        case _:
            assert_never(format)


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
    match found:
        case FormatName.ICEBERG:
            from lakesweep.formats.iceberg.metadata_source import BareSource  # noqa: PLC0415 - see above
            from lakesweep.formats.iceberg.table import IcebergTable  # noqa: PLC0415 - see above

            return IcebergTable(ref, BareSource(location=location, storage=storage), storage, root or location)
        case FormatName.DELTA:
            from lakesweep.formats.delta.table import DeltaTable  # noqa: PLC0415 - see above

            return DeltaTable(ref, location, storage, clock, tidy=tidy)
        case FormatName.PAIMON:
            from lakesweep.formats.paimon.table import PaimonTable  # noqa: PLC0415 - see above

            return PaimonTable(
                ref=ref,
                location=location,
                storage=storage,
                tenant_root=root or location,
                writer=writer,
                tidy=tidy or LeaveAll(),
            )
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
        f"{location} is not a table: nothing is stored there in _delta_log/, in schema/ and snapshot/, or as "
        "metadata/*.metadata.json; to clean many tables in one directory, configure a dataset"
    )


async def _holds(storage: Storage, directory: Location, suffixes: tuple[str, ...]) -> bool:
    """Is there an object below `directory` whose name ends so (with no suffixes: any object)?"""
    async with aclosing(storage.list(directory.as_directory())) as batches:
        async for batch in batches:
            if any(not suffixes or path.endswith(suffixes) for path in batch.column("path").to_pylist()):
                return True
    return False
