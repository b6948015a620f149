"""How Delta tables are opened; see `formats/registry.py`."""

from __future__ import annotations

from lakesweep.formats.delta import decode
from lakesweep.formats.delta.format import DeltaFormat
from lakesweep.formats.delta.options import DeltaOptions, VacuumMode
from lakesweep.formats.delta.table import DeltaTable
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.references import Decode


def open_dataset(spec: DatasetSpec, tools: Tools) -> DeltaFormat:
    """The tables below a directory."""
    options = DeltaOptions(vacuum_mode=VacuumMode(spec.vacuum_mode), has_shallow_clones=spec.has_shallow_clones)
    return DeltaFormat(spec, tools.storage, tools.clock, options, tidy=tools.tidy)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> DeltaTable:  # noqa: ARG001
    """A table owns nothing outside of its directory, whatever its root."""
    return DeltaTable(ref, place, tools.storage, tools.clock, tidy=tools.tidy)


def decoder() -> Decode:
    """Of checkpoints."""
    return decode.decode
