"""How Iceberg tables are opened; see `formats/registry.py`."""

from __future__ import annotations

from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.format import IcebergFormat
from lakesweep.formats.iceberg.metadata_source import BareSource
from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.references import Decode


def open_dataset(spec: DatasetSpec, tools: Tools) -> IcebergFormat:
    """The tables of a catalog."""
    return IcebergFormat(spec, tools.storage, tools.writer, tools.survey)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> IcebergTable:
    """A table without a catalog: it can be planned, not cleaned."""
    return IcebergTable(ref, BareSource(location=place, storage=tools.storage), tools.storage, root)


def decoder() -> Decode:
    """Of manifests."""
    return decode.decode
