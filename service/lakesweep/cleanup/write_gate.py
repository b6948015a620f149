"""Confine writing like deleting: only inside a table's own roots, whatever its metadata says."""

from __future__ import annotations

from collections.abc import Sequence

from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.storage import Writer


def check_inside(location: Location, roots: Sequence[Location]) -> None:
    if not any(root.contains(location) for root in roots):
        allowed = ", ".join(root.raw for root in roots) or "none"
        raise Refused(
            RefusalCode.OUTSIDE_ROOT, f"{location} is outside the table's roots ({allowed}); nothing was written"
        )


class GatedWriter:
    """A Writer for one table."""

    def __init__(self, inner: Writer, roots: Sequence[Location]) -> None:
        self._inner = inner
        self._roots = tuple(roots)

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        check_inside(location, self._roots)
        await self._inner.put(location, data, create_only=create_only)

    async def aclose(self) -> None:
        await self._inner.aclose()
