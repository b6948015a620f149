"""What expiring snapshots name, by address and size, from their manifests alone. Reads only."""

from __future__ import annotations

from lakesweep.formats import unique_names
from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.manifest_lists import ManifestLists
from lakesweep.model.location import Location
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles, ReadSources


async def collect(lists: ManifestLists, found: References, read: ReadSources) -> ExpiringFiles:
    """Manifest lists, manifests and what they name. A manifest that cannot be read is left out, with its files."""
    expiring = [source for source in found.sources if not source.retained]
    plain = {source.location: source for source in expiring}
    sizes: dict[str, int | None] = {path: lists.lengths.get(_address(path)) for path in found.expired}
    sizes |= {
        path: plain[place].size_bytes for path in found.expired if (place := Location.parse_or_none(path)) in plain
    }
    names: list[str] = []
    covered: set[str] = set()
    async for source, batch in read([decode.with_sizes(source) for source in expiring]):
        covered.add(plain[source.location].cache_key)
        paths = batch.column("path").to_pylist()
        names += paths
        for path, size in zip(paths, batch.column("size_bytes").to_pylist(), strict=True):
            sizes[path] = size if sizes.get(path, size) == size else None
    return ExpiringFiles(shortlist=unique_names.shortlist(sizes), sources=frozenset(covered), names=tuple(names))


def _address(path: str) -> str:
    place = Location.parse_or_none(path)
    return place.raw if place else path
