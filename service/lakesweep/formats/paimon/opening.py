"""How Paimon tables are opened; see `formats/registry.py`."""

from __future__ import annotations

from lakesweep.formats.paimon import decode
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.paimon.warehouse import PaimonFormat
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.formats.unpublished_files import LeaveAll
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.references import Decode


def open_dataset(spec: DatasetSpec, tools: Tools) -> PaimonFormat:
    """The tables of a warehouse."""
    return PaimonFormat(spec, tools.storage, tools.writer, tools.tidy)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> PaimonTable:
    """Its external paths are looked at inside the root only."""
    return PaimonTable(
        ref=ref,
        location=place,
        storage=tools.storage,
        tenant_root=root,
        writer=tools.writer,
        tidy=tools.tidy or LeaveAll(),
    )


def decoder() -> Decode:
    """Of manifests."""
    return decode.decode
