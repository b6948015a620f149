"""Which data files make up an inventory, and when it was made. Small reads only: manifests and one listing.

An address is a manifest of S3 Inventory, a Parquet file, or a folder. In a folder the newest complete S3 Inventory is
taken, that is one whose manifest has its checksum beside it, which S3 writes last; without any, all Parquet files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.engine import Inventory
from lakesweep.ports.storage import Storage, stat_or_none

_MANIFEST = "manifest.json"
_CHECKSUM = "manifest.checksum"
_DATED = re.compile(r"^\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z$")
_COLUMN = re.compile(r"(?:optional|required)\s+\w+\s+(\w+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(StrEnum):
    """How the data files are written."""

    S3_CSV = "csv"
    S3_PARQUET = "parquet"
    PLAIN_PARQUET = "plain"
    """Not by S3 Inventory: columns path, size and last_modified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file, with its recorded length and checksum."""

    location: Location
    size_bytes: int | None = None
    md5: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """An inventory without its rows. Picklable."""

    address: str
    """The manifest, the file or the folder, for messages."""
    created_at: datetime
    """When its creation began: it does not know objects written later."""
    kind: Kind
    files: tuple[DataFile, ...]
    bucket: str | None = None
    """S3 Inventory: the bucket that its keys belong to."""
    columns: tuple[str, ...] = ()
    """S3 Inventory: in the order of a CSV file."""

    @property
    def store(self) -> str:
        """S3 Inventory: what the addresses of its keys begin with. It is kept in the kind of store that it lists."""
        return Location(Location.parse(self.address).scheme, self.bucket or "", "").store


async def find(storage: Storage, inventory: Inventory, roots: Sequence[Location]) -> FileList:
    """The list behind an address. Raises Refused when it is too old, missing or of another bucket."""
    found = await _at(storage, inventory.address)
    if found.bucket is not None and found.bucket not in {root.authority for root in roots}:
        raise Refused(
            RefusalCode.INVENTORY_ELSEWHERE, f"{found.address} lists the bucket {found.bucket}: the table is not in it"
        )
    _check_age(found, inventory)
    return found


def places(address: Location) -> tuple[Location, ...]:
    """Where the inventory at this address may keep its files: S3 puts them beside the dated directory of a manifest."""
    directory = address if address.name != _MANIFEST else _above(address)
    is_dated = bool(_DATED.match(directory.path.rstrip("/").rpartition("/")[2]))
    return (address, _above(directory)) if is_dated or address.name == _MANIFEST else (address,)


def _above(place: Location) -> Location:
    return Location(place.scheme, place.authority, place.path.rstrip("/").rpartition("/")[0])


def _check_age(found: FileList, inventory: Inventory) -> None:
    made = f"{found.address} was made at {found.created_at:%Y-%m-%d %H:%M} UTC"
    if found.created_at < inventory.not_before:
        raise Refused(
            RefusalCode.INVENTORY_TOO_OLD,
            f"{made}, longer ago than the grace period: create it more often or set a longer grace_period_hours",
        )
    if found.created_at > inventory.not_after:
        raise Refused(RefusalCode.INVENTORY_TOO_NEW, f"{made}, which is in the future: its age cannot be determined")


async def _at(storage: Storage, address: Location) -> FileList:
    if address.name == _MANIFEST:
        return await _s3_inventory(storage, address)
    stored = await stat_or_none(storage, address)
    if stored is None:
        return await _in_folder(storage, address)
    file = DataFile(location=address, size_bytes=stored.size_bytes)
    return _plain(address, (file,), stored.modified_at)


async def _in_folder(storage: Storage, folder: Location) -> FileList:
    """The newest complete S3 Inventory below a folder, or all the Parquet files there."""
    manifests: set[str] = set()
    parquet: list[tuple[str, int, datetime | None]] = []
    async with aclosing(storage.list(folder)) as pages:
        async for page in pages:
            for row in page.to_pylist():
                path: str = row["path"]
                if path.endswith((f"/{_MANIFEST}", f"/{_CHECKSUM}")):
                    manifests.add(path)
                elif path.endswith(".parquet") and not _hidden(path, folder):
                    parquet.append((path, row["size_bytes"], row["modified_at"]))
    if manifests:
        return await _s3_inventory(storage, _newest(folder, manifests))
    if not parquet:
        raise Refused(
            RefusalCode.INVENTORY_MISSING, f"there is neither a manifest.json nor a Parquet file below {folder}"
        )
    files = tuple(DataFile(location=Location.parse(path), size_bytes=size) for path, size, _ in sorted(parquet))
    times = [modified for _, _, modified in parquet]
    return _plain(folder, files, None if None in times else min(time for time in times if time))


def _hidden(path: str, folder: Location) -> bool:
    """Spark and others reserve names with a leading `_` or `.`."""
    return any(segment[:1] in ("_", ".") for segment in path[len(folder.as_directory().raw) :].split("/"))


def _plain(address: Location, files: tuple[DataFile, ...], oldest: datetime | None) -> FileList:
    """The time of its oldest file is the only sign of when the list was made."""
    if oldest is None:
        raise Unreadable(address.raw, "storage does not report when it was written, so its age is unknown")
    return FileList(address=address.raw, created_at=oldest, kind=Kind.PLAIN_PARQUET, files=files)


def _newest(folder: Location, found: set[str]) -> Location:
    complete = [Location.parse(path) for path in found if path.endswith(_MANIFEST) and _checksum_of(path) in found]
    dated = [manifest for manifest in complete if _DATED.match(manifest.path.split("/")[-2])]
    if not dated:
        raise Refused(
            RefusalCode.INVENTORY_MISSING,
            f"no inventory below {folder} is complete: none has a manifest.json and its checksum",
        )
    kinds = sorted({manifest.raw.rsplit("/", 2)[0] for manifest in dated})
    if len(kinds) > 1:
        raise Refused(
            RefusalCode.INVENTORY_AMBIGUOUS,
            f"there are several inventories below {folder}, name one of them: {', '.join(kinds)}",
        )
    return max(dated, key=lambda manifest: manifest.path)


def _checksum_of(manifest: str) -> str:
    return manifest.removesuffix(_MANIFEST) + _CHECKSUM


async def _s3_inventory(storage: Storage, manifest: Location) -> FileList:
    try:
        data = await storage.read(manifest)
    except NotFound as exc:
        raise Refused(RefusalCode.INVENTORY_MISSING, f"there is no {manifest}") from exc
    await _check_manifest(storage, manifest, data)
    try:
        return _parsed(manifest, parse_json(data))
    except (ValueError, KeyError, TypeError, OverflowError) as exc:
        raise Unreadable(manifest.raw, f"it is not an S3 Inventory manifest: {type(exc).__name__} {exc}") from exc


async def _check_manifest(storage: Storage, manifest: Location, data: bytes) -> None:
    try:
        recorded = await storage.read(Location.parse(_checksum_of(manifest.raw)))
    except NotFound:
        return  # a manifest that is given by its own address may have been copied without its checksum
    if recorded.decode("ascii", "replace").strip().lower() != md5(data):
        raise Unreadable(manifest.raw, f"it does not match the checksum in {_CHECKSUM}")


def _parsed(manifest: Location, document: dict[str, Any]) -> FileList:
    written = document["fileFormat"]
    if written not in ("CSV", "Parquet"):
        raise Unreadable(manifest.raw, f"the inventory is written as {written}: only Parquet and CSV can be read")
    kind = Kind.S3_CSV if written == "CSV" else Kind.S3_PARQUET
    return FileList(
        address=manifest.raw,
        created_at=_EPOCH + timedelta(milliseconds=int(document["creationTimestamp"])),
        kind=kind,
        bucket=str(document["sourceBucket"]),
        columns=_columns(kind, document["fileSchema"]),
        files=tuple(
            DataFile(
                location=Location(manifest.scheme, manifest.authority, _key(manifest, entry["key"])),
                size_bytes=int(entry["size"]),
                md5=str(entry["MD5checksum"]).lower(),
            )
            for entry in document["files"]
        ),
    )


def _columns(kind: Kind, schema: str) -> tuple[str, ...]:
    if kind is Kind.S3_CSV:
        return tuple(name.strip() for name in schema.split(","))
    return tuple(_COLUMN.findall(schema))


def _key(manifest: Location, key: str) -> str:
    """Keys count from the top of the bucket, which a local folder does not have."""
    if manifest.is_local:
        raise Unreadable(manifest.raw, "an S3 Inventory can only be read in the bucket that it was delivered to")
    return key


def md5(data: bytes) -> str:
    """The checksum that S3 Inventory records. It protects against damage, not against forgery."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
