"""Adds and removes by the column, a row each. Pure. A table may have millions of them. Paths below the root, nearly all
there are, never become Python objects: what is encoded in them is decoded once for each directory, and deletion vectors
once for each file of them. Paths that lead elsewhere, or have an unusual spelling, are handled one by one in
`paths`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.addresses import match_keys
from lakesweep.formats.delta import paths
from lakesweep.model.location import DOT_SEGMENT, Location
from lakesweep.ports.table import MatchBy

FILES = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # a remove overrules the add of the same key; see _key
        pa.field("address", pa.string()),  # of the data file; null when it does not lie below the root
        pa.field("vector", pa.string()),  # address of its file of deletion vectors below the root
        pa.field("aliases", pa.list_(pa.string())),  # what a path outside the root may mean below it; null for none
        pa.field("elsewhere", pa.list_(pa.string())),  # where paths outside the root lead; null for none
        pa.field("removed_ms", pa.int64()),  # null for an add
    ]
)
"""What one file of actions says about data files."""
_NONE = FILES.empty_table()

_INT64 = 2**63
_BY_COLUMNS = pa.array(["i", "u"])
"""Kinds of deletion vectors: inline, and stored right below the root."""


class FileAction(NamedTuple):
    """A row of FILES."""

    key: str
    address: str | None
    vector: str | None
    aliases: tuple[str, ...] | None
    elsewhere: tuple[str, ...] | None
    removed_ms: int | None


def add(action: Mapping[str, Any], root: Location) -> FileAction:
    return _file_action(action, root, removed_ms=None)


def remove(action: Mapping[str, Any], root: Location) -> FileAction:
    """A remove. One without a time has the time 0; see `dated`. Raises Malformed."""
    removed_at = action.get("deletionTimestamp")
    return _file_action(action, root, removed_ms=0 if removed_at is None else whole_ms(removed_at))


def _file_action(action: Mapping[str, Any], root: Location, *, removed_ms: int | None) -> FileAction:
    spelled = action.get("path")
    if not isinstance(spelled, str):
        raise paths.Malformed("an action has no path")
    data = paths.resolve(spelled, root)
    descriptor = action.get("deletionVector")
    vector = paths.deletion_vector(descriptor, root) if descriptor else None
    return FileAction(
        key=_key(spelled, paths.deletion_vector_id(descriptor)),
        address=data.address,
        vector=vector.address if vector else None,
        aliases=(*data.aliases, *(vector.aliases if vector else ())) or None,
        elsewhere=tuple(place.elsewhere for place in (data, vector) if place and place.elsewhere) or None,
        removed_ms=removed_ms,
    )


def _key(spelled: str, vector: str) -> str:
    """A path as the log spells it, and its vector: no path has a NUL. For readers of the log two spellings are two
    files, and a remove that spells a path differently from the add removes nothing: some writers have done so."""
    return f"{spelled}\0{vector}" if vector else spelled


def whole_ms(value: Any) -> int:
    """A time of an action, rounded down; beyond every date it stays beyond every date. Raises Malformed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise paths.Malformed("a time is not a number")
    return math.floor(max(-_INT64, min(value, _INT64 - 1)))


def none() -> pa.Table:
    return _NONE


def from_actions(actions: Iterable[FileAction]) -> pa.Table:
    columns = list(zip(*actions, strict=True)) or [()] * len(FILES)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, FILES, strict=True)], schema=FILES
    )


def adds(rows: pa.StructArray, root: Location) -> pa.Table:
    """Add actions as a table, in their order. Raises Malformed, or what Arrow raises on a value of another type."""
    return _from_rows(rows, root, removes=False)


def removes(rows: pa.StructArray, root: Location) -> pa.Table:
    return _from_rows(rows, root, removes=True)


def _from_rows(rows: pa.StructArray, root: Location, *, removes: bool) -> pa.Table:
    text, plain = _below_root(_spelled(rows))
    vectors = _vectors(rows)
    if vectors is not None:
        known = pc.is_in(pc.struct_field(vectors, "storageType").cast(pa.string()), _BY_COLUMNS)
        placed = pc.and_(known, pc.struct_field(vectors, "pathOrInlineDv").is_valid())
        plain = pc.and_(plain, pc.or_(vectors.is_null(), placed))
    if plain.true_count == len(rows):
        return _plain(rows, text, root, removes=removes)
    look = pc.invert(plain)
    read = remove if removes else add
    found = pa.concat_tables(
        [
            _plain(rows.filter(plain), text.filter(plain), root, removes=removes),
            from_actions(read(row, root) for row in rows.filter(look).to_pylist()),
        ]
    )
    numbers = pa.concat_arrays([pc.indices_nonzero(plain), pc.indices_nonzero(look)])
    return found.take(pc.array_sort_indices(numbers))


def _spelled(rows: pa.StructArray) -> pa.Array:
    spelled = pc.struct_field(rows, "path").cast(pa.string())
    if spelled.null_count:
        raise paths.Malformed("an action has no path")
    return spelled


