"""Names and places of one table: which roots it owns files in, and what an unreferenced object there may be. Pure and
picklable. Iceberg's own orphan removal deletes whatever is not hidden and not referenced. We delete only names that
Iceberg writers produce; anything else (a README, a CSV, a data file without an extension from a Hive migration) is
FOREIGN: reported, never deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from lakesweep.formats import markers
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, TableMetadata
from lakesweep.formats.streams import FLINK_MANIFESTS
from lakesweep.model.location import Location
from lakesweep.ports.table import FileKind, MatchBy

VERSION_HINT = "version-hint.text"

_DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
_METADATA_PATH = "write.metadata.path"

# Data is deleted first and metadata last, so that a sweep that stops half-way leaves files that can be explained.
_DATA = FileKind(kind="data", stage=0)
_DELETES = FileKind(kind="deletes", stage=0)
_MANIFEST = FileKind(kind="manifest", stage=1)
_MANIFEST_LIST = FileKind(kind="manifest_list", stage=2)
_STATISTICS = FileKind(kind="statistics", stage=2)
_METADATA = FileKind(kind="metadata", stage=3)
_HINT = FileKind(kind="hint", reserved=True)
_HIDDEN = FileKind(kind="hidden", reserved=True)
_FOREIGN = FileKind(kind="other", foreign=True)
_OTHER_LOG = FileKind(kind="metadata", reserved=True)
"""Another table's log. Its data files lie beside it under plain names, so it must reach the foreign-owner check."""

_MANIFEST_NAME = re.compile(r"-m\d+\.avro$")
_BITS = re.compile(r"[01]{4}/[01]{4}/[01]{4}(/[01]{8})?")
"""Directories of the object-storage layout. The last bits may be a part of the file's name."""
_HEX = re.compile(r"[0-9a-f]{8}")
"""The same from older writers, who always put the context behind it. Alone it would be any day's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergLayout:
    """What `classify` needs: places as directories in raw form, and what may look hidden although it is not."""

    home: str
    """The table's own location."""
    outposts: tuple[str, ...]
    """Data or metadata paths elsewhere than the location or around it, which other tables may use too; inner ones
    first."""
    named_outposts: frozenset[str] = frozenset()
    """Those of them whose own path names this table."""
    context: tuple[str, ...]
    """The last two segments of the location, which Iceberg puts into paths below a shared data path."""
    plain_prefixes: tuple[str, ...]
    """`<field>=` of partition fields that begin with `_` or `.`: not hidden."""
    match_by: MatchBy = MatchBy.ADDRESS

    def classify(self, path: str) -> FileKind:
        """Judged by name and place only, and asked only about objects that nothing refers to."""
        if path.startswith(self.home):
            relative = path[len(self.home) :]
            return _DATA if _is_plain_data(relative) else self._kind(_segments(relative))
        for outpost in self.outposts:
            if path.startswith(outpost):
                return self._kind_at_outpost(outpost, _segments(path[len(outpost) :]))
        return _FOREIGN

    def _kind_at_outpost(self, outpost: str, segments: list[str]) -> FileKind:
        *directories, name = segments
        if self._is_ours(directories):
            kind = self._kind(segments)
            # Metadata says itself whose it is.
            certain = kind is _METADATA or kind.reserved or self._is_known_ours(outpost, directories)
            return kind if certain else _FOREIGN
        if self._is_ours(directories[:-1]) and (
            directories[-1] in markers.SIGNS.hidden_logs or name.endswith(METADATA_SUFFIXES)
        ):
            return _OTHER_LOG
        return _FOREIGN

    def _kind(self, segments: list[str]) -> FileKind:
        for segment in segments:
            if segment.startswith(("_", ".")) and not segment.startswith(self.plain_prefixes):
                return _OTHER_LOG if segment in markers.SIGNS.hidden_logs else _HIDDEN
        if (
            len(segments) > 1
            and segments[-2].endswith(markers.SIGNS.beside_iceberg_directories)
            and is_visible_log("/".join(segments))
        ):
            return _OTHER_LOG
        return _kind_of_name(segments[-1])

    def _is_known_ours(self, outpost: str, directories: list[str]) -> bool:
        """Does the path name this table? A table that used this place before us may still have files here."""
        inner = [one for one in directories if "=" not in one]
        return outpost in self.named_outposts or (bool(inner) and tuple(inner[-1:]) == self.context[-1:])

    def _is_ours(self, directories: list[str]) -> bool:
        """Below a shared path only places that this table's writers use: hashes, our context, partitions."""
        rest = list(directories)
        while rest and "=" in rest[-1]:
            rest.pop()
        with_context = tuple(rest[-2:]) == self.context
        hashed = "/".join(rest[:-2] if with_context else rest)
        return not hashed or bool(_BITS.fullmatch(hashed) or (with_context and _HEX.fullmatch(hashed)))


