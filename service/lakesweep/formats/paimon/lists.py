"""Manifest lists and manifests of one table, read from storage and checked. Reads only. Both are immutable, so what was
learnt of them is remembered while the table is open. Lengths and counts must be as recorded. What is gone raises
Vanished: whether that is damage or somebody else's expiry shows only when the table is looked at again."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.aio import gather_bounded
from lakesweep.formats import avro, reads
from lakesweep.formats.paimon import manifests
from lakesweep.formats.paimon.files import TableFiles, unreadable
from lakesweep.formats.paimon.manifests import ManifestMeta, ManifestRecord
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.storage import stat_or_none

T = TypeVar("T")
DECODERS = 2
"""Manifests decoded at one time besides what the engine does."""


class Vanished(Unreadable):
    """Something that a snapshot needs is gone. Look at the table again: the snapshot may have gone as well."""


class ListReader:
    """Reads lists and manifests."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._lists: dict[str, tuple[ManifestMeta, ...]] = {}
        self._known: manifests.Known = {}
        self._unmeasured: set[str] = set()
        self._net_rows: dict[str, int] = {}
        self._by_partition: dict[str, pa.Table] = {}

    async def manifests_of(self, snapshot: PaimonSnapshot) -> tuple[ManifestMeta, ...]:
        """The manifests of a snapshot that stays, base before delta, in order."""
        base = await self.manifest_list(snapshot, snapshot.base_list)
        found = (*base, *await self.manifest_list(snapshot, snapshot.delta_list))
        await self._check_rows(snapshot, found)
        return found

    async def records_of(self, snapshot: PaimonSnapshot) -> tuple[ManifestRecord, ...]:
        """The same with their whole records. Nothing of it is remembered."""
        found: list[ManifestRecord] = []
        for name in (snapshot.base_list, snapshot.delta_list):
            with _needed_by(snapshot):
                found += await self._parsed(name, snapshot.sizes.get(name), manifests.read_list_records)
        await self._check_rows(snapshot, found)
        return tuple(found)

    async def manifest_list(self, snapshot: PaimonSnapshot, name: str) -> tuple[ManifestMeta, ...]:
        """A list that must be readable as long as its snapshot stands."""
        with _needed_by(snapshot):
            return await self._of(snapshot, name)

    async def list_if_there(self, snapshot: PaimonSnapshot, name: str | None) -> tuple[ManifestMeta, ...]:
        """A list that may be gone. If it is there, it must be whole all the same."""
        try:
            return await self._of(snapshot, name) if name else ()
        except NotFound:
            return ()

    async def there(self, metas: Sequence[ManifestMeta]) -> tuple[ManifestMeta, ...]:
        """Those of some manifests that are stored. For what other tools may have begun to take away."""
        storage, place = self._files.storage, self._files.manifest
        return tuple(await reads.those_that(lambda meta: reads.is_there(storage, place(meta.name)), metas))

    async def table(self, meta: ManifestMeta, columns: Sequence[str]) -> pa.Table:
        data = await self.read_manifest(meta)
        try:
            return await asyncio.to_thread(manifests.read_columns, data, columns, expected=meta.entries)
        except (ValueError, pa.ArrowException) as exc:
            raise unreadable(self._files.manifest(meta.name), exc) from exc

    async def by_partition(self, meta: ManifestMeta) -> pa.Table:
        """What a manifest does to each partition; remembered, or others would always commit before a drop."""
        if meta.name not in self._by_partition:
            table = await self.table(meta, manifests.CHANGE_OF_PARTITION)
            self._by_partition[meta.name] = await asyncio.to_thread(manifests.by_partition, table)
        return self._by_partition[meta.name]

    async def read_manifest(self, meta: ManifestMeta) -> bytes:
        """The bytes of a manifest, as many as its list records."""
        return await self._bytes(self._files.manifest(meta.name), meta.size_bytes)

    async def read_index(self, name: str) -> list[manifests.IndexEntry]:
        """The entries of an index manifest that must be readable. Nothing records its length, so the store is asked:
        one cut behind a block names fewer files."""
        location = self._files.manifest(name)
        with reads.must_answer(location.raw):
            stored = await stat_or_none(self._files.storage, location)
        if stored is None:
            raise Vanished(location.raw, "it does not exist")
        data = await self._bytes(location, stored.size_bytes)
        try:
            return manifests.read_index(data)
        except (ValueError, KeyError, TypeError) as exc:
            raise unreadable(location, exc) from exc

    async def _bytes(self, location: Location, size: int | None) -> bytes:
        try:
            return await self._read(location, size)
        except NotFound as exc:
            raise Vanished(location.raw, exc.why) from exc

    async def _read(self, location: Location, size: int | None) -> bytes:
        data = await self._files.read_kept(location)
        if size is not None and len(data) != size:
            raise Unreadable(location.raw, f"it has {len(data)} bytes, but {size} are recorded")
        return data

    async def _of(self, snapshot: PaimonSnapshot, name: str) -> tuple[ManifestMeta, ...]:
        if name not in self._lists:
            parse = functools.partial(manifests.read_list, known=self._known)
            self._lists[name] = tuple(await self._parsed(name, snapshot.sizes.get(name), parse))
        found = self._lists[name]
        if not found and name == snapshot.changelog_list and snapshot.document.get("changelogRecordCount"):
            raise Unreadable(self._files.manifest(name).raw, "it is empty, but its snapshot has changes: truncated")
        return found

    async def _parsed(self, name: str, size: int | None, parse: Callable[[bytes], list[T]]) -> list[T]:
        location = self._files.manifest(name)
        try:
            data = await self._read(location, size)
            found = parse(data)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as exc:
            raise unreadable(location, exc) from exc
        if size is None and data[:4] == avro.MAGIC:
            self._unmeasured.add(name)
        else:
            self._unmeasured.discard(name)
        return found

    async def _check_rows(self, snapshot: PaimonSnapshot, found: Sequence[ManifestMeta]) -> None:
        """A list of unrecorded length that was cut behind a block looks whole: the snapshot's row count shows it."""
        total = snapshot.document.get("totalRecordCount")
        if total is None or not self._unmeasured & {snapshot.base_list, snapshot.delta_list}:
            return
        unread = [meta for meta in found if meta.name not in self._net_rows]
        self._net_rows.update(await gather_bounded(unread, self._rows_of, limit=DECODERS))
        rows = sum(self._net_rows[meta.name] for meta in found)
        if rows != total:
            raise Unreadable(
                snapshot.location.raw, f"it counts {total} rows, its manifests {rows}: a manifest list is truncated"
            )

    async def _rows_of(self, meta: ManifestMeta) -> tuple[str, int]:
        table = await self.table(meta, ("kind", "rows"))
        return meta.name, pc.sum(pc.multiply(table.column("rows"), manifests.signs(table))).as_py() or 0


@contextmanager
def _needed_by(snapshot: PaimonSnapshot) -> Iterator[None]:
    try:
        yield
    except NotFound as exc:
        raise Vanished(exc.address, f"{exc.why}, but {snapshot.label} needs it") from exc