def _below_root(spelled: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What paths mean below the root, and which simply mean that: those without a scheme and not rooted. Of the others
    the text means nothing. Several simple questions are faster than one hard one."""
    plain = pc.invert(pc.match_substring_regex(spelled, ":/"))
    encoded = pc.and_(plain, pc.match_substring_regex(spelled, "%"))
    text = pc.replace_with_mask(spelled, encoded, _decoded(spelled.filter(encoded))) if encoded.true_count else spelled
    odd = pc.or_(pc.starts_with(text, "/"), pc.equal(pc.binary_length(text), 0))
    return text, pc.and_not(plain, pc.or_(odd, pc.match_substring_regex(text, DOT_SEGMENT)))


def _decoded(spelled: pa.Array) -> pa.Array:
    """Percent-decoded, directory and name apart and each distinct one once: no escape reaches over a slash."""
    halves = pc.split_pattern(spelled, "/", max_splits=1, reverse=True)
    encoded = pc.match_substring_regex(halves.values, "%")
    distinct = halves.values.filter(encoded).dictionary_encode()
    texts = pa.array([unquote(text, errors="strict") for text in distinct.dictionary.to_pylist()], pa.string())
    decoded = pc.replace_with_mask(halves.values, encoded, texts.take(distinct.indices))
    return pc.binary_join(pa.ListArray.from_arrays(halves.offsets, decoded), "/")


def _vectors(rows: pa.StructArray) -> pa.StructArray | None:
    if rows.type.get_field_index("deletionVector") < 0:
        return None
    vectors = pc.struct_field(rows, "deletionVector")
    return vectors if vectors.null_count < len(vectors) else None


def _plain(rows: pa.StructArray, text: pa.Array, root: Location, *, removes: bool) -> pa.Table:
    prefix = root.as_directory().raw
    vectors = _vectors(rows)
    columns = [
        _spelled(rows) if vectors is None else _keys_with_vectors(_spelled(rows), vectors),
        _behind(prefix, text),
        pa.nulls(len(rows), pa.string()) if vectors is None else _stored(vectors, prefix),
        pa.nulls(len(rows), FILES.field("aliases").type),
        pa.nulls(len(rows), FILES.field("elsewhere").type),
        removal_times(rows) if removes else pa.nulls(len(rows), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=FILES)


def _behind(prefix: str, text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(prefix), text, "")


def _keys_with_vectors(spelled: pa.Array, vectors: pa.StructArray) -> pa.Array:
    """What `_key` says of each file and `deletion_vector_id` of its vector."""
    kind, place = (pc.struct_field(vectors, name).cast(pa.string()) for name in ("storageType", "pathOrInlineDv"))
    # Null where there is no vector: its fields are null then, and so is whatever is joined with one.
    keyed = pc.binary_join_element_wise(spelled, "\0", kind, place, "")
    if vectors.type.get_field_index("offset") >= 0:
        offsets = pc.struct_field(vectors, "offset").cast(pa.int64()).cast(pa.string())
        keyed = pc.coalesce(pc.binary_join_element_wise(keyed, "@", offsets, ""), keyed)
    return pc.coalesce(keyed, spelled)


def _stored(vectors: pa.StructArray, prefix: str) -> pa.Array:
    """Where each vector is stored; null for those that are inline, and where there is none."""
    is_stored = pc.fill_null(pc.equal(pc.struct_field(vectors, "storageType").cast(pa.string()), "u"), False)
    texts = pc.struct_field(vectors, "pathOrInlineDv").cast(pa.string()).filter(is_stored).dictionary_encode()
    names = pa.array(map(paths.vector_name, texts.dictionary.to_pylist()), pa.string())
    found = _behind(prefix, names).take(texts.indices)
    return pc.replace_with_mask(pa.nulls(len(vectors), pa.string()), is_stored, found)


def removal_times(rows: pa.StructArray) -> pa.Array:
    """When each row was removed; 0 for a row without a time."""
    if rows.type.get_field_index("deletionTimestamp") < 0:
        return pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    return pc.fill_null(pc.struct_field(rows, "deletionTimestamp").cast(pa.int64()), 0)


def dated(table: pa.Table, committed_ms: int | None) -> pa.Table:
    """A remove without a time was made by this commit. Where nobody knows the commit's time, it counts as new."""
    times = table.column("removed_ms")
    unknown = pc.fill_null(pc.equal(times, 0), False)
    if not pc.any(unknown).as_py():
        return table
    at = pa.scalar(_INT64 - 1 if committed_ms is None else committed_ms, pa.int64())
    return table.set_column(
        table.schema.get_field_index("removed_ms"), FILES.field("removed_ms"), pc.if_else(unknown, at, times)
    )


def addresses(table: pa.Table) -> pa.Array:
    """Everything below the root that these actions name: data files, and each file of deletion vectors once."""
    data = table.column("address").drop_null().combine_chunks()
    return pa.concat_arrays([data, pc.unique(table.column("vector")).drop_null()])


def aliases(table: pa.Table) -> pa.Array:
    """Everything below the root that outside paths of these actions may mean."""
    return pc.list_flatten(table.column("aliases")).combine_chunks()


def elsewhere(table: pa.Table) -> pa.Array:
    """Where outside paths of these actions lead: live files that nobody looks for."""
    return pc.list_flatten(table.column("elsewhere")).combine_chunks()


def among(found: pa.Array, wanted: pa.Array) -> pa.Array:
    """Which of the addresses found are wanted ones, however many slashes either is spelled with."""
    by = MatchBy.ADDRESS
    return pc.is_in(match_keys(found, by), match_keys(wanted, by))


def may_name(table: pa.Table, wanted: pa.Array) -> pa.Array:
    """Which actions name one of these addresses, or lead elsewhere and may mean one."""
    chosen = table.column("aliases").combine_chunks().is_valid()
    for name in ("address", "vector"):
        named = table.column(name).combine_chunks()
        found = among(named.drop_null(), wanted)
        chosen = pc.or_(chosen, pc.replace_with_mask(pa.repeat(False, len(named)), named.is_valid(), found))
    return chosen
