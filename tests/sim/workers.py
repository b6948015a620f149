"""The processes of a campaign: forked when everything is imported, and used for all of its stories."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import Pool
from types import TracebackType
from typing import TypeVar

from tests.sim.garbage import collect_seldom

T = TypeVar("T")
W = TypeVar("W")
_LIFE = 60
"""Pieces of work of one process: 1,500 stories, after which it has less than 1 GB. Its garbage goes with it."""
_MODULES = ("story", "service_runs", "formats.iceberg", "formats.delta", "formats.paimon")


class Workers:
    """So many processes; with one, the work is done in this one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: Pool | None = None

    def __enter__(self) -> Workers:
        if self._count > 1:
            for name in _MODULES:  # once, instead of in each process: it takes as long as a hundred stories
                importlib.import_module(f"tests.sim.{name}")
            collect_seldom()
            self._pool = multiprocessing.get_context("fork").Pool(self._count, maxtasksperchild=_LIFE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def each(self, function: Callable[[W], T], work: Iterable[W]) -> Iterator[T]:
        """What it answers to each piece of work, in this order."""
        yield from map(function, work) if self._pool is None else self._pool.imap(function, work)
