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
    """What a fault needs to know. `operation` is buckets, list, get, head, put, delete or delete_page."""

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
            "delete": self._delete,
            "delete_page": self._delete_page,
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

    def _get(self, request: Request, objects: dict[str, bytes]) -> web.Response:
        if request.key not in objects:
            return error(404, "NoSuchKey")
        data = objects[request.key]
        stamp = self.modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"ETag": f'"{etag(data)}"', "Last-Modified": stamp}
        if request.headers.get("if-match", headers["ETag"]) != headers["ETag"]:
            return error(412, "PreconditionFailed")
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
    elif raw.method == "GET" and not key:
        operation = "list"
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
