"""One S3 endpoint and its limits. Sent to worker processes, so it never contains a key.

Credentials come from the usual AWS chain on the machine that opens the store: environment, profile, web
identity, container or instance role.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """One S3 endpoint and its limits."""

    endpoint_url: str | None = None
    """None for AWS; otherwise the address of an S3-compatible store."""
    region: str | None = None
    """None: from the AWS chain. Other stores mostly ignore it."""
    path_style: bool = False
    """`endpoint/bucket/key` instead of `bucket.endpoint/key`: most stores other than AWS need it."""
    profile: str | None = None
    """A profile of the AWS configuration files."""
    max_connections: int = 64
    """Connections of one client. Further requests wait for a free one."""
    listing_concurrency: int = 16
    """List requests in flight for one root."""
    page_size: int = 1000
    """Keys per list request; S3 never returns more than 1000."""
    delete_concurrency: int = 10
    """The most DeleteObjects requests that one deleter has in flight."""
    compare_etags: bool = True
    """Have the store compare the etag of each object that is deleted, where it can."""
    connect_timeout_seconds: float = 10
    read_timeout_seconds: float = 60
    attempts: int = 4
    """Attempts of one request, including the first; throttled requests slow the client down (adaptive mode)."""
