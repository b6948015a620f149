"""S3: reading and writing. Deleting is in `deleter`, separate on purpose. Keys travel byte for byte: they are never
parsed as URLs, and the client escapes them for the wire."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import ClientError

from lakesweep import aio
from lakesweep.model.errors import AlreadyThere, NotFound, TooLarge, Unavailable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA, Part, stat_or_none
from lakesweep.storage.s3.client import PAGE, AnsweredClock, S3Connection
from lakesweep.storage.s3.errors import translating
from lakesweep.storage.s3.list_parser import Page
from lakesweep.storage.s3.listing import FetchPage, Listing, named_directories, pages_between, pages_of
from lakesweep.storage.s3.settings import S3Options
from lakesweep.storage.s3.shards import Division
from lakesweep.telemetry import requests

_DIRECTORY_BUCKET = "--x-s3"
"""The suffix of S3 Express buckets, which list in no order and do not support StartAfter."""
_RANGE_BYTES = 16 * 1024 * 1024
"""The most that one request reads; one connection to S3 carries about fifty megabytes a second."""
_RANGES_AT_ONCE = 4
_TAKEN = (409, 412)
"""The name exists, or another create-only write to it is under way and will win."""


class S3Storage:
    """Reads objects. Has no way to delete or overwrite one."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._clock = AnsweredClock()
        self._objects = S3Connection(options, attempts=options.attempts, clock=self._clock)
        self._lists = S3Connection(options, attempts=options.attempts, lists=True, clock=self._clock)

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        return self.list_part(Part(root=root, prefix=root.as_directory().path))

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        return await Division(self._fetching(root), root, may_split=_sorts(root)).parts(wanted)

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        root = part.root
        listing = Listing(
            self._fetching(root),
            root.raw,
            part,
            concurrency=self._options.listing_concurrency,
            may_split=_sorts(root),
        )
        async with aclosing(listing.pages()) as pages:
            async for page in pages:
                batch = _batch(root.authority, page)
                if batch.num_rows:
                    yield batch

    async def directories(self, root: Location) -> Sequence[str]:
        prefix = root.as_directory().path
        pages = pages_of(self._fetching(root), root.raw, Prefix=prefix, Delimiter="/")
        return sorted({name async for page in pages for one in page.prefixes if (name := one[len(prefix) : -1])})

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        fetch, prefix = self._fetching(root), root.as_directory().path
        return sorted(await named_directories(fetch, prefix, names, sorts=_sorts(root)))

    def _fetching(self, root: Location) -> FetchPage:
        async def fetch(**parameters: str) -> Page:
            async with self._lists.calling(root.raw, "s3:ListBucket") as client:
                answer = await client.list_objects_v2(
                    Bucket=root.authority, MaxKeys=self._options.page_size, **parameters
                )
            page: Page = answer[PAGE]
            return page

        return fetch

    async def irregular(self, root: Location) -> Sequence[str]:  # noqa: ARG002  # the port's
        return ()

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object; a large one in concurrent ranges, all of the same version."""
        async with self._objects.calling(location.raw, "s3:GetObject") as client:
            answer = await client.get_object(Bucket=location.authority, Key=location.path)
            async with self._body(location, answer) as body:
                size, etag = int(answer["ContentLength"]), answer.get("ETag")
                if limit is not None and size > limit:
                    raise TooLarge(location.raw, limit)
                if size <= _RANGE_BYTES or not etag:
                    data: bytes = await body.read()
                    requests.sent("bytes_read", len(data))
                    return data
        return await self._read_ranges(location, size, etag)

    async def _read_ranges(self, location: Location, size: int, etag: str) -> bytes:
        async def read(start: int) -> bytes:
            return await self._read_range(location, start, min(start + _RANGE_BYTES, size), etag)

        return b"".join(await aio.gather_bounded(range(0, size, _RANGE_BYTES), read, limit=_RANGES_AT_ONCE))

    async def _read_range(self, location: Location, start: int, end: int, etag: str) -> bytes:
        async with self._objects.calling(location.raw, "s3:GetObject") as client:
            answer = await client.get_object(
                Bucket=location.authority, Key=location.path, Range=f"bytes={start}-{end - 1}", IfMatch=etag
            )
            async with self._body(location, answer) as body:
                data: bytes = await body.read()
        requests.sent("bytes_read", len(data))
        if answer.get("ETag", etag) != etag:  # some stores do not know If-Match
            raise Unavailable(location.raw, "it was replaced while it was read")
        if len(data) != end - start:
            raise Unavailable(location.raw, f"received {len(data)} bytes instead of {end - start}")
        return data

    @asynccontextmanager
    async def _body(self, location: Location, answer: dict[str, Any]) -> AsyncIterator[Any]:
        """The client does not try again if a body breaks off; the wrapper around every store does."""
        with translating(location.raw, self._objects.endpoint, "s3:GetObject"):
            async with answer["Body"] as body:
                yield body

    async def stat(self, location: Location) -> StoredObject:
        """Size, time and etag. S3 gives whole seconds here and milliseconds in listings."""
        async with self._objects.calling(location.raw, "s3:GetObject") as client:
            answer = await client.head_object(Bucket=location.authority, Key=location.path)
        if "ContentLength" not in answer or "LastModified" not in answer:
            raise Unavailable(location.raw, f"{self._objects.endpoint} answers without the object's size or time")
        return StoredObject(
            location=location,
            size_bytes=int(answer["ContentLength"]),
            modified_at=answer["LastModified"],
            etag=_unquoted(answer.get("ETag")),
        )

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        """One short listing. S3 Express lists only whole directories, so there the two are checked one after the
        other."""
        if not _sorts(one):
            return await stat_or_none(self, one), await stat_or_none(self, other)
        found: dict[str, StoredObject] = {}
        async for page in pages_between(self._fetching(one), one.raw, one.path, other.path):
            for place in (one, other):
                at = pc.index(page.keys, place.path).as_py()
                if at >= 0:
                    found[place.path] = _stored(place, page, at)
        return found.get(one.path), found.get(other.path)

    async def now(self) -> datetime:
        """The Date header of the last answer or, if that is a while ago, of a cheap request. An error response has it
        too, so no permission is needed."""
        if answered := self._clock.now():
            return answered
        async with self._objects.calling("s3", "s3:ListAllMyBuckets") as client:
            try:
                answer = await client.list_buckets()
            except ClientError as exc:
                if "date" not in _headers(exc.response):
                    raise
                answer = exc.response
        date = _headers(answer).get("date", "")
        try:
            return parsedate_to_datetime(date)
        except ValueError as exc:
            raise Unavailable("s3", f"{self._objects.endpoint} sends no usable Date header ({date!r})") from exc

    async def aclose(self) -> None:
        await self._lists.aclose()
        await self._objects.aclose()


class S3Writer:
    """Writes whole objects. One attempt each: if a create-only write were repeated after a lost response, our own
    object would look like another writer's. The retry wrapper repeats plain overwrites."""

    def __init__(self, options: S3Options) -> None:
        self._connection = S3Connection(options, attempts=1)

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write; create-only by If-None-Match, decided by the store."""
        condition = {"IfNoneMatch": "*", **await _checksum(location, data)} if create_only else {}
        async with self._connection.calling(location.raw, "s3:PutObject") as client:
            try:
                answer = await client.put_object(Bucket=location.authority, Key=location.path, Body=data, **condition)
            except ClientError as exc:
                if create_only and exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _TAKEN:
                    raise AlreadyThere(location.raw, "the object exists") from exc
                raise
        if not answer.get("ETag") and await self._stored(location) != data:
            # If something else than the store answered, a commit would refer to an object that does not exist.
            raise Unavailable(location.raw, f"{self._connection.endpoint} answers without the ETag of what it stored")

    async def _stored(self, location: Location) -> bytes | None:
        """What is there now. Only for stores that return no ETag; some gateways do not."""
        try:
            async with self._connection.calling(location.raw, "s3:GetObject") as client:
                answer = await client.get_object(Bucket=location.authority, Key=location.path)
                async with answer["Body"] as body:
                    data: bytes = await body.read()
        except NotFound:
            return None
        return data

    async def aclose(self) -> None:
        await self._connection.aclose()


async def _checksum(location: Location, data: bytes) -> dict[str, str]:
    """The checksum that S3 requires in a bucket with an object lock; other stores ignore or check it."""
    if not _sorts(location):
        return {}  # S3 Express refuses it, and has no object lock
    digest = await asyncio.to_thread(hashlib.md5, data, usedforsecurity=False)
    return {"ContentMD5": base64.b64encode(digest.digest()).decode()}


def _sorts(root: Location) -> bool:
    return not root.authority.endswith(_DIRECTORY_BUCKET)


def _batch(bucket: str, page: Page) -> pa.RecordBatch:
    """A page as rows of LISTING_SCHEMA. Keys that end in a slash are left out: they are directory markers that some
    tools rely on, no table format names a file so, and what is not listed is never deleted."""
    paths = pc.binary_join_element_wise(pa.scalar(f"s3://{bucket}/"), page.keys, pa.scalar(""))
    batch = page.rows.set_column(0, LISTING_SCHEMA.field(0), paths)
    markers = pc.ends_with(page.keys, "/")
    return batch.filter(pc.invert(markers)) if pc.any(markers).as_py() else batch


def _stored(location: Location, page: Page, at: int) -> StoredObject:
    _, size_bytes, modified_at, etag = (column[at].as_py() for column in page.rows.columns)
    return StoredObject(location=location, size_bytes=size_bytes, modified_at=modified_at, etag=etag)


def _unquoted(etag: str | None) -> str | None:
    return etag.strip('"') if etag else None


def _headers(answer: dict[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers
