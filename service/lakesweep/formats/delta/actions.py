"""Actions of commits and JSON checkpoints: bytes to values. Pure. A line that cannot be read makes the whole file
unreadable, since it may name a live file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakesweep.formats.delta import paths
from lakesweep.formats.delta.malformed import Malformed
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location


class FileKey(NamedTuple):
    """What an add and a remove must share to cancel each other out."""

    file: str
    vector: str


class FileAction(NamedTuple):
    """An add, or a remove with its time. A tuple, since there may be very many."""

    key: FileKey
    addresses: tuple[str, ...]
    """Raw addresses below the root: the data file and its deletion vector."""
    aliases: tuple[str, ...]
    """Addresses that a path outside the root may mean."""
    removed_ms: int | None
    """None for an add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What one file of actions says, as far as cleanup is concerned."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: tuple[FileAction, ...] = ()
    change_data: tuple[str, ...] = ()
    """Addresses of change data files below the root."""
    sidecars: tuple[tuple[str, int | None], ...] = ()
    """Bare names and recorded lengths."""
    in_commit_ms: int | None = None


@dataclass(slots=True)
class _Collected:
    """Actions while they are being read."""

    root: Location
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: list[FileAction] = field(default_factory=list)
    change_data: list[str] = field(default_factory=list)
    sidecars: list[tuple[str, int | None]] = field(default_factory=list)
    in_commit_ms: int | None = None

    def take(self, name: str, action: Mapping[str, Any]) -> None:
        """Only what cleanup needs; every other action leaves files alone."""
        match name:
            case "add":
                self.files.append(file_action(action, self.root, removed_ms=None))
            case "remove":
                self.files.append(file_action(action, self.root, removed_ms=action.get("deletionTimestamp") or 0))
            case "cdc":
                self.change_data += place_addresses(paths.resolve(_text(action, "path"), self.root))
            case "protocol":
                self.protocol = Protocol.from_action(action)
            case "metaData":
                self.metadata = Metadata.from_action(action)
            case "sidecar":
                self.sidecars.append(sidecar(action))
            case "commitInfo":
                self.in_commit_ms = action.get("inCommitTimestamp")
            case _:
                pass


def parse(data: bytes, root: Location, address: str) -> Actions:
    """Read a file of one action per line. Raises Unreadable."""
    found = _Collected(root)
    try:
        for name, action in _lines(data):
            found.take(name, action)
    except (ValueError, TypeError, AttributeError) as exc:
        raise Unreadable(address, f"not a file of Delta actions: {exc}") from exc
    return Actions(
        protocol=found.protocol,
        metadata=found.metadata,
        files=tuple(found.files),
        change_data=tuple(found.change_data),
        sidecars=tuple(found.sidecars),
        in_commit_ms=found.in_commit_ms,
    )


def _lines(data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not data:
        raise Malformed("it is empty")
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        document = json.loads(line)
        if not isinstance(document, dict):
            raise Malformed("a line that is not an object")
        for name, action in document.items():
            if action is not None:
                yield name, action


def file_action(action: Mapping[str, Any], root: Location, *, removed_ms: int | None) -> FileAction:
    """An add or a remove as raw addresses. Raises Malformed."""
    data = paths.resolve(_text(action, "path"), root)
    descriptor = action.get("deletionVector")
    vector = paths.deletion_vector(descriptor, root) if descriptor else None
    places = [place for place in (data, vector) if place is not None]
    return FileAction(
        key=FileKey(data.key, paths.deletion_vector_id(descriptor)),
        addresses=tuple(address for place in places for address in place_addresses(place)),
        aliases=tuple(alias for place in places for alias in place.aliases),
        removed_ms=removed_ms,
    )


def place_addresses(place: paths.Place) -> tuple[str, ...]:
    """The address below the root, if it is below the root."""
    return () if place.address is None else (place.address,)


def sidecar(action: Mapping[str, Any]) -> tuple[str, int | None]:
    """The bare name of a sidecar and its recorded length. Raises Malformed."""
    size = action.get("sizeInBytes")
    return paths.bare_name(_text(action, "path")), size if isinstance(size, int) else None


def _text(action: Mapping[str, Any], name: str) -> str:
    value = action.get(name)
    if not isinstance(value, str):
        raise Malformed(f"an action without its {name}")
    return value
