"""Where a table's current metadata comes from: a catalog, or a bare location that proves nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lakesweep.formats import reads
from lakesweep.formats.iceberg import commit_metadata, layout, lineage
from lakesweep.formats.iceberg.catalog import CommitStyle, IcebergCatalog, Identifier, Pointer
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, TableMetadata
from lakesweep.model.errors import NotFound, Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.storage import Storage


@dataclass(frozen=True, kw_only=True)
class CatalogSource:
    """A table of a catalog: the only proof of what is current."""

    catalog: IcebergCatalog
    identifier: Identifier
    tenant_root: Location | None = None
    """Outside of it no metadata file is written."""
    executable: bool = True

    async def pointer(self) -> Pointer:
        return await self.catalog.pointer(self.identifier)

    async def no_expiry(self, metadata: TableMetadata, data: bytes) -> str | None:
        """Why no snapshot can be expired through here: who writes the commit decides, and what they would lose."""
        if any(entry.manifest_list is None for entry in metadata.snapshots):
            return "pyiceberg cannot commit to a version 1 table whose snapshots list their manifests inline"
        match await self.catalog.commit_style():
            case CommitStyle.SERVER:
                return None
            case CommitStyle.CLIENT:
                return await self._no_client_expiry(metadata, data)
            case CommitStyle.UNKNOWN:
                return await self.catalog.no_swap()

    async def _no_client_expiry(self, metadata: TableMetadata, data: bytes) -> str | None:
        if not self.catalog.can_write:
            return "this catalog needs us to write the metadata file, and this process only reads"
        if not layout.writes_inside(metadata, self.tenant_root):
            return "its write.metadata.path is outside the tenant's root, where nothing is written"
        if unproven := await self.catalog.no_swap():
            return unproven
        dangling = [str(ref) for ref in metadata.refs if metadata.snapshot(ref.snapshot_id) is None]
        if dangling:
            return f"{dangling[0]} points at no snapshot, and pyiceberg cannot remove such a ref"
        return await asyncio.to_thread(commit_metadata.why_not_writable, data)


@dataclass(frozen=True, kw_only=True)
class BareSource:
    """A location without a catalog. Its newest metadata file is a guess: good enough for planning, never for
    deleting."""

    location: Location
    storage: Storage
    executable: bool = False

    async def pointer(self) -> Pointer:
        """The metadata file itself, or what the version hint names, or the highest version."""
        if self.location.name.endswith(METADATA_SUFFIXES):
            return Pointer(metadata_location=self.location.raw)
        files = await self._metadata_files()
        if not files:
            raise Refused(
                RefusalCode.NOT_A_TABLE,
                f"{self.location} contains no metadata/*.metadata.json: it is not an Iceberg table",
            )
        hinted = await self._hinted(files)
        newest = hinted or max(files.values(), key=_rank)
        return Pointer(metadata_location=newest.raw)

    async def no_expiry(self, metadata: TableMetadata, data: bytes) -> str | None:  # noqa: ARG002
        """A plan may show what would expire; executing it is refused anyway."""
        return None

    async def _metadata_files(self) -> dict[str, Location]:
        directory = self.location.join("metadata").as_directory()
        await reads.refuse_irregular(self.storage, directory)
        files = map(Location.parse, await reads.collect(self.storage, directory, reads.paths(METADATA_SUFFIXES)))
        return {file.name: file for file in files if file.path == directory.path + file.name}

    async def _hinted(self, files: dict[str, Location]) -> Location | None:
        """A hint may lag behind by the commits whose writers died before they updated it."""
        hint = self.location.join("metadata", layout.VERSION_HINT)
        try:
            text = (await self.storage.read(hint)).decode("utf-8", "replace").strip()
        except NotFound:
            return None
        if not text.isascii() or not text.isdigit():
            return files.get(text) or files.get(f"{text}.metadata.json")
        version, best = int(text), None
        while (name := _versioned(version, files)) is not None:
            best, version = files[name], version + 1
        return best


Source = CatalogSource | BareSource
"""What an open table asks for its head. Only if it is `executable`, its pointer is a proof."""


def _versioned(version: int, files: dict[str, Location]) -> str | None:
    names = (f"v{version}{infix}{suffix}" for infix in ("", ".gz") for suffix in METADATA_SUFFIXES)
    return next((name for name in names if name in files), None)


def _rank(location: Location) -> tuple[int, str]:
    return lineage.version(location.raw), location.name