def is_visible_log(path: str) -> bool:
    """Is this the name of another format's metadata, such as a Paimon snapshot, schema or hint? A Paimon table that
    also shows itself as Iceberg keeps its data files under plain names in the same place."""
    return markers.SIGNS.beside_iceberg.search(path) is not None


def layout_of(metadata: TableMetadata, roots: Iterable[Location]) -> IcebergLayout:
    location = Location.parse(metadata.location).as_directory()
    roots = [root.as_directory() for root in roots]
    inner = [
        place
        for place in places_of(metadata.location, metadata.properties)
        if any(root.contains(place) for root in roots)
    ]
    places = {place.raw: place for place in (*roots, *inner) if place != location}
    return IcebergLayout(
        home=location.raw,
        outposts=tuple(sorted(places, key=lambda place: (-len(place), place))),
        named_outposts=frozenset(raw for raw, place in places.items() if _names_table(place, location)),
        context=PurePosixPath(location.path).parts[-2:],
        plain_prefixes=tuple(f"{name}=" for name in metadata.partition_fields if name.startswith(("_", "."))),
    )


def roots_of(metadata: TableMetadata, tenant_root: Location) -> tuple[tuple[Location, ...], tuple[str, ...]]:
    """Every place this table may own files in, none inside another; and what was left out, as the table spells it.
    Places outside the tenant's root are left out: nothing there is ours to list or to delete."""
    inside: list[Location] = []
    left_out: list[str] = []
    for text in _places(metadata.location, metadata.properties):
        root = _parse(text)
        if root is not None and (root == tenant_root.as_directory() or tenant_root.contains(root)):
            inside.append(root)
        else:
            left_out.append(text)
    roots: list[Location] = []
    for root in sorted(inside, key=lambda place: len(place.match_key)):
        if not any(known.overlaps(root) for known in roots):
            roots.append(root)
    return tuple(roots), tuple(left_out)


def writes_inside(metadata: TableMetadata, tenant_root: Location | None) -> bool:
    """Would a client's commit put its metadata file inside the tenant's root?"""
    place = _parse(metadata.properties.get(_METADATA_PATH) or metadata.location)
    return tenant_root is None or (
        place is not None and (place == tenant_root.as_directory() or tenant_root.contains(place))
    )


def places_of(location: str, properties: Mapping[str, str], named: Iterable[str] = ()) -> tuple[Location, ...]:
    """Every place a table keeps files in, its own or not: for comparing tables with each other. The directories of
    files that it names are among them: a table that was moved still has old ones where it was."""
    places = [root for root in map(_parse, _places(location, properties)) if root is not None]
    for directory in dict.fromkeys(path.rpartition("/")[0] for path in named):
        place = _parse(directory)
        if place is not None and not any(known == place or known.contains(place) for known in places):
            places.append(place)
    return tuple(places)


def written_elsewhere(metadata: TableMetadata) -> str | None:
    """A file of the table's own history, of those that its commits wrote, that lies in none of its places."""
    own = tuple(place.match_key.rstrip("/") + "/" for place in places_of(metadata.location, metadata.properties))
    lists = (snapshot.manifest_list for snapshot in metadata.snapshots)
    for path in (metadata.address, *metadata.metadata_log, *lists):
        place = Location.parse_or_none(path) if path else None
        if place is not None and not place.match_key.startswith(own):
            return path
    return None


