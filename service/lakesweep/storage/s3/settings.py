"""How S3 is reached: the settings `[storage.s3]`, and the options that a store is opened with."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from lakesweep.settings.values import Count, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """One S3 endpoint and its limits: what S3Settings has, and more. Sent to worker processes, so it never contains a
    key: credentials come from the usual AWS chain on the machine that opens the store."""

    endpoint_url: str | None = None
    region: str | None = None
    path_style: bool = False
    profile: str | None = None
    max_connections: int = 64
    """Connections of one client. Further requests wait for a free one."""
    listing_concurrency: int = 16
    page_size: int = 1000
    """Keys per list request; S3 never returns more than 1000."""
    delete_concurrency: int = 10
    """The most DeleteObjects requests that one deleter has in flight."""
    compare_etags: bool = True
    connect_timeout_seconds: float = 10
    read_timeout_seconds: float = 60
    attempts: int = 5
    """Attempts of one request, including the first; throttled requests slow the client down (adaptive mode)."""


class S3Settings(Group):
    """`[storage.s3]`: how S3 is reached. Keys come from the usual AWS chain only (environment, profile, web
    identity, instance role), never from this file."""

    endpoint_url: str | None = Field(default=None, pattern=r"^https?://\S+$", json_schema_extra={"format": "http-url"})
    """Where an S3-compatible store listens, such as http://minio:9000. Without it: AWS."""
    region: str | None = None
    """AWS region. Without it: what the AWS chain says."""
    path_style: bool = False
    """Address buckets as http://host/bucket/key instead of http://bucket.host/key; most other stores need it."""
    profile: str | None = None
    """Profile of the AWS configuration files to take credentials from."""
    max_connections: Count = 64
    """Connections to the store open at one time, shared by listing, reading and deleting."""
    listing_concurrency: Count = 16
    """List requests in flight for one table. Above 1 a large listing is divided by key; set 1 for a store that does not
    list in key order."""
    compare_etags: bool = True
    """Delete an object only if the store still has it under the etag that was listed. Stores that cannot compare delete
    without; switch it off for one whose listings show other etags than it compares."""

    def options(self) -> S3Options:
        return S3Options(**self.model_dump())

    @property
    def identity(self) -> str:
        return str(self.endpoint_url)
