"""Which table does a metadata file belong to? Works for any file, even one that is otherwise not supported. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakesweep.formats.iceberg.json_fields import JsonFields
from lakesweep.formats.iceberg.metadata import document, is_view, table_uuid
from lakesweep.model.errors import Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What any metadata file says of itself, also one that is otherwise not understood."""

    uuid: str | None
    is_view: bool
    """Then it is nobody's history: a catalog may have it whatever tables there are."""
    location: str | None
    properties: Mapping[str, str]
    updated_ms: int | None
    metadata_log: tuple[str, ...]
    """The metadata files that it replaced, oldest first."""
    logged_ms: tuple[int | None, ...]
    """When each of them was written, by its writer's clock."""
    contents: frozenset[int | str | None]
    """Snapshots by their ids and refs by their names; None stands for what is not understood."""
    named: tuple[str, ...]
    """Manifest lists and statistics: what it keeps alive by their own addresses, wherever that is."""


def read(address: str, data: bytes) -> Identity:
    top = JsonFields(address, document(address, data))
    contents, named = _contents(top)
    return Identity(
        uuid=table_uuid(top) or top.optional_text("view-uuid"),
        is_view=is_view(top),
        location=top.optional_text("location"),
        properties=top.strings("properties"),
        updated_ms=top.optional_integer("last-updated-ms"),
        metadata_log=tuple(entry.text("metadata-file") for entry in top.objects("metadata-log")),
        logged_ms=tuple(entry.optional_integer("timestamp-ms") for entry in top.objects("metadata-log")),
        contents=contents,
        named=named,
    )


def _contents(top: JsonFields) -> tuple[frozenset[int | str | None], tuple[str, ...]]:
    """Snapshots and refs, and files that are named directly. Some future version may arrange these otherwise."""
    try:
        snapshots = list(top.objects("snapshots"))
        statistics = [*top.objects("statistics"), *top.objects("partition-statistics")]
        named = [
            *(entry.optional_text("manifest-list") for entry in snapshots),
            *(entry.optional_text("statistics-path") for entry in statistics),
        ]
        ids = [entry.optional_integer("snapshot-id") for entry in snapshots]
    except Unreadable:
        return frozenset([None]), ()
    return frozenset([*ids, *_refs(top)]), tuple(path for path in named if path)


def _refs(top: JsonFields) -> list[str | None]:
    """By name. What they are arranged like says nothing of the files that are named."""
    try:
        return [*top.mapping("refs")]
    except Unreadable:
        return [None]
