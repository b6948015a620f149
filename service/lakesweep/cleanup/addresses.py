"""Normalise whole Arrow columns of addresses, as `model.location` does for one address. Pure.

Every engine passes both sides of its join, listed objects and references, through the functions below, so that they
differ only where the addresses do. A reference that cannot be placed is never dropped, because a file may depend on it:
it raises Indeterminate and the table is left alone.

Most columns need no rewriting at all. One pass over all bytes of a column shows that, and then nothing is copied; in
any doubt the column takes the slow path, which looks at every address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.errors import Indeterminate
from lakesweep.model.location import DOT_SEGMENT, SCHEME_ALIASES, Location
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.ports.table import MatchBy

INVENTORY_SCHEMA = LISTING_SCHEMA.append(pa.field("match_key", pa.string()))
"""What is stored. A null `match_key` is the path itself: most are, and the column then costs nothing."""

PLACED_SCHEMA = pa.schema(
    [
        pa.field("role", pa.string(), nullable=False),  # a Role
        pa.field("address", pa.string()),  # normalised, slashes not collapsed; null for a bare name
        pa.field("match_key", pa.string()),  # null = the address itself
        pa.field("inside", pa.bool_(), nullable=False),  # storage should show it below one of the roots, and must
        pa.field(
            "outside", pa.bool_(), nullable=False
        ),  # storage must have it, but below none of the roots: not listed
        pa.field("guarded_name", pa.string()),  # keeps listed objects of that name; see _guarded_names
    ]
)
"""What is referenced, as engines join it."""


class Role(StrEnum):
    """What a reference does to the file it names."""

    NAMED = "named"
    """Keeps it, whatever other references say: retained metadata names it directly."""
    READ = "read"
    """Keeps it unless the format has released it: a retained source names it."""
    EXPIRED = "expired"
    """Frees it if nothing else keeps it: only what expires names it."""
    RELEASED = "released"
    """Overrides READ references of the same address."""
    COUNTED = "counted"
    """Keeps nothing: says that a live file is outside the roots, unless the format has released it."""


_ALIASES = tuple((f"{alias}://", f"{scheme}://") for alias, scheme in SCHEME_ALIASES.items())
_SETTLED = r"^[a-z][a-z0-9+.-]*://[^/]+/"
_SLASH = ord("/")
_LOOKED_AT_ONCE = 4096
"""Paths whose bytes fit into the processor's cache."""


def match_keys(paths: pa.Array, match_by: MatchBy) -> pa.Array:
    """What each path is compared by: `Location.parse(path).match_key`, or its last segment."""
    paths = _present(paths)
    if match_by is MatchBy.NAME:
        return _last_segments(paths)
    if _plain(paths, _first_store(paths)):
        return paths
    return _collapsed(canonical(paths))


def match_key_list(paths: Sequence[str], match_by: MatchBy) -> list[str]:
    """The same for a handful of paths in Python."""
    keys: list[str] = match_keys(pa.array(paths, pa.string()), match_by).to_pylist()
    return keys


def canonical(paths: pa.Array) -> pa.Array:
    """Each path as `Location.parse(path).raw`: one scheme per store, one form for local paths."""
    paths = _present(paths)
    if _all_begin(paths, _first_store(paths)):
        return paths
    texts = paths
    for alias, scheme in _ALIASES:
        texts = _swap_prefix(texts, pc.starts_with(texts, alias), len(alias), scheme)
    texts = _swap_prefix(texts, pc.starts_with(texts, "/"), 0, "file://")
    short_file = pc.and_not(pc.starts_with(texts, "file:/"), pc.starts_with(texts, "file://"))
    texts = _swap_prefix(texts, short_file, len("file:"), "file://")
    with_bucket = pc.and_not(pc.match_substring_regex(texts, _SETTLED), pc.starts_with(texts, "file:"))
    settled = pc.or_(with_bucket, pc.starts_with(texts, "file:///"))
    return _one_by_one(paths, texts, pc.invert(settled), lambda text: Location.parse(text).raw)


def as_listed(paths: pa.Array) -> pa.Array:
    """Each path as a listing spells it: in a local path a run of slashes is one slash, in a key it is not."""
    paths = canonical(paths)
    local = pc.starts_with(paths, "file:")
    return pc.if_else(local, match_keys(paths, MatchBy.ADDRESS), paths) if pc.any(local).as_py() else paths


