"""A directory for one plan's intermediate files, removed when the plan is done, whatever happens.

A killed process leaves its directory behind. The next process to create one finds it by its lock, which died with its
owner, and removes it.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

_PREFIX = "plan-"
_LOCK = ".lock"


@asynccontextmanager
async def scratch(parent: Path) -> AsyncIterator[Path]:
    """An empty directory below `parent` for as long as the block runs."""
    directory = parent / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = await asyncio.to_thread(_make, directory)
    try:
        yield directory
    finally:
        await asyncio.to_thread(_remove, directory, lock)


def _make(directory: Path) -> TextIO:
    directory.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(directory.parent)
    lock = directory.with_suffix(_LOCK).open("x")
    # The lock comes before the directory: no directory exists without a live owner's lock.
    fcntl.flock(lock, fcntl.LOCK_EX)
    directory.mkdir()
    return lock


def _remove(directory: Path, lock: TextIO) -> None:
    with lock:
        shutil.rmtree(directory, ignore_errors=True)
        directory.with_suffix(_LOCK).unlink(missing_ok=True)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*{_LOCK}"):
        # An OSError here means that the lock is held, or that another process was faster.
        with suppress(OSError), path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
