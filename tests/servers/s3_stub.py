"""A small S3 that does what AWS documents, in the test's own event loop, and fails on demand.

It lists in key order, keeps keys with `//` and control characters apart, and encodes pages as AWS does: what a
real server on disk cannot show. `fault` is asked before every request and may answer in its place, or wait.
"""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote_plus, unquote
from xml.sax.saxutils import escape

from aiohttp import web

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a fault needs to know. `operation` is buckets, list, versions, uploads, parts, get, head, put, copy, delete
    or delete_page."""

    operation: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Fault = Callable[[Request], Awaitable[web.Response | None]]


@dataclass(kw_only=True)
class S3Stub:
    """The server's state, open to the test."""

    endpoint_url: str = ""
    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    modified: datetime = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    encodes: bool = True
    """Does it know EncodingType=url?"""
    versions: dict[str, list[tuple[str, bytes | None]]] = field(default_factory=dict)
    """Per bucket the versions of all keys, the newest of a key first; None is a delete marker."""
    uploads: dict[str, list[tuple[str, list[int]]]] = field(default_factory=dict)
    """Per bucket the uploads that nobody completed: key and sizes of their parts. An upload's id is its number."""
    page_size: int = 1000
    """Of versions, uploads and parts."""
    fault: Fault | None = None
    requests: list[Request] = field(default_factory=list)

    def count(self, operation: str) -> int:
        """How often an operation was asked for."""
        return sum(request.operation == operation for request in self.requests)

    async def handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        request = await _understood(raw)
        self.requests.append(request)
        if self.fault and (answer := await self.fault(request)):
            return answer
        if request.operation == "buckets":
            return xml(f"<ListAllMyBucketsResult {NAMESPACE}><Buckets/></ListAllMyBucketsResult>")
        if request.bucket not in self.buckets:
            return error(404, "NoSuchBucket")
        operations = {
            "list": self._list,
            "get": self._get,
            "head": self._get,
            "put": self._put,
            "copy": self._copy,
            "delete": self._delete,
            "delete_page": self._delete_page,
            "versions": self._list_versions,
            "uploads": self._list_uploads,
            "parts": self._list_parts,
        }
        return operations[request.operation](request, self.buckets[request.bucket])

    def _list(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        token = query.get("continuation-token")
        after = token.removeprefix("after ") if token else query.get("start-after", "")
        found, last = _rows(sorted(objects), prefix, delimiter, after, int(query.get("max-keys", 1000)))
        encoded = self.encodes and query.get("encoding-type") == "url"
        return xml(self._page(found, objects, last, encoded=encoded))

    def _page(self, found: list[str], objects: dict[str, bytes], last: str | None, *, encoded: bool) -> str:
        def shown(text: str) -> str:
            return quote_plus(text, safe="/") if encoded else escape(text)

        stamp = self.modified.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.modified.microsecond // 1000:03d}Z"
        parts = [f"<ListBucketResult {NAMESPACE}><IsTruncated>{str(last is not None).lower()}</IsTruncated>"]
        parts += ["<EncodingType>url</EncodingType>"] * encoded
        parts += [f"<NextContinuationToken>after {escape(last)}</NextContinuationToken>"] if last is not None else []
        for text in found:
            if text not in objects:
                parts.append(f"<CommonPrefixes><Prefix>{shown(text)}</Prefix></CommonPrefixes>")
                continue
            parts.append(
                f"<Contents><Key>{shown(text)}</Key><LastModified>{stamp}</LastModified>"
                f"<ETag>&quot;{etag(objects[text])}&quot;</ETag><Size>{len(objects[text])}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        return "".join([*parts, "</ListBucketResult>"])

    def _list_versions(self, request: Request, _objects: dict[str, bytes]) -> web.Response:
        query, encoded = request.query, request.query.get("encoding-type") == "url"
        known = [(key, str(number), data) for number, (key, data) in enumerate(self.versions.get(request.bucket, []))]
        known.sort(key=lambda one: (one[0], int(one[1])))
        newest = {key: id_ for key, id_, _ in reversed(known)}
        after = (query.get("key-marker", ""), int(query.get("version-id-marker", -1)))
        left = [one for one in known if one[0].startswith(query.get("prefix", "")) and (one[0], int(one[1])) > after]
        page = left[: self.page_size]
        rows = "".join(_version(_shown(key, encoded), id_, data, newest[key] == id_) for key, id_, data in page)
        return xml(
            f"<ListVersionsResult {NAMESPACE}>{'<EncodingType>url</EncodingType>' * encoded}"
            f"<IsTruncated>{str(len(left) > len(page)).lower()}</IsTruncated>"
            + (f"<NextKeyMarker>{_shown(page[-1][0], encoded)}</NextKeyMarker>" if page else "")
            + (f"<NextVersionIdMarker>{page[-1][1]}</NextVersionIdMarker>" if page else "")
            + f"{rows}</ListVersionsResult>"
        )

    def _list_uploads(self, request: Request, _objects: dict[str, bytes]) -> web.Response:
        query, encoded = request.query, request.query.get("encoding-type") == "url"
        known = sorted((key, number) for number, (key, _) in enumerate(self.uploads.get(request.bucket, [])))
        after = (query.get("key-marker", ""), int(query.get("upload-id-marker", -1)))
        left = [one for one in known if one[0].startswith(query.get("prefix", "")) and one > after]
        page = left[: self.page_size]
        rows = "".join(
            f"<Upload><Key>{_shown(key, encoded)}</Key><UploadId>{id_}</UploadId></Upload>" for key, id_ in page
        )
        return xml(
            f"<ListMultipartUploadsResult {NAMESPACE}>{'<EncodingType>url</EncodingType>' * encoded}"
            f"<IsTruncated>{str(len(left) > len(page)).lower()}</IsTruncated>"
            + (f"<NextKeyMarker>{_shown(page[-1][0], encoded)}</NextKeyMarker>" if page else "")
            + (f"<NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>" if page else "")
            + f"{rows}</ListMultipartUploadsResult>"
        )

    def _list_parts(self, request: Request, _objects: dict[str, bytes]) -> web.Response:
        key, sizes = self.uploads[request.bucket][int(request.query["uploadId"])]
        if key != request.key:
            return error(404, "NoSuchUpload")
        first = int(request.query.get("part-number-marker", 0))
        last = min(first + self.page_size, len(sizes))
        parts = (f"<Part><PartNumber>{at + 1}</PartNumber><Size>{sizes[at]}</Size></Part>" for at in range(first, last))
        return xml(
            f"<ListPartsResult {NAMESPACE}><IsTruncated>{str(last < len(sizes)).lower()}</IsTruncated>"
            f"<NextPartNumberMarker>{last}</NextPartNumberMarker>{''.join(parts)}</ListPartsResult>"
        )

    def _get(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        if request.key not in objects:
            return error(404, "NoSuchKey")
        data = objects[request.key]
        stamp = self.modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"ETag": f'"{etag(data)}"', "Last-Modified": stamp}
        if request.headers.get("if-match", headers["ETag"]) != headers["ETag"]:
            return error(412, "PreconditionFailed")
        if request.operation == "head":
            return web.Response(headers={**headers, "Content-Length": str(len(data))})
        if "range" not in request.headers:
            return web.Response(body=data, headers=headers)
        first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
        headers["Content-Range"] = f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"
        return web.Response(status=206, body=data[first : last + 1], headers=headers)

    def _put(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        if request.headers.get("if-none-match") == "*" and request.key in objects:
            return error(412, "PreconditionFailed")
        objects[request.key] = request.body
        return web.Response(headers={"ETag": f'"{etag(request.body)}"'})

    def _copy(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        bucket, _, key = unquote(request.headers["x-amz-copy-source"]).removeprefix("/").partition("/")
        data = self.buckets.get(bucket, {}).get(key)
        if data is None:
            return error(404, "NoSuchKey")
        if request.headers.get("x-amz-copy-source-if-match", f'"{etag(data)}"') != f'"{etag(data)}"':
            return error(412, "PreconditionFailed")
        if request.headers.get("if-none-match") == "*" and request.key in objects:
            return error(412, "PreconditionFailed")
        objects[request.key] = data
        return xml(f"<CopyObjectResult {NAMESPACE}><ETag>&quot;{etag(data)}&quot;</ETag></CopyObjectResult>")

    def _delete(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        if request.key in objects and request.headers.get("if-match", "") not in (
            "",
            f'"{etag(objects[request.key])}"',
        ):
            return error(412, "PreconditionFailed")
        objects.pop(request.key, None)
        return web.Response(status=204)

    def _delete_page(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        judged = asked_etags(request)
        changed = {
            key: "PreconditionFailed" for key, one in judged.items() if key in objects and one != etag(objects[key])
        }
        for key in asked_keys(request):
            if key not in changed:
                objects.pop(key, None)
        return delete_errors(changed)


def _shown(text: str, encoded: bool) -> str:
    """As S3 writes it: encoded when it was asked to, else as it is, whether XML can hold it or not."""
    return quote_plus(text, safe="/") if encoded else escape(text)


def _version(key: str, id_: str, data: bytes | None, is_latest: bool) -> str:
    both = f"<Key>{key}</Key><VersionId>{id_}</VersionId><IsLatest>{str(is_latest).lower()}</IsLatest>"
    if data is None:
        return f"<DeleteMarker>{both}</DeleteMarker>"
    return f"<Version>{both}<Size>{len(data)}</Size></Version>"


def _rows(keys: list[str], prefix: str, delimiter: str, after: str, limit: int) -> tuple[list[str], str | None]:
    """The keys and common prefixes of one page, and where the next page goes on, if there is one."""
    found: list[str] = []
    at = max(bisect_left(keys, prefix), bisect_right(keys, after))
    while at < len(keys) and keys[at].startswith(prefix):
        rest = keys[at][len(prefix) :]
        if delimiter and delimiter in rest:
            text = prefix + rest.partition(delimiter)[0] + delimiter
            following = bisect_left(keys, text + "\U0010ffff")
        else:
            text = keys[at]
            following = at + 1
        if len(found) == limit:
            return found, keys[at - 1]
        found.append(text)
        at = following
    return found, None


def asked_keys(request: Request) -> list[str]:
    """The keys of a DeleteObjects request."""
    return [element.text or "" for element in ET.fromstring(request.body).iter() if element.tag.endswith("}Key")]


def asked_etags(request: Request) -> dict[str, str]:
    """The etags of a DeleteObjects request, by key, where it has any."""
    objects = [one for one in ET.fromstring(request.body).iter() if one.tag.endswith("}Object")]
    texts = [{part.tag.rpartition("}")[2]: part.text or "" for part in one} for one in objects]
    return {text["Key"]: text["ETag"].strip('"') for text in texts if "ETag" in text}


def delete_errors(errors: dict[str, str]) -> web.Response:
    """A DeleteObjects answer in which these keys failed with these codes."""
    rows = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>on purpose</Message></Error>"
        for key, code in errors.items()
    )
    return xml(f"<DeleteResult {NAMESPACE}>{rows}</DeleteResult>")


def error(status: int, code: str) -> web.Response:
    """An error as S3 words it."""
    return xml(f"<Error><Code>{code}</Code><Message>on purpose</Message></Error>", status=status)


def xml(text: str, status: int = 200) -> web.Response:
    """A body with the usual first line."""
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return web.Response(status=status, body=(head + text).encode(), content_type="application/xml")


def etag(data: bytes) -> str:
    """What S3 gives an object that was written at once."""
    return hashlib.md5(data).hexdigest()


async def _understood(raw: web.BaseRequest) -> Request:
    if raw.headers.get("Expect") == "100-continue":
        await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    path, _, query_text = raw.raw_path.partition("?")
    bucket, _, key = path.removeprefix("/").partition("/")
    query = {name: values[0] for name, values in parse_qs(query_text, keep_blank_values=True).items()}
    if not bucket:
        operation = "buckets"
    elif raw.method == "POST" and "delete" in query:
        operation = "delete_page"
    elif raw.method == "GET" and not key and ("versions" in query or "uploads" in query):
        operation = "versions" if "versions" in query else "uploads"
    elif raw.method == "GET" and "uploadId" in query:
        operation = "parts"
    elif raw.method == "GET" and not key:
        operation = "list"
    elif raw.method == "PUT" and "x-amz-copy-source" in raw.headers:
        operation = "copy"
    else:
        operation = raw.method.lower()
    return Request(
        operation=operation,
        bucket=bucket,
        key=unquote(key),
        query=query,
        headers={name.lower(): value for name, value in raw.headers.items()},
        body=await raw.read(),
    )


@asynccontextmanager
async def s3_stub(*buckets: str) -> AsyncIterator[S3Stub]:
    """A server on a free loopback port, stopped at the end."""
    stub = S3Stub(buckets={bucket: {} for bucket in buckets})
    runner = web.ServerRunner(web.Server(stub.handle), shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.endpoint_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stub
    finally:
        await runner.cleanup()
