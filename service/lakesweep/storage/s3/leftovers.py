"""Count what S3 stores below a prefix beside its objects: noncurrent versions, and uploads that were never completed.

Reads only (s3:ListBucketVersions, s3:ListBucketMultipartUploads, s3:ListMultipartUploadParts), page by page, and never
more than `MOST_REQUESTS` for either kind. A request that fails ends the count of that kind with its reason.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.leftovers import LeftoverKind, LeftoverPage
from lakesweep.model.location import Location
from lakesweep.storage.s3.client import S3Connection

MOST_REQUESTS = 1000
"""For one kind below one place: enough for a million versions, or some hundred uploads with their parts."""

_VERSIONS, _UPLOADS = LeftoverKind.NONCURRENT_VERSIONS, LeftoverKind.INCOMPLETE_UPLOADS
_STUCK = "the store says that there is more, but not where to continue"


class S3Leftovers:
    """One count of one kind below one place."""

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
                answer = await self._versions_after(marker)
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

    async def _versions_after(self, marker: Mapping[str, str]) -> dict[str, Any]:
        self._sent += 1
        async with self._connection.calling(self._place.raw, "s3:ListBucketVersions") as client:
            return dict(await client.list_object_versions(**self._below, **marker))

    async def _uploads_after(self, marker: Mapping[str, str]) -> dict[str, Any]:
        """The client decodes pages of versions, but not these, and some stores say that they encode them and do not. So
        encoding is requested only where a key may have broken the page, which the client reports as a 500."""
        try:
            return await self._uploads_page(marker)
        except Unavailable:
            answer = await self._uploads_page({**marker, "EncodingType": "url"})
        if answer.get("EncodingType") == "url":
            answer["Uploads"] = [{**one, "Key": unquote_plus(one.get("Key", ""))} for one in answer.get("Uploads", ())]
            answer["NextKeyMarker"] = unquote_plus(answer.get("NextKeyMarker") or "")
        return answer

    async def _uploads_page(self, marker: Mapping[str, str]) -> dict[str, Any]:
        self._sent += 1
        async with self._connection.calling(self._place.raw, "s3:ListBucketMultipartUploads") as client:
            return dict(await client.list_multipart_uploads(**self._below, **marker))

    async def _sized(self, key: str, upload: str) -> tuple[str, int] | None:
        """An upload with its bytes; 0 once it is clear that they are not available. None: it ended meanwhile."""
        size, last = 0, 0
        while self._sizes_unknown is None:
            if self._sent >= self._most:
                self._sizes_unknown = f"the sizes of some are not known: {self._enough()}"
                break
            try:
                parts = await self._parts_after(key, upload, last)
            except NotFound:
                return None
            except StorageError as exc:
                self._sizes_unknown = f"the sizes of some are not known: {exc.why}"
                break
            size += sum(int(part.get("Size", 0)) for part in parts.get("Parts", ()))
            before, last = last, int(parts.get("NextPartNumberMarker") or 0)
            if not parts.get("IsTruncated") or last <= before:
                break
        return self._file(key, size)

    async def _parts_after(self, key: str, upload: str, last: int) -> dict[str, Any]:
        self._sent += 1
        marker = {"PartNumberMarker": last} if last else {}
        async with self._connection.calling(f"{self._place.store}{key}", "s3:ListMultipartUploadParts") as client:
            return dict(await client.list_parts(Bucket=self._place.authority, Key=key, UploadId=upload, **marker))

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