def inventory(listing: pa.RecordBatch, match_by: MatchBy) -> pa.RecordBatch:
    paths = listing.column("path")
    keys = _or_null(match_keys(paths, match_by), paths)
    return pa.RecordBatch.from_arrays([*listing.columns, keys], schema=INVENTORY_SCHEMA)


def place(
    paths: pa.Array, role: Role, match_by: MatchBy, roots: Sequence[Location], tolerated: pa.Array | bool = False
) -> pa.RecordBatch:
    """References of one role, made ready for the join. Raises Indeterminate if one of them cannot be placed.

    Where `tolerated`, storage need not show the file: the reference keeps it, but never counts it as missing, nor as a
    live file that nobody looks for.
    """
    paths = _present(paths)
    if match_by is MatchBy.ADDRESS and len(roots) == 1 and _plain(paths, _below(roots[0])):
        return _placed([paths, _nulls(paths), _all_true(paths), _nulls(paths)], role, tolerated)
    _refuse_dot_segments(paths)
    if match_by is MatchBy.NAME:
        keys = _last_segments(paths)
        _refuse(pc.equal(keys, ""), paths, "it names a directory")
        if keys is paths:  # bare names, all of them
            return _placed([_nulls(paths), keys, _all_true(paths), _nulls(paths)], role, tolerated)
        addresses = _addresses_among(paths)
        inside = pc.or_(pc.is_null(addresses), pc.fill_null(_inside(_collapsed(addresses), roots), False))
        return _placed([addresses, keys, inside, _nulls(paths)], role, tolerated)
    addresses = canonical(paths)
    keys = _collapsed(addresses)
    inside = _inside(keys, roots)
    guarded = _guarded_names(keys, inside, roots)
    return _placed([addresses, _or_null(keys, addresses), inside, guarded], role, tolerated)


def placed_keys(placed: pa.RecordBatch) -> pa.Array:
    keys, same = placed.column("match_key"), placed.column("address")
    if keys.null_count == len(keys):
        return same
    return pc.coalesce(keys, same) if keys.null_count else keys


def _present(paths: pa.Array) -> pa.Array:
    if paths.null_count:
        raise Indeterminate("a reference has no address")
    return paths if paths.type == pa.string() else paths.cast(pa.string())


def _placed(columns: Sequence[pa.Array], role: Role, tolerated: pa.Array | bool) -> pa.RecordBatch:
    addresses, keys, inside, guarded = columns
    roles = pa.repeat(pa.scalar(role.value, pa.string()), len(addresses))
    outside = pc.invert(inside)
    if tolerated is not False:
        inside, outside = pc.and_not(inside, tolerated), pc.and_not(outside, tolerated)
    return pa.RecordBatch.from_arrays([roles, addresses, keys, inside, outside, guarded], schema=PLACED_SCHEMA)


def _nulls(like: pa.Array) -> pa.Array:
    return pa.nulls(len(like), pa.string())


def _all_true(like: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(value=True), len(like))


def _first_store(paths: pa.Array) -> str:
    """How every address of the first path's store begins in normal form; empty if that path is no address."""
    first = Location.parse_or_none(paths[0].as_py()) if len(paths) else None
    return first.store if first else ""


def _below(root: Location) -> str:
    """How the match key of everything below a root begins."""
    return root.match_key.rstrip("/") + "/"


def _all_begin(paths: pa.Array, prefix: str) -> bool:
    """Do all paths begin with this well-formed prefix? Then their schemes and buckets need no rewriting."""
    return not len(paths) or (bool(prefix) and bool(pc.all(pc.starts_with(paths, prefix)).as_py()))


def _plain(paths: pa.Array, prefix: str) -> bool:
    """Is every path already what it is compared by, and without dot segments? For certain only if the answer is yes:
    each must begin with `prefix`, which is in normal form, and have no slash behind it that a slash or dot follows."""
    if not len(paths):
        return True
    if "://" not in prefix or not _all_begin(paths, prefix):
        return False
    doubled = sum(prefix.startswith("//", at) for at in range(len(prefix)))
    pieces = (paths.slice(first, _LOOKED_AT_ONCE) for first in range(0, len(paths), _LOOKED_AT_ONCE))
    return all(_untouched(piece, doubled) for piece in pieces)


def _untouched(paths: pa.Array, doubled: int) -> bool:
    """Is a slash followed by a slash only so often in each path, and never by a dot? No path has fewer double slashes,
    so it is enough to count both together: the two characters differ in their lowest bit alone."""
    texts = _texts(paths)
    odd = (texts[:-1] == _SLASH) & ((texts[1:] | 1) == _SLASH)
    return bool(np.count_nonzero(odd) == doubled * len(paths))


