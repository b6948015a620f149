"""Tokens, and who requested something. Pure values; they never contain a token's secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

EVERY_TENANT = "*"
"""In a token's list of tenants: all of them, including those configured later."""


class Role(StrEnum):
    """What a token may do with the tables of its tenants."""

    READ = "read"
    """Look at tables, runs and plans."""
    OPERATE = "operate"
    """Also start, approve and cancel runs, and pause the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """One bearer token as it is stored: only the SHA-256 of its secret is kept."""

    id: str
    digest: str
    role: Role
    tenants: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def valid_at(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who a request comes from."""

    name: str
    """For logs and the audit trail: `token 3f9a…` or `local`."""
    role: Role
    tenants: tuple[str, ...]

    @property
    def sees_all(self) -> bool:
        return EVERY_TENANT in self.tenants

    @property
    def operates(self) -> bool:
        return self.role is Role.OPERATE

    def sees(self, tenant: str) -> bool:
        return self.sees_all or tenant in self.tenants


class TriggeredBy(StrEnum):
    """What started a run."""

    SCHEDULE = "schedule"
    COMMAND = "command"
    API = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Who or what requested a run, as the audit trail records it."""

    by: TriggeredBy
    who: str
