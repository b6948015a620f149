"""Directories and files of the service itself. Plans, journals and the audit trail name every file of every tenant, so
nobody else on the machine may read or change them. Never used for a table's own files: other programs read those."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger()

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def make_directory(path: Path) -> None:
    """Make a directory that only this user may enter. An existing one keeps its mode; one open to all is logged."""
    try:
        path.mkdir(parents=True, mode=DIRECTORY_MODE)
    except FileExistsError:
        if path.is_dir() and stat.S_IMODE(path.stat().st_mode) & 0o002:
            log.warning("directory_open_to_others", path=str(path), hint=f"chmod 700 {path}")


def make_file(path: Path) -> None:
    """Make an empty file that only this user may read, unless it exists. If that fails, opening it reports why."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
