"""Disks that misbehave, made with mounts of this machine. Skips the test where mounting is not allowed."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_DISK_BYTES = 64 * 1024


@contextmanager
def full_disk(directory: Path) -> Iterator[Path]:
    """A small disk over `directory`, full; gives the file that fills it."""
    directory.mkdir(parents=True, exist_ok=True)
    with _mounted("-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(directory)):
        filler = directory / "filler"
        # Page by page: a service that runs may write to the new disk before it is full.
        with filler.open("wb") as file, suppress(OSError):
            while True:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), mmap.PAGESIZE)
        yield filler


@contextmanager
def undeletable(path: Path) -> Iterator[None]:
    """A file that nobody can remove, not even root: something is mounted on it."""
    with _mounted("--bind", str(path), str(path)):
        yield


@contextmanager
def _mounted(*arguments: str) -> Iterator[None]:
    mounted = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"may not mount here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)


@contextmanager
def second_name(directory: Path, other: Path) -> Iterator[None]:
    """The same directory under another name, by a bind mount."""
    other.mkdir(parents=True, exist_ok=True)
    with _mounted("--bind", str(directory), str(other)):
        yield
