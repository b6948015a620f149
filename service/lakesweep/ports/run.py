"""What a run gets from its caller: a fence that proves its lease, slots, and a progress line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol


class Slots(Protocol):
    """A limit on concurrency, like an asyncio.Semaphore."""

    def locked(self) -> bool:
        """Would `acquire` have to wait?"""

    async def acquire(self) -> bool:
        """Wait for a slot and take it."""

    def release(self) -> None:
        """Return the slot."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Fence(Protocol):
    """Checked before every commit and every batch: does this process still own the table?"""

    @property
    def token(self) -> int:
        """The fencing token of the lease. Every batch is journaled with it, and those of an older token are void."""

    async def check(self) -> None:
        """Raise LeaseLost if it does not."""

    def check_time(self) -> None:
        """The same by a local clock that keeps running while the machine sleeps, and without waiting: called with a
        request ready. Raises LeaseLost if the lease has ended, or is known to be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A step of a cycle, for progress bars and logs."""

    phase: str
    done: int = 0
    total: int | None = None


ReportProgress = Callable[[Progress], None]
