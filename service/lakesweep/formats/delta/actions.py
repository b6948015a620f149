"""Actions of commits and JSON checkpoints: bytes to values. Pure. A line that cannot be read makes the whole file
unreadable, since it may name a live file. The exact reader takes each line as Python's JSON does. The fast one takes
all adds and removes as columns, and answers only where both give the same result; in doubt the exact one reads. They
may differ in fields that cleanup does not need, with numbers or nesting beyond what Python accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakesweep.formats import streams
from lakesweep.formats.delta import files, paths
from lakesweep.formats.delta.files import FileAction
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location

_VECTOR = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int64())])
_FILE = [pa.field("path", pa.string()), pa.field("deletionVector", _VECTOR)]
_OTHERS = ("cdc", "protocol", "metaData", "sidecar", "commitInfo", "txn")
"""Actions that are few: that a line has one is all the columns say of it."""
_SCHEMA = pa.schema(
    [
        pa.field("add", pa.struct(_FILE)),
        pa.field("remove", pa.struct([*_FILE, pa.field("deletionTimestamp", pa.int64())])),
        *(pa.field(name, pa.struct([])) for name in _OTHERS),
    ]
)
_BLOCK_BYTES = 1 << 20
"""Longer lines are left to the exact reader."""
_SMALL_BYTES = 16 * 1024
"""Up to about a hundred actions the exact reader is the faster one, for a handful of them twenty times."""
_INFINITY = re.compile(rb"Inf(?<=[-:,\[\s]Inf)")
"""Arrow reads `Inf` as a number, which is no JSON. With the letters in front the search is fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What one file of actions says, as far as cleanup is concerned."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: pa.Table = field(default_factory=files.none)
    """Of the schema FILES. Removes come before adds: a valid commit never adds and removes one file; should one do
    so, the add keeps the file."""
    change_data: tuple[str, ...] = ()
    """Addresses of change data files below the root."""
    sidecars: tuple[tuple[str, int | None], ...] = ()
    """Bare names and recorded lengths."""
    in_commit_ms: int | None = None
    stated_ms: int = 0
    """When its writer says that it committed; 0 if it does not say."""
    stream: str | None = None
    """A stream that has committed, by the transactions it records."""


@dataclass(slots=True)
class _Collected:
    """Actions while they are being read."""

    root: Location
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: list[FileAction] = field(default_factory=list)
    removes: list[FileAction] = field(default_factory=list)
    change_data: list[str] = field(default_factory=list)
    sidecars: list[tuple[str, int | None]] = field(default_factory=list)
    in_commit_ms: int | None = None
    stated_ms: int = 0
    stream: str | None = None

    def take(self, name: str, action: Mapping[str, Any]) -> None:
        """Only what cleanup needs; every other action leaves files alone."""
        match name:
            case "add":
                self.adds.append(files.add(action, self.root))
            case "remove":
                self.removes.append(files.remove(action, self.root))
            case "cdc":
                self.change_data += place_addresses(paths.resolve(_text(action, "path"), self.root))
            case "protocol":
                self.protocol = Protocol.from_action(action)
            case "metaData":
                self.metadata = Metadata.from_action(action)
            case "sidecar":
                self.sidecars.append(sidecar(action))
            case "commitInfo":
                committed_at = action.get("inCommitTimestamp")
                self.in_commit_ms = None if committed_at is None else files.whole_ms(committed_at)
                self.stated_ms = max(self.stated_ms, self.in_commit_ms or 0, _stated_ms(action.get("timestamp")))
                self.stream = self.stream or streams.of_operation(action.get("operation"))
            case "txn":
                self.stream = streams.of_application(action.get("appId"))
            case _:
                pass

    def done(self, named: pa.Table) -> Actions:
        return Actions(
            protocol=self.protocol,
            metadata=self.metadata,
            files=named,
            change_data=tuple(self.change_data),
            sidecars=tuple(self.sidecars),
            in_commit_ms=self.in_commit_ms,
            stated_ms=self.stated_ms,
            stream=self.stream,
        )


def _stated_ms(value: Any) -> int:
    """Writers may put anything there: what is no time says nothing."""
    try:
        return files.whole_ms(value)
    except paths.Malformed:
        return 0


