"""`lakesweep demo`, and the lake it shows."""

from lakesweep.cli.demo.command import demo

__all__ = ["demo"]
