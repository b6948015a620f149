"""Directory walking and unlinking: compiled in `_walk` and `_unlink`, or in plain Python with the same results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakesweep.telemetry import compiled

if TYPE_CHECKING or compiled.is_there("lakesweep.storage.local._unlink"):
    from lakesweep.storage.local._unlink import ANOTHER_FILE, NOT_A_FILE, NOT_TRIED, remove, steady_ns
else:
    from lakesweep.storage.local.unlink_plain import ANOTHER_FILE, NOT_A_FILE, NOT_TRIED, remove, steady_ns

if TYPE_CHECKING or compiled.is_there("lakesweep.storage.local._walk"):
    from lakesweep.storage.local._walk import Reader, Rows, Tree, open_directory
else:
    from lakesweep.storage.local.walk_plain import Reader, Rows, Tree, open_directory

__all__ = ["ANOTHER_FILE", "NOT_A_FILE", "NOT_TRIED", "Reader", "Rows", "Tree", "open_directory", "remove", "steady_ns"]
