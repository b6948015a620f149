"""Which table: tenant, dataset, name, format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

TenantId = NewType("TenantId", str)

BARE_TENANT = TenantId("location")
"""The tenant in the label of a table that is given by its location only. No configured tenant may be called so."""


class FormatName(StrEnum):
    """The table formats Lakesweep knows."""

    ICEBERG = "iceberg"
    PAIMON = "paimon"
    DELTA = "delta"


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
