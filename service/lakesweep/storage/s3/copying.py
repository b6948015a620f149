"""Copy one S3 object inside the store with all of its metadata, and verify the copy.

Metadata, tags, storage class and encryption stay the same. Only the object that was inspected is copied, and an
existing object is never overwritten. Deletes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import ClientError

from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.location import Location
from lakesweep.storage.s3.client import S3Connection
from lakesweep.storage.s3.errors import CHANGED, error_code

_TAKEN = (409, 412)
_COPY_BYTES = 5 * 1024**3
"""The most that one request copies."""
_PART_BYTES = 1024**3
_DIGEST = re.compile("[0-9a-f]{32}")
_CHECKSUMS = ("ChecksumSHA256", "ChecksumSHA1", "ChecksumCRC64NVME", "ChecksumCRC32C", "ChecksumCRC32")
_PLAIN = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Metadata")
_KEPT = ("StorageClass", "ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")
"""Properties that a copy would take from the bucket's defaults unless they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object as HEAD shows it."""

    size_bytes: int
    etag: str
    tags: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    """Arguments that a copy must be given."""
    plain: dict[str, Any] = field(default_factory=dict)
    """Properties that a copy in one request keeps by itself."""
    checksums: dict[str, str] = field(default_factory=dict)

    def has_same_bytes(self, other: Stored) -> bool:
        """Do both have the same bytes, by their digests?"""
        shared = self.checksums.keys() & other.checksums.keys()
        if self.size_bytes != other.size_bytes or any(self.checksums[one] != other.checksums[one] for one in shared):
            return False
        return bool(shared) or (self.etag == other.etag and self.has_digest and other.has_digest)

    @property
    def has_digest(self) -> bool:
        """Is the etag an MD5 of the bytes? Not that of an upload in parts, nor of an object that KMS encrypts."""
        return bool(_DIGEST.fullmatch(self.etag)) and "kms" not in str(self.about.get("ServerSideEncryption"))


class Copier:
    """Copies objects with one client."""

    def __init__(self, connection: S3Connection, copy_bytes: int = _COPY_BYTES, part_bytes: int = _PART_BYTES) -> None:
        self._connection = connection
        self._copy_bytes = copy_bytes
        self._part_bytes = part_bytes

    async def look(self, place: Location) -> Stored:
        """The object at a place, or NotFound."""
        async with self._connection.calling(place.raw, "s3:GetObject") as client:
            answer = await client.head_object(Bucket=place.authority, Key=place.path, ChecksumMode="ENABLED")
        if "ContentLength" not in answer or not answer.get("ETag"):
            raise Unavailable(place.raw, f"{self._connection.endpoint} answers without the object's size or etag")
        return Stored(
            size_bytes=int(answer["ContentLength"]),
            etag=_unquoted(answer["ETag"]),
            tags=int(answer.get("TagCount") or 0),
            about={name: answer[name] for name in _KEPT if answer.get(name)},
            plain={name: answer[name] for name in _PLAIN if answer.get(name)},
            checksums={name: answer[name] for name in _CHECKSUMS if answer.get(name) and "-" not in answer[name]},
        )

    async def find(self, place: Location) -> Stored | None:
        try:
            return await self.look(place)
        except NotFound:
            return None

    async def copy(self, source: Location, target: Location, stored: Stored) -> bool:
        """Copy. False if the target exists; it is not changed. Raises unless the copy was verified."""
        large = stored.size_bytes > self._copy_bytes
        try:
            etag = await (self._in_parts if large else self._at_once)(source, target, stored)
        except StorageError as exc:
            if _is_taken(exc) and await self.find(target) is not None:
                return False
            raise
        copied = await self.look(target)
        if not self._is_whole(copied, stored, etag):
            raise Unavailable(target.raw, "the copy has another size or checksum; the object stays where it is")
        return True

    def _is_whole(self, copied: Stored, stored: Stored, etag: str) -> bool:
        if copied.size_bytes != stored.size_bytes or copied.etag != etag:
            return False
        comparable = (copied.has_digest and stored.has_digest) or copied.checksums.keys() & stored.checksums.keys()
        return copied.has_same_bytes(stored) if comparable else True

    async def _at_once(self, source: Location, target: Location, stored: Stored) -> str:
        async with self._connection.calling(target.raw, "s3:PutObject") as client:
            answer = await client.copy_object(
                Bucket=target.authority,
                Key=target.path,
                CopySource={"Bucket": source.authority, "Key": source.path},
                CopySourceIfMatch=f'"{stored.etag}"',
                IfNoneMatch="*",
                MetadataDirective="COPY",
                TaggingDirective="COPY",
                **stored.about,
            )
        return _etag_of(target, answer.get("CopyObjectResult", {}))

    async def _in_parts(self, source: Location, target: Location, stored: Stored) -> str:
        where = {"Bucket": target.authority, "Key": target.path}
        tags = await self._tagging(source) if stored.tags else {}
        async with self._connection.calling(target.raw, "s3:PutObject") as client:
            begun = await client.create_multipart_upload(**where, **stored.about, **stored.plain, **tags)
            upload = {**where, "UploadId": begun["UploadId"]}
            try:
                parts = await self._parts(client, upload, source, stored)
                done = await client.complete_multipart_upload(
                    **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
                )
            except BaseException:
                await client.abort_multipart_upload(**upload)
                raise
        return _etag_of(target, done)

    async def _parts(
        self, client: Any, upload: dict[str, str], source: Location, stored: Stored
    ) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for start in range(0, stored.size_bytes, self._part_bytes):
            number, end = len(parts) + 1, min(start + self._part_bytes, stored.size_bytes) - 1
            answer = await client.upload_part_copy(
                **upload,
                PartNumber=number,
                CopySource={"Bucket": source.authority, "Key": source.path},
                CopySourceIfMatch=f'"{stored.etag}"',
                CopySourceRange=f"bytes={start}-{end}",
            )
            parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        return parts

    async def _tagging(self, source: Location) -> dict[str, str]:
        async with self._connection.calling(source.raw, "s3:GetObjectTagging") as client:
            answer = await client.get_object_tagging(Bucket=source.authority, Key=source.path)
        return {"Tagging": urlencode([(tag["Key"], tag["Value"]) for tag in answer["TagSet"]])}


def _is_taken(exc: StorageError) -> bool:
    cause = exc.__cause__
    if not isinstance(cause, ClientError):
        return False
    status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in _TAKEN or error_code(cause) in CHANGED


def _etag_of(target: Location, answer: dict[str, Any]) -> str:
    if not answer.get("ETag"):
        raise Unavailable(target.raw, "the store did not say what it copied; the object stays where it is")
    return _unquoted(answer["ETag"])


def _unquoted(etag: str) -> str:
    return etag.strip('"')
