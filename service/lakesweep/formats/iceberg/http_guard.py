"""HTTP to a catalog's server that may be hostile: where requests go, and how much of an answer is taken. Every request
goes to an address that the operator configured; redirects are not followed. An answer has a size and a time limit,
inflated and in all. Of an error only the status is kept: its body may be something that the server fetched from a place
we may not look at, and messages are read by others than the operator."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response, Session
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema, RequestException, Timeout
from urllib3.exceptions import HTTPError, ReadTimeoutError

from lakesweep.formats.iceberg.catalog_errors import AnswerRefused

ANSWER_BYTES = 64 << 20
"""The answer to one request: a table of 50,000 snapshots from a server that cannot leave them out is half of it."""
CALL_BYTES = 4 * ANSWER_BYTES
"""All answers to one call of ours: a server may spread a list over pages, but not without end."""
_STEP_BYTES = 1 << 16
_REDIRECTS = range(300, 400)
_FIRST_ERROR = 400
_UNAUTHORIZED = 401
_PORTS = {"http": 80, "https": 443}
_FORM = "application/x-www-form-urlencoded"

_Place = tuple[str, str, int | None, str]


class HttpGuard:
    """The limits of one catalog. Calls are made from threads; each has its own deadline and its own count of bytes."""

    def __init__(self, addresses: Iterable[str], timeout_seconds: float) -> None:
        self._places = [_place(address) for address in addresses]
        self._timeout_seconds = timeout_seconds
        self._call = threading.local()

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """All requests of this thread until the end of the block share one deadline."""
        self._call.ends = time.monotonic() + self._timeout_seconds
        self._call.bytes_left = CALL_BYTES
        try:
            yield
        finally:
            del self._call.ends, self._call.bytes_left

    def attach(self, session: Session) -> None:
        """From here on the session sends only what is allowed, however it is called."""
        send: Callable[..., Response] = session.send

        def guarded(request: PreparedRequest, **options: Any) -> Response:
            self._refuse_elsewhere(str(request.url))
            request.headers["Accept-Encoding"] = "gzip"
            options |= {"allow_redirects": False, "stream": True, "timeout": self._seconds_left()}
            try:
                response = send(request, **options)
                with response.raw:
                    self._take(request, response)
            except (AnswerRefused, InvalidURL, InvalidSchema, MissingSchema):
                raise
            except (RequestException, HTTPError, ValueError, OSError) as exc:
                raise _without_answer(exc) from None
            return response

        # Otherwise the session reads the whole body of a redirect before it can be refused.
        session.get_redirect_target = lambda _: None  # type: ignore[method-assign,assignment]
        session.send = guarded  # type: ignore[method-assign]  # the one way out of a session, redirects included

    def _refuse_elsewhere(self, url: str) -> None:
        scheme, host, port, path = _place(url)
        for place in self._places:
            if (scheme, host, port) == place[:3] and (path == place[3] or path.startswith(place[3].rstrip("/") + "/")):
                return
        raise AnswerRefused("a request would leave the catalog's configured address; it was not sent")

    def _seconds_left(self) -> float:
        ends = getattr(self._call, "ends", None)
        left = self._timeout_seconds if ends is None else ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return float(left)

    def _take(self, request: PreparedRequest, response: Response) -> None:
        status = response.status_code
        if status in _REDIRECTS:
            raise AnswerRefused(f"it answered with a redirect (HTTP {status}); redirects are not followed")
        response.reason = _phrase(status)
        response.encoding = "utf-8"
        body = _error_body(request, status) if status >= _FIRST_ERROR else self._body(response)
        response._content = body  # noqa: SLF001 - there is no other way to hand over a body that was read
        response._content_consumed = True  # noqa: SLF001 - as above

    def _body(self, response: Response) -> bytes:
        limit = min(ANSWER_BYTES, getattr(self._call, "bytes_left", ANSWER_BYTES))
        unzip = _unzip(response.headers.get("Content-Encoding", "").strip().lower())
        parts: list[bytes] = []
        size = 0
        # Never more than one packet at a time: a server that drips must not outlast the deadline.
        while chunk := response.raw.read1(_STEP_BYTES, decode_content=False):
            self._seconds_left()
            part = chunk if unzip is None else _inflated(unzip, chunk, limit - size + 1)
            size += len(part)
            if size > limit:
                raise AnswerRefused(f"its answer is larger than {limit >> 20} MiB")
            parts.append(part)
        if unzip is not None and not unzip.eof:
            raise AnswerRefused("its answer is truncated")
        if hasattr(self._call, "bytes_left"):
            self._call.bytes_left -= size
        return b"".join(parts)


def _without_answer(exc: BaseException) -> Exception:
    """Libraries quote what they could not read, such as the first line of a server that does not speak HTTP."""
    if isinstance(exc, Timeout | ReadTimeoutError | TimeoutError):
        return TimeoutError()
    cause: Any = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return AnswerRefused(f"no TLS connection: {cause.reason or 'SSLError'}")
        if isinstance(cause, OSError) and not isinstance(cause, RequestException) and cause.errno:
            return AnswerRefused(f"no connection: {os.strerror(abs(cause.errno))}")
        nested = [one for one in (getattr(cause, "reason", None), *cause.args) if isinstance(one, BaseException)]
        cause = nested[0] if nested else cause.__cause__ or cause.__context__
    return AnswerRefused(f"no valid answer ({type(exc).__name__})")


def _unzip(encoding: str) -> zlib._Decompress | None:
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip"):
        raise AnswerRefused("its answer has a compression that was not requested")
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


def _inflated(unzip: zlib._Decompress, chunk: bytes, at_most: int) -> bytes:
    try:
        return unzip.decompress(chunk, at_most)
    except zlib.error:
        raise AnswerRefused("its answer claims to be gzip and is not") from None


def _error_body(request: PreparedRequest, status: int) -> bytes:
    """In the server's place, in the form that pyiceberg expects of it."""
    if request.headers.get("Content-type") == _FORM:
        return json.dumps({"error": "invalid_client" if status == _UNAUTHORIZED else "invalid_request"}).encode()
    return json.dumps({"error": {"message": f"HTTP {status}", "type": _phrase(status), "code": status}}).encode()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def _place(url: str) -> _Place:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme), parts.path or "/"
