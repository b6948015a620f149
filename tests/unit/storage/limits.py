"""What this process has open, how much more it may open, and what it may read."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import contextmanager
from pathlib import Path


def open_files() -> int:
    """Whatever nobody holds any more is closed first."""
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


@contextmanager
def handles_left(count: int):
    """Let this process open only so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/", os.O_RDONLY)]
    # Fill the gaps below the highest one, so that the limit says exactly how many are left.
    highest = max(int(path.name) for path in Path("/dev/fd").iterdir())
    while taken[-1] <= highest:
        taken.append(os.open("/", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in taken:
            os.close(handle)


@contextmanager
def unprivileged():
    """Root may read everything, so the question only arises for others."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
