"""The inner loops over Avro bytes: compiled in `_avro`, or in plain Python if that is missing. Same results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakesweep.telemetry import compiled

if TYPE_CHECKING or compiled.is_there("lakesweep.formats._avro"):
    from lakesweep.formats._avro import Block, ContainerError, Kind, Op, Reader, read_long, step
else:
    from lakesweep.formats.avro_plain import Block, ContainerError, Kind, Op, Reader, read_long, step

__all__ = ["Block", "ContainerError", "Kind", "Op", "Reader", "read_long", "step"]
