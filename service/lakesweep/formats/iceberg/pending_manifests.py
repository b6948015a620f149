"""Manifests that Flink has written and not yet committed: only a job's own state knows them, and what they list.

A job writes one at each checkpoint, commits what it lists at the next, and deletes it. While a job is down its last one
lies there, and it may be the only trace of the job: before the first commit no snapshot does.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import streams
from lakesweep.formats.iceberg import decode, layout
from lakesweep.formats.iceberg.metadata import TableMetadata
from lakesweep.formats.iceberg.other_histories import Listed, Stamp, stamps
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage

log = structlog.get_logger()


class PendingManifests:
    """Those of one table, looked for once: what is written later is young by any rule."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._found: tuple[Location, ...] | None = None
        self._listed: dict[Location, tuple[str, ...]] = {}

    async def find(self, metadata: TableMetadata, tenant_root: Location) -> tuple[str | None, Listed]:
        """List the places where they lie. Returns the stream that one of them is named after, and the metadata files
        that were listed with them, if this call listed anything."""
        listed: dict[Location, tuple[Stamp, ...]] = {}
        if self._found is None:
            found: list[Location] = []
            for place in layout.pending_places(metadata, tenant_root):
                beside: dict[str, Stamp] = {}
                async with aclosing(self._storage.list(place)) as pages:
                    async for page in pages:
                        found += [Location.parse(path) for path in page.column("path").to_pylist() if _stream(path)]
                        beside |= {stamp.path: stamp for stamp in stamps(page)}
                listed[place] = tuple(beside.values())
            self._found = tuple(found)
        return (_stream(self._found[0].raw) if self._found else None), listed

    async def named(self) -> tuple[str, ...]:
        """What they list. It stays for as long as they do themselves."""
        wanted = [one for one in self._found or () if one not in self._listed]
        for one, paths in zip(wanted, await gather_bounded(wanted, self._read), strict=True):
            self._listed[one] = paths
        return tuple(dict.fromkeys(path for paths in self._listed.values() for path in paths))

    async def explain(self, target: Location) -> tuple[str, ...]:
        await self.named()
        key = target.match_key
        return tuple(
            f"{one} lists it: {_stream(one.raw)} wrote that manifest and may still commit it"
            for one, paths in self._listed.items()
            if any(_key(path) == key for path in paths)
        )

    async def _read(self, manifest: Location) -> tuple[str, ...]:
        """Nothing for one that is gone, or that is not whole: its job cannot go on from it either."""
        source = ReferenceSource(location=manifest, format=FormatName.ICEBERG, kind=decode.MANIFEST, retained=True)
        try:
            data = await self._storage.read(manifest)
            rows = await asyncio.to_thread(decode.decode, source, data)
        except NotFound:
            return ()
        except Unreadable as exc:
            log.warning("pending_manifest_unreadable", manifest=manifest.raw, why=exc.why)
            return ()
        return tuple(rows.column("path").to_pylist())


def _stream(path: str) -> str | None:
    return streams.pending_manifest(path.rpartition("/")[2])


def _key(path: str) -> str | None:
    place = Location.parse_or_none(path)
    return place.match_key if place else None
