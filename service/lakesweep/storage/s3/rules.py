"""Read from S3 whether a bucket keeps versions and which lifecycle rules it has, remembered for an hour; and count what
is stored there beside the objects.

Both permissions are optional (s3:GetBucketVersioning, s3:GetLifecycleConfiguration): without them, or with a store that
does not know these requests, the answer is unknown, which is logged once and changes nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import structlog

from lakesweep.model import store_rules
from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.location import Location
from lakesweep.model.store_rules import LeftoverKind, LeftoverPage, LifecycleRule, Versioning
from lakesweep.storage.s3.client import S3Connection
from lakesweep.storage.s3.settings import S3Options

log = structlog.get_logger()

REMEMBERED_SECONDS = 3600.0
_STATUS = {"Enabled": Versioning.ON, "Suspended": Versioning.SUSPENDED, None: Versioning.OFF}
MOST_REQUESTS = 1000
"""For one kind below one place: enough for a million versions, or some hundred uploads with their parts."""

_VERSIONS, _UPLOADS = LeftoverKind.NONCURRENT_VERSIONS, LeftoverKind.INCOMPLETE_UPLOADS
_STUCK = "the store says that there is more, but not where to continue"
T = TypeVar("T")


class S3Rules:
    """The rules of the buckets that one tenant's options reach."""

    def __init__(self, options: S3Options, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._connection = S3Connection(options, attempts=options.attempts)
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, store_rules.BucketRules]] = {}
        self._reading = asyncio.Lock()
        self._reported: set[tuple[str, str]] = set()

    async def rules(self, place: Location) -> store_rules.StoreRules:
        async with self._reading:
            read_at, bucket = self._known.get(place.authority, (None, None))
            if bucket is None or read_at is None or self._monotonic() - read_at > REMEMBERED_SECONDS:
                bucket = store_rules.BucketRules(
                    versioning=await self._learn(place.authority, "s3:GetBucketVersioning", self._versioning)
                    or Versioning.UNKNOWN,
                    lifecycle=await self._learn(place.authority, "s3:GetLifecycleConfiguration", self._lifecycle),
                )
                self._known[place.authority] = (self._monotonic(), bucket)
        return store_rules.at(place, bucket)

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
            return await read(bucket)
        except StorageError as exc:
            if (bucket, action) not in self._reported:
                self._reported.add((bucket, action))
                log.warning("bucket_rules_unknown", bucket=bucket, needs=action, reason=exc.why)
            return None

    async def _versioning(self, bucket: str) -> Versioning:
        async with self._connection.calling(f"s3://{bucket}", "s3:GetBucketVersioning") as client:
            answer = await client.get_bucket_versioning(Bucket=bucket)
        return _STATUS.get(answer.get("Status") or None, Versioning.UNKNOWN)

    async def _lifecycle(self, bucket: str) -> tuple[LifecycleRule, ...]:
        try:
            async with self._connection.calling(f"s3://{bucket}", "s3:GetLifecycleConfiguration") as client:
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


