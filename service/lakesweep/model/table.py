"""Which table: tenant, dataset, name, format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

TenantId = NewType("TenantId", str)

BARE_TENANT = TenantId("location")
"""The tenant in the label of a table that is given only by its location. No configured tenant may have this name."""


GHOSTS = "~ghosts"
"""The dataset in the label of a former table that nobody claims. No configured dataset may have this name."""


class FormatName(StrEnum):
    """The table formats Lakesweep knows."""

    ICEBERG = "iceberg"
    PAIMON = "paimon"
    DELTA = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFacts:
    """What settings, command line and daemon must know about a format without opening one of its tables."""

    keys: tuple[str, ...]
    """The keys of a dataset that belong to it; the first one is required."""
    retention: str
    """How its tables' own metadata affects retention, as a sentence for people."""
    noun: str = "snapshot"
    """The format's own term for a retained state."""
    clones_by_name: bool = False
    """May a table name files relative to its root that are another table's? Delta's shallow clones do."""
    whole_metadata: bool = False
    """Is each state one metadata file, so that an older file still has what an expiry took out?"""


FACTS = {
    FormatName.ICEBERG: FormatFacts(
        keys=("catalog", "namespace"),
        retention="the retention of a branch or tag and the table's history.expire.* properties override "
        "max_snapshot_age_hours and min_snapshots_to_keep",
        whole_metadata=True,
    ),
    FormatName.PAIMON: FormatFacts(
        keys=("warehouse", "database"),
        retention="the table's own retention options, such as snapshot.time-retained, override "
        "max_snapshot_age_hours and min_snapshots_to_keep; while both have their defaults, at least ten snapshots stay",
    ),
    FormatName.DELTA: FormatFacts(
        keys=("location", "vacuum_mode", "has_shallow_clones"),
        retention="delta.logRetentionDuration takes the place of max_snapshot_age_hours, and unreferenced files "
        "wait for the longer of grace_period_hours and delta.deletedFileRetentionDuration",
        noun="version",
        clones_by_name=True,
    ),
}


def is_ghost(label: str) -> bool:
    """Is this the label of a former table that nobody claims?"""
    return label.split("/", 2)[1:2] == [GHOSTS]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TableRef:
    """The structured name of a table. Parts may contain any character; only `label` joins them."""

    tenant: TenantId
    dataset: str
    name: str
    format: FormatName

    @property
    def label(self) -> str:
        """`tenant/dataset/table`, as people and targets write it. A bare location is its own label."""
        return f"{self.tenant}/{self.dataset}/{self.name}" if self.tenant else self.name

    def __str__(self) -> str:
        return self.label
