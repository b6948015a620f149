"""Iceberg metadata right at the root of a Delta table: the files that it names stay. Reads only.

UniForm leaves such metadata behind when it is switched off, and an Iceberg table of its own may share the place;
nothing distinguishes the two reliably. So what the newest Iceberg metadata names, in any of its snapshots, is kept as
if the Delta log named it. Metadata that cannot be read may name anything, so it stops the table. A named file that does
not exist, under any name that the root may have, protects nothing. But a commit may have deleted it while we were
reading, and then the metadata of that commit counts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakesweep.aio import gather_bounded
from lakesweep.formats import markers, reads
from lakesweep.formats.delta import paths
from lakesweep.formats.delta.actions import place_addresses
from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.decode import ManifestRow
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, plain_text
from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage

DIRECTORY = markers.ICEBERG_METADATA
_NUMBER = re.compile(r"v(\d+)\.|(\d+)-[0-9a-f]{8}-")
"""How file systems and how catalogs count. A bare uuid, which may begin with digits as well, counts nothing."""
_NEWEST = 2
"""The newest file may be of a commit that never happened: then the one before it is the current one."""
_ATTEMPTS = 3
_STATISTICS = ("statistics", "partition-statistics")
_FORMAT_VERSIONS = (1, 2, 3)


class UniformMetadata:
    """Reads what Iceberg metadata beside a Delta log names. Manifests never change: each is read once."""

    def __init__(self, storage: Storage, root: Location) -> None:
        self._storage = storage
        self._root = root
        self._known: dict[str, frozenset[str]] = {}
        self._met_gone = False
        """Has the present reading come upon a file that is not there?"""

    async def named(self) -> frozenset[str]:
        """Addresses below the root that Iceberg metadata names. Raises Indeterminate."""
        for _ in range(_ATTEMPTS):
            self._met_gone = False
            newest = await self.newest()
            found = await self._named_by(newest)
            if not self._met_gone or await self.newest() == newest:
                return found
        raise Unreadable(self._root.join(DIRECTORY).raw, "Iceberg commits remove files faster than they can be read")

    async def _named_by(self, newest: list[Location]) -> frozenset[str]:
        lists: dict[str, dict[str, str]] = {}
        manifests: dict[str, ManifestRow] = {}
        statistics: set[str] = set()
        for place, document in zip(newest, await gather_bounded(newest, self._metadata), strict=True):
            try:
                for snapshot in document.get("snapshots") or ():
                    # Version 1 may name manifests itself: nothing counts their entries.
                    manifests |= {path: ManifestRow(path) for path in snapshot.get("manifests") or ()}
                    if "manifest-list" in snapshot:  # one that was cut off falls short of what its snapshot counts
                        counts = (snapshot.get("summary") or {}).items()
                        lists[snapshot["manifest-list"]] = {name: str(value) for name, value in counts}
                statistics.update(one["statistics-path"] for kind in _STATISTICS for one in document.get(kind) or ())
            except (AttributeError, KeyError, TypeError) as exc:
                raise Unreadable(place.raw, f"Iceberg metadata of an unknown shape: {exc!r}") from exc
        for found in await gather_bounded(sorted(lists.items()), self._manifests_in):
            manifests |= {row.path: row for row in found}
        fresh = [row for path, row in sorted(manifests.items()) if path not in self._known]
        read = await gather_bounded(fresh, self._data_files_in)
        self._known.update(zip((row.path for row in fresh), read, strict=True))
        return self._addresses(statistics).union(*(self._known[manifest] for manifest in manifests))

    async def newest(self) -> list[Location]:
        """The metadata files that may be the current one: those of the newest versions, those written last, since a
        table that was made anew counts from the beginning, and any without a number."""
        directory = self._root.join(DIRECTORY).as_directory()
        await reads.refuse_irregular(self._storage, directory)
        found: dict[str, datetime | None] = dict(await reads.collect(self._storage, directory, _paths_and_times))
        names = {path: path[len(directory.raw) :] for path in found if path.endswith(METADATA_SUFFIXES)}
        versions = {path: _version(name) for path, name in names.items() if "/" not in name}
        counted = sorted({one for one in versions.values() if one is not None}, reverse=True)
        newest = {one for style in (1, 2) for one in [one for one in counted if one[0] == style][:_NEWEST]}
        last = sorted(versions, key=lambda path: found[path] or datetime.max.replace(tzinfo=UTC), reverse=True)
        chosen = {path for path, one in versions.items() if one is None or one in newest}
        return [Location.parse(path) for path in sorted(chosen.union(last[:_NEWEST]))]

    async def _metadata(self, place: Location) -> dict[str, Any]:
        try:
            with reads.or_stop(place.raw):
                data = await self._storage.read(place)
            document = parse_json(plain_text(data))
        except NotFound:
            self._met_gone = True
            return {}
        except (ValueError, OSError, EOFError) as exc:
            raise Unreadable(place.raw, f"not Iceberg metadata: {exc}") from exc
        if not isinstance(document, dict) or document.get("format-version") not in _FORMAT_VERSIONS:
            raise Unreadable(place.raw, "not Iceberg metadata of a supported version")
        return document

    async def _manifests_in(self, of_snapshot: tuple[str, dict[str, str]]) -> tuple[ManifestRow, ...]:
        address, counts = of_snapshot
        found = await self._read(address)
        return await asyncio.to_thread(decode.decode_list, found[0].raw, found[1], counts) if found else ()

    async def _data_files_in(self, manifest: ManifestRow) -> frozenset[str]:
        found = await self._read(manifest.path)
        if found is None:
            return frozenset()
        place, data = found
        source = ReferenceSource(
            location=place,
            format=FormatName.ICEBERG,
            kind=decode.MANIFEST,
            retained=True,
            size_bytes=manifest.length,
            entries=manifest.entries,
        )
        files = await asyncio.to_thread(decode.decode, source, data)
        return self._addresses(files.column("path").to_pylist())

    def _addresses(self, spelled: Iterable[str]) -> frozenset[str]:
        places = [paths.place(path, self._root) for path in spelled]
        return frozenset(address for place in places for address in (*place_addresses(place), *place.aliases))

    async def _read(self, address: str) -> tuple[Location, bytes] | None:
        """A file that Iceberg spells, and where it is; None if it is gone. Outside the root it is looked for below the
        root first: it may be one of ours, seen through another name of the root."""
        for spelled in (*paths.place(address, self._root).aliases, address):
            try:
                place = Location.parse(spelled)
                with reads.or_stop(place.raw):
                    return place, await self._storage.read(place)
            except NotFound:
                continue
            except ValueError as exc:
                raise Unreadable(address, f"not an address: {exc}") from exc
        self._met_gone = True
        return None


def _paths_and_times(page: pa.RecordBatch) -> Iterable[tuple[str, datetime | None]]:
    return zip(*(page.column(name).to_pylist() for name in ("path", "modified_at")), strict=True)


def _version(name: str) -> tuple[int, int] | None:
    found = _NUMBER.match(name)
    style = found.lastindex if found else None
    return (style, int(found[style])) if found and style else None