class S3Leftovers:
    """One count of what S3 stores below a prefix beside its objects: noncurrent versions, or uploads that were never
    completed.

    Reads only (s3:ListBucketVersions, s3:ListBucketMultipartUploads, s3:ListMultipartUploadParts), page by page, and
    never more than `MOST_REQUESTS`. A request that fails ends the count with its reason."""

    def __init__(self, connection: S3Connection, place: Location, most_requests: int = MOST_REQUESTS) -> None:
        self._connection = connection
        self._place = place
        self._below = {"Bucket": place.authority, "Prefix": place.as_directory().path}
        self._most = most_requests
        self._sent = 0
        self._sizes_unknown: str | None = None

    async def versions(self) -> AsyncGenerator[LeftoverPage, None]:
        """Count every version that is not the current one of its key. Delete markers have no bytes and are not
        counted."""
        marker: dict[str, str] | None = {}
        while marker is not None:
            try:
                answer = await self._ask("s3:ListBucketVersions", "list_object_versions", **self._below, **marker)
            except StorageError as exc:
                yield LeftoverPage(kind=_VERSIONS, requests=self._sent, problem=exc.why)
                return
            files = [
                self._file(one["Key"], one.get("Size", 0))
                for one in self._those_below(answer.get("Versions", ()))
                if one.get("IsLatest") is False
            ]
            marker, problem = self._next(answer, marker, "VersionIdMarker")
            yield LeftoverPage(kind=_VERSIONS, files=files, requests=self._sent, problem=problem)

    async def uploads(self) -> AsyncGenerator[LeftoverPage, None]:
        """Count every upload with the bytes of its parts, which takes one request each."""
        marker: dict[str, str] | None = {}
        while marker is not None:
            try:
                answer = await self._uploads_after(marker)
            except StorageError as exc:
                yield LeftoverPage(kind=_UPLOADS, requests=self._sent, problem=exc.why)
                return
            found = self._those_below(answer.get("Uploads", ()))
            sized = [await self._sized(one["Key"], one.get("UploadId", "")) for one in found]
            marker, problem = self._next(answer, marker, "UploadIdMarker")
            files = [one for one in sized if one is not None]
            problem = problem or (self._sizes_unknown if marker is None else None)
            yield LeftoverPage(kind=_UPLOADS, files=files, requests=self._sent, problem=problem)

    async def _uploads_after(self, marker: Mapping[str, str]) -> dict[str, Any]:
        """The client decodes pages of versions, but not these, and some stores say that they encode them and do not. So
        encoding is requested only where a key may have broken the page, which the client reports as a 500."""
        page = partial(self._ask, "s3:ListBucketMultipartUploads", "list_multipart_uploads", **self._below, **marker)
        try:
            return await page()
        except Unavailable:
            answer = await page(EncodingType="url")
        if answer.get("EncodingType") == "url":
            answer["Uploads"] = [{**one, "Key": unquote_plus(one.get("Key", ""))} for one in answer.get("Uploads", ())]
            answer["NextKeyMarker"] = unquote_plus(answer.get("NextKeyMarker") or "")
        return answer

    async def _sized(self, key: str, upload: str) -> tuple[str, int] | None:
        """An upload with its bytes; 0 once it is clear that they are not available. None: it ended meanwhile."""
        upload_of = {"Bucket": self._place.authority, "Key": key, "UploadId": upload}
        size, last, marker = 0, 0, dict[str, int]()
        while self._sizes_unknown is None:
            if self._sent >= self._most:
                self._sizes_unknown = f"the sizes of some are not known: {self._enough()}"
                break
            try:
                parts = await self._ask("s3:ListMultipartUploadParts", "list_parts", key, **upload_of, **marker)
            except NotFound:
                return None
            except StorageError as exc:
                self._sizes_unknown = f"the sizes of some are not known: {exc.why}"
                break
            size += sum(int(part.get("Size", 0)) for part in parts.get("Parts", ()))
            before, last = last, int(parts.get("NextPartNumberMarker") or 0)
            if not parts.get("IsTruncated") or last <= before:
                break
            marker = {"PartNumberMarker": last}
        return self._file(key, size)

    async def _ask(self, action: str, request: str, key: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send one request of the client, about the place or one key. `action` is the permission that it needs."""
        self._sent += 1
        address = self._place.raw if key is None else f"{self._place.store}{key}"
        async with self._connection.calling(address, action) as client:
            return dict(await getattr(client, request)(**parameters))

    def _those_below(self, listed: Any) -> list[dict[str, Any]]:
        """A store that ignores the prefix must not make us count other people's objects."""
        return [one for one in listed if str(one.get("Key", "")).startswith(self._below["Prefix"])]

    def _next(
        self, answer: Mapping[str, Any], marker: Mapping[str, str], second: str
    ) -> tuple[dict[str, str] | None, str | None]:
        """Where the next page begins; or None and, if there is more that is not counted, the reason."""
        if not answer.get("IsTruncated"):
            return None, None
        following = {name: str(answer[f"Next{name}"]) for name in ("KeyMarker", second) if answer.get(f"Next{name}")}
        if "KeyMarker" not in following or following == marker:
            return None, _STUCK
        return (None, self._enough()) if self._sent >= self._most else (following, None)

    def _file(self, key: str, size: int) -> tuple[str, int]:
        return f"{self._place.store}{key}", int(size)

    def _enough(self) -> str:
        return f"counting stopped after {self._most:,} requests"
