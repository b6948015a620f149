"""Every I/O call of a cycle, counted, and one of them made to fail or to be the last: before its effect or after it.

Real adapters underneath; nothing of the product is replaced. `Killed` is no Exception, so nothing in the product
can catch it: it stands for the process dying at that very call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakesweep.model.errors import StateError, Unavailable

READS = ("list", "read", "stat", "stat_together", "now")


class Killed(BaseException):
    """The process is gone."""


@dataclass(kw_only=True)
class Faults:
    """Raises at call number `at`, counted over all wrapped adapters. `at=None` only counts."""

    at: int | None = None
    kill: bool = False
    after: bool = False
    """Let the call have its effect first: a lost answer, or a crash right behind it."""
    before: Callable[[int], None] | None = None
    """Somebody else acts right before a call; gets the call's number."""
    calls: list[str] = field(default_factory=list)

    def wrap(self, inner: Any, error: Callable[[], Exception], **overrides: Any) -> Any:
        """The adapter with every async method counted."""
        return _Wrapped(inner, self, error, overrides)

    def storage(self, inner: Any, **overrides: Any) -> Any:
        return self.wrap(inner, lambda: Unavailable("storage", "injected"), **overrides)

    def state(self, inner: Any) -> Any:
        return self.wrap(inner, lambda: StateError("injected"))

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        if not after:
            self.calls.append(name)
            if self.before is not None:
                self.before(len(self.calls) - 1)
        if self.at is not None and len(self.calls) - 1 == self.at and self.after == after:
            if not after or self.at >= 0:
                self.at = None
            raise Killed(name) if self.kill else error()


class _Wrapped:
    def __init__(self, inner: Any, faults: Faults, error: Callable[[], Exception], overrides: dict[str, Any]) -> None:
        self._inner, self._faults, self._error, self._overrides = inner, faults, error, overrides

    def __getattr__(self, name: str) -> Any:
        if name in self._overrides:
            return self._overrides[name]
        member = getattr(self._inner, name)
        if not callable(member) or name in ("aclose",):
            return member
        if name == "list":
            return self._listing(member)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._faults.hit(name, self._error, after=False)
            answer = await member(*args, **kwargs)
            self._faults.hit(name, self._error, after=True)
            return answer

        return call

    def _listing(self, member: Any) -> Any:
        async def pages(root: Any) -> Any:
            self._faults.hit("list", self._error, after=False)
            async for page in member(root):
                yield page
            self._faults.hit("list", self._error, after=True)

        return pages
