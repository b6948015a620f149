"""What names files at one state of a table, and how a source of references is decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

REFERENCE_SCHEMA = pa.schema([pa.field("path", pa.string(), nullable=False)])
"""The rows of a decoder: addresses (or bare names, see MatchBy) as the metadata spells them."""


TOLERATED = pa.field("tolerated", pa.bool_(), nullable=False)
"""A decoder may add this column. A true row keeps the file it names like any other, but the file may be absent
without the table being damaged (a Delta tombstone, a second spelling of an address)."""


ELSEWHERE = pa.field("elsewhere", pa.bool_(), nullable=False)
"""A decoder that adds TOLERATED may add this column behind it. A true row is a live file outside the roots that is only
counted. If the path can also mean a file below the roots, other rows keep that file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource:
    """One immutable object that names live files, such as a manifest, a checkpoint part or a log file. Picklable.

    `retained=False` marks a source that only expiring snapshots use: what it names is deletable unless a
    retained source names it too, and failing to read it only shrinks the work."""

    location: Location
    format: FormatName
    kind: str
    retained: bool
    size_bytes: int | None = None
    """Recorded length; a different length is damage."""
    entries: int | None = None
    """Recorded number of entries, where something records it."""
    at_least: int | None = None
    """The least number of references according to metadata. A cache entry with fewer is rejected."""
    context: tuple[tuple[str, str], ...] = ()
    """What the decoder needs besides the bytes (a table root, a partition layout)."""

    @property
    def cache_key(self) -> str:
        """Sources with the same key have the same rows: sources are immutable."""
        extra = "|".join(f"{name}={value}" for name, value in self.context)
        return f"{self.format}|{self.kind}|{self.location.raw}|{self.size_bytes}|{self.entries}|{extra}"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Everything that names files, at one head."""

    retained: tuple[str, ...]
    """Paths named directly by metadata that stays: metadata files, manifest lists, manifests, statistics."""
    expired: tuple[str, ...]
    """The same, named only by what this cycle expires."""
    sources: tuple[ReferenceSource, ...]
    """Sources to decode for the rest. The same object appears once, as retained if anything retained uses it."""
    released: tuple[str, ...] = ()
    """Paths the format itself has proven dead at this head although a source still spells them (a Delta
    checkpoint's add that a later commit removed; a Paimon manifest's ADD with its DELETE in another manifest).
    A source's mention of them does not count as retained; `retained` above always does."""
    tolerated: tuple[str, ...] = ()
    """Kept exactly like `retained`, but never `missing`: see TOLERATED."""
    elsewhere: tuple[str, ...] = ()
    """Live files outside the roots that are only counted: see ELSEWHERE."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Everything that metadata names directly and that is therefore kept."""
        return self.retained + self.tolerated


Decode = Callable[[ReferenceSource, bytes], pa.RecordBatch]
"""Decodes bytes to references. Pure. Detects truncation. Runs in threads, processes and Spark workers."""
