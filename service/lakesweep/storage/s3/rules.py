"""Read from S3 whether a bucket keeps versions and which lifecycle rules it has. Remembered for an hour.

Both permissions are optional (s3:GetBucketVersioning, s3:GetLifecycleConfiguration): without them, or with a store that
does not know these requests, the answer is unknown, which is logged once and changes nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import structlog

from lakesweep.model.errors import NotFound, StorageError
from lakesweep.model.leftovers import LeftoverKind, LeftoverPage
from lakesweep.model.location import Location
from lakesweep.model.store_rules import BucketRules, LifecycleRule, StoreRules, Versioning, at
from lakesweep.storage.s3.client import S3Connection
from lakesweep.storage.s3.errors import translating
from lakesweep.storage.s3.leftovers import S3Leftovers
from lakesweep.storage.s3.settings import S3Options

log = structlog.get_logger()

REMEMBERED_SECONDS = 3600.0
_STATUS = {"Enabled": Versioning.ON, "Suspended": Versioning.SUSPENDED, None: Versioning.OFF}
T = TypeVar("T")


class S3Rules:
    """The rules of the buckets that one tenant's options reach."""

    def __init__(self, options: S3Options, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._connection = S3Connection(options, attempts=options.attempts)
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, BucketRules]] = {}
        self._reading = asyncio.Lock()
        self._reported: set[tuple[str, str]] = set()

    async def rules(self, place: Location) -> StoreRules:
        async with self._reading:
            read_at, bucket = self._known.get(place.authority, (None, None))
            if bucket is None or read_at is None or self._monotonic() - read_at > REMEMBERED_SECONDS:
                bucket = BucketRules(
                    versioning=await self._learn(place.authority, "s3:GetBucketVersioning", self._versioning)
                    or Versioning.UNKNOWN,
                    lifecycle=await self._learn(place.authority, "s3:GetLifecycleConfiguration", self._lifecycle),
                )
                self._known[place.authority] = (self._monotonic(), bucket)
        return at(place, bucket)

    async def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:
        """A bucket that never kept versions says so with one request, and then none are listed."""
        kept = (await self.rules(place)).versioning
        if kept is Versioning.OFF:
            yield LeftoverPage(kind=LeftoverKind.NONCURRENT_VERSIONS, files=(), requests=1)
        else:
            async with aclosing(S3Leftovers(self._connection, place).versions()) as versions:
                async for page in versions:
                    yield page
        async with aclosing(S3Leftovers(self._connection, place).uploads()) as uploads:
            async for page in uploads:
                yield page

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _learn(self, bucket: str, action: str, read: Callable[[str], Awaitable[T]]) -> T | None:
        try:
            with translating(f"s3://{bucket}", self._connection.endpoint, action):
                return await read(bucket)
        except StorageError as exc:
            if (bucket, action) not in self._reported:
                self._reported.add((bucket, action))
                log.warning("bucket_rules_unknown", bucket=bucket, needs=action, reason=exc.why)
            return None

    async def _versioning(self, bucket: str) -> Versioning:
        client = await self._connection.client()
        answer = await client.get_bucket_versioning(Bucket=bucket)
        return _STATUS.get(answer.get("Status") or None, Versioning.UNKNOWN)

    async def _lifecycle(self, bucket: str) -> tuple[LifecycleRule, ...]:
        client = await self._connection.client()
        try:
            with translating(f"s3://{bucket}", self._connection.endpoint, "s3:GetLifecycleConfiguration"):
                answer = await client.get_bucket_lifecycle_configuration(Bucket=bucket)
        except NotFound:  # NoSuchLifecycleConfiguration: there are no rules
            return ()
        return tuple(rule for one in answer.get("Rules", ()) if (rule := _rule(one)) is not None)


def _rule(given: Mapping[str, Any]) -> LifecycleRule | None:
    """A rule that applies to all objects below its prefix; None if it is disabled or applies to some of them only."""
    prefix = _prefix(given)
    if given.get("Status") != "Enabled" or prefix is None:
        return None
    noncurrent = given.get("NoncurrentVersionExpiration") or {}
    # With NewerNoncurrentVersions the newest ones stay for ever, and that of a deleted object is the newest.
    days = None if noncurrent.get("NewerNoncurrentVersions") else noncurrent.get("NoncurrentDays")
    abort = (given.get("AbortIncompleteMultipartUpload") or {}).get("DaysAfterInitiation")
    return LifecycleRule(prefix=prefix, noncurrent_days=days, abort_uploads_days=abort)


def _prefix(given: Mapping[str, Any]) -> str | None:
    """None for a rule that also filters by tags or sizes."""
    chosen = given.get("Filter") or {}
    if "And" in chosen or set(chosen) - {"Prefix"}:
        return None
    return str(chosen.get("Prefix", given.get("Prefix")) or "")
