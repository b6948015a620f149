"""When this process last got an answer from a store, a thread or Spark. The liveness probe uses it."""

from __future__ import annotations

import time

_last = time.monotonic()


def touch() -> None:
    global _last  # noqa: PLW0603  # one process has one liveness
    _last = time.monotonic()


def seconds_since() -> float:
    return time.monotonic() - _last