def _texts(paths: pa.Array) -> Any:
    """The bytes of all texts, one behind the other, as a NumPy array that shares their memory."""
    _, offsets, data = paths.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(paths) + 1, [None, offsets], offset=paths.offset)
    start, stop = ends[0].as_py(), ends[len(paths)].as_py()
    return pa.Array.from_buffers(pa.uint8(), stop - start, [None, data or pa.py_buffer(b"")], offset=start).to_numpy()


def _swap_prefix(texts: pa.Array, chosen: pa.Array, length: int, prefix: str) -> pa.Array:
    if not pc.any(chosen).as_py():
        return texts
    return pc.if_else(chosen, pc.binary_replace_slice(texts, start=0, stop=length, replacement=prefix), texts)


def _collapsed(addresses: pa.Array) -> pa.Array:
    """Runs of slashes behind the scheme become one slash."""
    if not pc.any(pc.greater(pc.count_substring(addresses, "//"), 1)).as_py():  # one is the scheme's
        return addresses
    texts = pc.replace_substring_regex(addresses, r"([^:/])/{2,}", r"\1/")
    left = pc.greater(pc.count_substring(texts, "//"), 1)
    return _one_by_one(addresses, texts, left, lambda text: Location.parse(text).match_key)


def _one_by_one(paths: pa.Array, texts: pa.Array, odd: pa.Array, rule: Callable[[str], str]) -> pa.Array:
    """Pass unusual rows to `Location` itself: rare spellings need no special case here."""
    if not pc.any(odd).as_py():
        return texts
    decoded = []
    for path in paths.filter(odd).to_pylist():
        try:
            decoded.append(rule(path))
        except ValueError as exc:
            raise Indeterminate(f"a reference is not a valid address: {exc}") from exc
    return pc.replace_with_mask(texts, odd, pa.array(decoded, pa.string()))


def _last_segments(paths: pa.Array) -> pa.Array:
    if len(paths) and not (_texts(paths) == _SLASH).any():
        return paths
    pieces = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    ends = pc.subtract(pc.cumulative_sum(pc.list_value_length(pieces)), 1)
    return pc.list_flatten(pieces).take(ends)


def _addresses_among(paths: pa.Array) -> pa.Array:
    """Normalised addresses where a path is one, null where it is a bare name."""
    absolute = pc.match_substring_regex(paths, r"^([A-Za-z][A-Za-z0-9+.-]*:)?/")
    if pc.all(absolute).as_py():
        return canonical(paths)
    return pc.if_else(absolute, canonical(pc.if_else(absolute, paths, "/")), pa.scalar(None, pa.string()))


def _inside(keys: pa.Array, roots: Sequence[Location]) -> pa.Array:
    inside = pa.repeat(pa.scalar(False), len(keys))
    for root in roots:
        inside = pc.or_(inside, pc.starts_with(keys, _below(root)))
    return inside


def _guarded_names(keys: pa.Array, inside: pa.Array, roots: Sequence[Location]) -> pa.Array:
    """File names of references that storage cannot confirm where we look: outside the roots, or, with several roots,
    anywhere. Such a reference keeps every listed object of that name: the table may have been copied or renamed, or one
    bucket or directory may have two names. File names are unique, so this keeps hardly anything else."""
    doubtful = pc.invert(inside) if len(roots) == 1 else pc.true_unless_null(inside)
    if not pc.any(doubtful).as_py():
        return pa.nulls(len(keys), pa.string())
    return pc.if_else(doubtful, _last_segments(keys), pa.scalar(None, pa.string()))


def _or_null(keys: pa.Array, same: pa.Array) -> pa.Array:
    """Null where the key is the address itself."""
    if keys is same:
        return pa.nulls(len(keys), pa.string())
    return pc.if_else(pc.equal(keys, same), pa.scalar(None, pa.string()), keys)


def _refuse_dot_segments(paths: pa.Array) -> None:
    """`a/./b` and `a/../b` are other names on some stores and plain keys on others: it is unknown which file."""
    if pc.any(pc.or_(pc.match_substring_regex(paths, r"/\."), pc.starts_with(paths, "."))).as_py():
        _refuse(pc.match_substring_regex(paths, DOT_SEGMENT), paths, "it contains '.' or '..' as a path segment")


def _refuse(bad: pa.Array, paths: pa.Array, why: str) -> None:
    if pc.any(bad).as_py():
        raise Indeterminate(f"the reference {paths.filter(bad)[0].as_py()!r} is not a valid address: {why}")