def may_hide_move(metadata: TableMetadata) -> bool:
    """Is or was its metadata anywhere but in `metadata/` below its location? Then all of it can lie in the table's
    places although the table was moved."""
    return bool(metadata.properties.get(_METADATA_PATH)) or len(metadata_directories(metadata)) > 1


def is_elsewhere(location: Location, metadata: TableMetadata) -> bool:
    """Is the table not there now?"""
    return location.as_directory().match_key != Location.parse(metadata.location).as_directory().match_key


def metadata_directories(metadata: TableMetadata) -> frozenset[str]:
    """Directories (match keys, with a trailing slash) that hold this table's own metadata files."""
    known = map(Location.parse_or_none, (metadata.address, *metadata.metadata_log))
    directories = {location.match_key.rpartition("/")[0] + "/" for location in known if location}
    own = (metadata_directory(metadata), *_named_by(metadata, _METADATA_PATH))
    return frozenset(directories.union(place.match_key for place in own))


def current_metadata_directories(metadata: TableMetadata) -> tuple[Location, ...]:
    """Where the table's metadata is and goes now, whether or not we may touch that place."""
    head = _parse(metadata.address.rpartition("/")[0])
    found = (metadata_directory(metadata), head, *_named_by(metadata, _METADATA_PATH))
    return tuple(dict.fromkeys(place for place in found if place is not None))


def metadata_directory(metadata: TableMetadata) -> Location:
    """Where metadata goes by default, and where the version hint always is."""
    return Location.parse(metadata.location).join("metadata").as_directory()


def pending_places(metadata: TableMetadata, tenant_root: Location) -> tuple[Location, ...]:
    """Where writers put manifests before they commit them, as far as it is inside the tenant's root."""
    found = (metadata_directory(metadata), *_named_by(metadata, _METADATA_PATH, FLINK_MANIFESTS))
    return tuple(dict.fromkeys(place for place in found if tenant_root.contains(place)))


def _named_by(metadata: TableMetadata, *properties: str) -> list[Location]:
    """The places that these properties name."""
    texts = (metadata.properties.get(name) for name in properties)
    return [place for text in texts if text and (place := _parse(text))]


def _places(location: str, properties: Mapping[str, str]) -> list[str]:
    names = (*_DATA_PATHS, _METADATA_PATH)
    return [location, *(properties[name] for name in names if properties.get(name))]


def _names_table(outpost: Location, home: Location) -> bool:
    """Is the table's name in the path? Not if a directory above the table, or only a bucket, is called the same."""
    own = PurePosixPath(home.path)
    return bool(own.name) and own.name in outpost.path.split("/") and own.name not in own.parent.parts


def _parse(text: str) -> Location | None:
    location = Location.parse_or_none(text)
    return location.as_directory() if location else None


def _is_plain_data(relative: str) -> bool:
    """The quick answer for most files: a data file in no directory that could mean anything."""
    return (
        relative.endswith(".parquet")
        and "/_" not in relative
        and "/." not in relative
        and not relative.startswith(("_", "."))
        and "-deletes." not in relative
        and "partition-stats-" not in relative
    )


def _segments(relative: str) -> list[str]:
    """An empty last segment (a directory marker) stays, so that it is no file name."""
    segments = relative.split("/")
    if "" in segments:
        *directories, name = segments
        return [*filter(None, directories), name]
    return segments


def _kind_of_name(name: str) -> FileKind:
    kind = _FOREIGN
    if name == VERSION_HINT:
        kind = _HINT
    elif name.endswith(METADATA_SUFFIXES):
        kind = _METADATA
    elif name.startswith("snap-") and name.endswith(".avro"):
        kind = _MANIFEST_LIST
    elif name.endswith(".avro") and _MANIFEST_NAME.search(name):
        kind = _MANIFEST
    elif name.endswith(".stats") or name.startswith("partition-stats-"):
        kind = _STATISTICS
    elif name.endswith(".puffin"):
        kind = _DELETES if name.endswith("-deletes.puffin") else _STATISTICS
    elif name.endswith((".parquet", ".orc", ".avro")):
        kind = _DELETES if "-deletes." in name else _DATA
    return kind
