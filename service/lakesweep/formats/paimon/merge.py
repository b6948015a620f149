"""Merging manifests: which ones, and what becomes of their entries. Pure.

    full    when small manifests and those with deletes add up to the threshold: everything but large manifests
            that no delete can concern is written anew, without the deleted files
    minor   otherwise: neighbours are merged whenever they add up to the target size, and the rest when it is many

In a merge an ADD and the DELETE of the same identity cancel. A DELETE whose ADD is not among the merged manifests
stays, in its place behind the ADD: to drop it would bring the file back. A second ADD of one identity is damage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesweep.formats.paimon import manifests
from lakesweep.formats.paimon.binaryrow import decode_row, sort_key
from lakesweep.formats.paimon.manifests import ManifestMeta, ManifestRecord
from lakesweep.formats.paimon.options import ManifestOptions
from lakesweep.formats.paimon.schema import FieldType

Entry = dict[str, Any]
Identity = tuple[Any, ...]
Position = tuple[str, int]
"""A manifest, and which of its entries."""
_NAME = manifests.IDENTITY.index("name")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The manifests of a new base list: each group in order, a single one is kept as it is."""

    groups: tuple[tuple[ManifestRecord, ...], ...]

    @property
    def empty(self) -> bool:
        return all(len(group) == 1 for group in self.groups)


def must_change(meta: ManifestMeta, rules: ManifestOptions) -> bool:
    """Small, or with deletes: a full merge is for these."""
    return meta.deleted > 0 or meta.size_bytes < rules.target_size


def wants_full(metas: Sequence[ManifestMeta], rules: ManifestOptions) -> bool:
    return sum(meta.size_bytes for meta in metas if must_change(meta, rules)) >= rules.full_threshold


def plan_full(
    metas: Sequence[ManifestRecord],
    rules: ManifestOptions,
    deleted_partitions: Iterable[bytes],
    types: Sequence[FieldType],
) -> MergePlan | None:
    """Large manifests without deleted files as they are; then all others as one. None if nothing is gained."""
    may_hold = _partition_filter(list(deleted_partitions), types)
    untouched = [meta for meta in metas if not must_change(meta, rules) and not may_hold(meta)]
    names = {meta.name for meta in untouched}
    merged = tuple(meta for meta in metas if meta.name not in names)
    as_few_as_can_be = math.ceil(sum(meta.size_bytes for meta in merged) / rules.target_size)
    if len(merged) <= 1 or (len(merged) <= as_few_as_can_be and not any(meta.deleted for meta in merged)):
        return None
    return MergePlan(groups=(*((meta,) for meta in untouched), merged))


def plan_minor(metas: Sequence[ManifestRecord], rules: ManifestOptions) -> MergePlan:
    """Neighbours up to the target size, and the remainder if there are enough of them."""
    groups: list[tuple[ManifestRecord, ...]] = []
    waiting: list[ManifestRecord] = []
    size = 0
    for meta in metas:
        waiting.append(meta)
        size += meta.size_bytes
        if size >= rules.target_size:
            groups.append(tuple(waiting))
            waiting, size = [], 0
    if len(waiting) >= rules.merge_min_count:
        groups += [tuple(waiting)] if waiting else []
    else:
        groups += [(meta,) for meta in waiting]
    return MergePlan(groups=tuple(groups))


def identity(entry: Mapping[str, Any]) -> Identity:
    """The same of a whole entry as `manifests.identity` gives its row."""
    file = entry["_FILE"]
    return (
        entry["_PARTITION"],
        entry["_BUCKET"],
        file["_LEVEL"],
        file["_FILE_NAME"],
        tuple(file.get("_EXTRA_FILES") or ()),
        file.get("_EMBEDDED_FILE_INDEX"),
        file.get("_EXTERNAL_PATH"),
    )


class Standing:
    """What is left of the entries of neighbouring manifests: fed once in order, then asked entry by entry."""

    def __init__(self) -> None:
        self._added: dict[Identity, Position] = {}
        self._deleted: dict[Identity, Position] = {}

    def feed(self, manifest: str, changes: Iterable[tuple[int, Identity]]) -> None:
        """The changes of the next manifest. Raises ValueError on a second ADD of one identity."""
        for index, (kind, key) in enumerate(changes):
            if kind == manifests.ADD:
                if key in self._added:
                    raise ValueError(f"{key[_NAME]} is added twice")
                self._added[key] = (manifest, index)
            elif self._added.pop(key, None) is None:
                self._deleted.setdefault(key, (manifest, index))

    def __len__(self) -> int:
        return len(self._added) + len(self._deleted)

    def left_whole(self, metas: Iterable[ManifestRecord]) -> list[ManifestRecord]:
        """Manifests that may go in front of all others as they are: every file that they add is left, and none was
        added again after a DELETE that is left as well, which would delete it."""
        left = Counter(origin for origin, _ in self._added.values())
        again = {self._added[key][0] for key in self._deleted.keys() & self._added.keys()}
        return [meta for meta in metas if left[meta.name] == meta.added and meta.name not in again]

    def keeps(self, manifest: str, index: int, entry: Entry) -> bool:
        known = self._added if entry["_KIND"] == manifests.ADD else self._deleted
        return known.get(identity(entry)) == (manifest, index)


def _partition_filter(deleted: Sequence[bytes], types: Sequence[FieldType]) -> Callable[[ManifestRecord], bool]:
    """May a manifest hold a file of one of these partitions? By its statistics; doubt means yes."""
    if not deleted:
        return lambda _: False
    try:
        rows = [decode_row(raw, types) for raw in deleted]
    except ValueError:
        return lambda _: True

    def may_hold(meta: ManifestRecord) -> bool:
        stats = meta.document.get("_PARTITION_STATS") or {}
        try:
            low, high = decode_row(stats["_MIN_VALUES"], types), decode_row(stats["_MAX_VALUES"], types)
        except (ValueError, KeyError, TypeError):
            return True
        return any(all(map(_between, low, row, high)) for row in rows)

    return may_hold


def _between(low: Any, value: Any, high: Any) -> bool:
    if None in (low, value, high):
        return True
    return bool(sort_key(low) <= sort_key(value) <= sort_key(high))
