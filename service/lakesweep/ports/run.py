"""What a run gets from whoever started it: proof that the table is still its own, slots, and a progress line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol


class Slots(Protocol):
    """Room for so many at once, like an asyncio.Semaphore."""

    def locked(self) -> bool:
        """Would `acquire` have to wait?"""
        ...

    async def acquire(self) -> bool:
        """Take a place, once there is one."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Fence(Protocol):
    """Proof, asked for before every commit and every batch, that the table is still ours."""

    async def check(self) -> None:
        """Raise LeaseLost if it is not."""
        ...

    def check_time(self) -> None:
        """The same by our own clock, one that goes on while the machine sleeps, and without waiting for anything:
        asked with a request in hand. Raise LeaseLost if the lease has ended, or was known to be lost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A step of a cycle, for progress bars and logs."""

    phase: str
    done: int = 0
    total: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)


ReportProgress = Callable[[Progress], None]
