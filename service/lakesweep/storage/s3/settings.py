"""The settings `[storage.s3]`."""

from __future__ import annotations

from pydantic import Field

from lakesweep.settings.values import Count, Group
from lakesweep.storage.s3.options import S3Options


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
        """Different for two stores in which the same address names different objects."""
        return str(self.endpoint_url)