def parse(data: bytes, root: Location, address: str) -> Actions:
    """Read a file of one action per line. Raises Unreadable."""
    quick = parse_fast(data, root) if len(data) > _SMALL_BYTES else None
    return quick or parse_exactly(data, root, address)


def parse_exactly(data: bytes, root: Location, address: str) -> Actions:
    found = _Collected(root)
    try:
        if not data:
            raise paths.Malformed("it is empty")
        _take_lines(found, data.split(b"\n"))
        return found.done(files.from_actions([*found.removes, *found.adds]))
    except (pa.ArrowException, ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise Unreadable(address, f"not a file of Delta actions: {exc}") from exc


def parse_fast(data: bytes, root: Location) -> Actions | None:
    """The same by columns; None on any doubt. The exact reader then reports what is wrong."""
    found = _Collected(root)
    try:
        columns = _as_columns(data)
        if columns is None:
            return None
        _take_lines(found, _lines_of_others(data, columns))
        removes, adds = (_present(columns.column(name)) for name in ("remove", "add"))
        return found.done(pa.concat_tables([files.removes(removes, root), files.adds(adds, root)]))
    except (pa.ArrowException, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _take_lines(found: _Collected, lines: Iterable[bytes]) -> None:
    for name, action in _actions(lines):
        found.take(name, action)


def _actions(lines: Iterable[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for line in lines:
        if not line.strip():
            continue
        document = parse_json(line)
        if not isinstance(document, dict):
            raise paths.Malformed("a line is not a JSON object")
        for name, action in document.items():
            if action is not None:
                yield name, action


def _as_columns(data: bytes) -> pa.Table | None:
    """A row for each line; None on any doubt. Raises what Arrow raises on what is no JSON or of another type."""
    lines = _count_lines(data)
    if not lines or b"\0" in data or _INFINITY.search(data) or not _is_utf8(data):
        return None
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        parse_options=pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
    )
    return table if table.num_rows == lines and table.schema == _SCHEMA and _is_certain(table) else None


def _count_lines(data: bytes) -> int:
    """How many there are if each may be one object, else 0. Arrow does not care where lines end; but nowhere inside an
    object can `}` be followed by `{`, so where there are as many objects as such lines, each line is one object."""
    may_be = [line.startswith(b"{") and line.endswith((b"}\n", b"}")) for line in BytesIO(data)]
    return len(may_be) if all(may_be) else 0


def _is_utf8(data: bytes) -> bool:
    """Arrow does not look at the text of fields that it leaves out."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_certain(table: pa.Table) -> bool:
    """Has every action a path and every deletion vector a place, and does no line mix a file with other actions?"""
    others = _has_others(table)
    for name in ("add", "remove"):
        column = table.column(name)
        rows = _present(column)
        vectors = pc.struct_field(rows, "deletionVector")
        vectors = vectors.filter(vectors.is_valid())
        if pc.struct_field(rows, "path").null_count or pc.struct_field(vectors, "pathOrInlineDv").null_count:
            return False
        if pc.any(pc.and_(others, column.is_valid())).as_py():
            return False
    return True


def _has_others(table: pa.Table) -> pa.ChunkedArray:
    found = table.column(_OTHERS[0]).is_valid()
    for name in _OTHERS[1:]:
        found = pc.or_(found, table.column(name).is_valid())
    return found


def _lines_of_others(data: bytes, table: pa.Table) -> Iterator[bytes]:
    numbers = set(pc.indices_nonzero(_has_others(table)).to_pylist())
    lines = islice(BytesIO(data), max(numbers, default=-1) + 1)
    return (line for number, line in enumerate(lines) if number in numbers)


def _present(column: pa.ChunkedArray) -> pa.StructArray:
    return column.filter(column.is_valid()).combine_chunks()


def place_addresses(place: paths.Place) -> tuple[str, ...]:
    return () if place.address is None else (place.address,)


def sidecar(action: Mapping[str, Any]) -> tuple[str, int | None]:
    """The bare name of a sidecar and its recorded length. Raises Malformed."""
    size = action.get("sizeInBytes")
    return paths.bare_name(_text(action, "path")), size if isinstance(size, int) else None


def _text(action: Mapping[str, Any], name: str) -> str:
    value = action.get(name)
    if not isinstance(value, str):
        raise paths.Malformed(f"an action has no {name}")
    return value
