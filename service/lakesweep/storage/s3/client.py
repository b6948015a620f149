"""Open S3 clients: credentials, endpoint, retries and time-outs in one place; opened on first use, closed once."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.parsers import AioResponseParserFactory
from aiobotocore.session import AioSession
from botocore import handlers, loaders

from lakesweep import __version__
from lakesweep.model.errors import SettingsError
from lakesweep.storage.s3.errors import translating
from lakesweep.storage.s3.list_parser import DamagedPage, ErrorPage, parse_page
from lakesweep.storage.s3.settings import S3Options
from lakesweep.telemetry import requests

PAGE = "Page"
"""The key of the parsed page in a listing client's response."""
IS_DELETE_RESULT = "IsDeleteResult"
"""The key in a DeleteObjects response that says whether it really is one: the stock parser takes any other XML, or an
empty body, for a page of keys that are all deleted."""

_DELETE_RESULT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?<(?:\w+:)?DeleteResult[\s/>]")


before_sending: ContextVar[Callable[[], None] | None] = ContextVar("before_sending", default=None)
"""Called when a request is ready to be sent. If it raises, the request is not sent."""


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CLOCK_SECONDS = 5.0
"""How long the time of an answer serves. What passed since is added to it."""

_SOURCES = {
    "env": "the environment",
    "shared-credentials-file": "the shared credentials file",
    "config-file": "the AWS config file",
    "custom-process": "a process that the AWS config file names",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a web identity",
    "sso": "single sign-on",
    "container-role": "the container's role",
    "iam-role": "the instance's role",
}
"""Where botocore found credentials, as text."""


async def credentials_from(options: S3Options) -> str:
    """Where a client's credentials come from, never what they are."""
    with translating("s3", options.endpoint_url or "AWS S3", "credentials"):
        found = await AioSession(profile=options.profile).get_credentials()
    if found is None:
        raise SettingsError(
            "no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or give this machine "
            "a role"
        )
    return _SOURCES.get(str(found.method), str(found.method))


class AnsweredClock:
    """The store's clock by its last answer. Every answer has a Date header, so a request for nothing but the time is
    needed only if there was no answer within the last seconds."""

    def __init__(self, elapsed: Callable[[], float] = lambda: time.clock_gettime(_STEADY)) -> None:
        self._elapsed = elapsed
        self._last: tuple[datetime, float] | None = None

    def note(self, response_dict: dict[str, Any] | None = None, **_: object) -> None:
        """Botocore's event for an answer. One from a cache on the way (`Age`) has an old time."""
        headers = {str(name).lower(): text for name, text in ((response_dict or {}).get("headers") or {}).items()}
        if "age" in headers:
            return
        try:
            date = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        if date.tzinfo is not None:
            self._last = (date, self._elapsed())

    def now(self) -> datetime | None:
        """None if the last answer is too long ago."""
        if self._last is None:
            return None
        date, at = self._last
        passed = self._elapsed() - at
        return date + timedelta(seconds=passed) if 0 <= passed < _CLOCK_SECONDS else None


class S3Connection:
    """One client, created on first use. With `lists` it has the fast page parser and may only list."""

    def __init__(
        self, options: S3Options, *, attempts: int, lists: bool = False, clock: AnsweredClock | None = None
    ) -> None:
        self._options = options
        self._clock = clock
        self._attempts = attempts
        self._lists = lists
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def client(self) -> Any:
        """The client, opened once even if several tasks ask at the same time."""
        async with self._opening:
            if self._client is None:
                self._client = await self._open()
        return self._client

    @asynccontextmanager
    async def calling(self, address: str, action: str) -> AsyncIterator[Any]:
        """The client for a request about this address. What it raises is translated; `action` is the permission that
        is needed."""
        client = await self.client()
        with translating(address, self.endpoint, action, attempts=self._attempts):
            yield client

    @property
    def endpoint(self) -> str:
        return str(self._client.meta.endpoint_url) if self._client else self._options.endpoint_url or "AWS S3"

    async def aclose(self) -> None:
        """Close the client and its sockets; the next use would open a new one."""
        self._client = None
        await self._stack.aclose()

    async def _open(self) -> Any:
        with translating("s3", self.endpoint, "s3"):
            session = AioSession(profile=self._options.profile)
            session.register_component("data_loader", _service_models())
            if self._lists:
                session.register_component("response_parser_factory", _ListingParserFactory())
            try:
                opening = session.create_client(
                    "s3", endpoint_url=self._options.endpoint_url, region_name=self._region(), config=self._config()
                )
                client = await self._stack.enter_async_context(opening)
            except ValueError as exc:
                raise SettingsError(
                    f"storage.s3.endpoint_url: {exc} (expected http://host:port or https://host)"
                ) from exc
        client.meta.events.register("before-send.s3", _count)
        client.meta.events.register("before-parse.s3.DeleteObjects", _look_for_delete_result)
        if self._clock is not None:
            client.meta.events.register("response-received.s3", self._clock.note)
        for request in ("DeleteObjects", "DeleteObject"):
            client.meta.events.register(f"before-send.s3.{request}", _check_before_sending)
        if self._lists:
            # It would parse every page a second time just to look for an error, which our parser already does.
            client.meta.events.unregister("before-parse.s3.*", handlers._handle_200_error)  # noqa: SLF001  # a test watches it
        return client

    def _region(self) -> str | None:
        """Self-hosted stores rarely have regions, but a signature needs one."""
        if self._options.endpoint_url and not self._options.region:
            return "us-east-1"
        return self._options.region

    def _config(self) -> AioConfig:
        options = self._options
        return AioConfig(
            s3={"addressing_style": "path" if options.path_style else "auto"},
            # Adaptive retries also slow the client down; a client with one attempt is paced by its caller.
            retries={"mode": "adaptive" if self._attempts > 1 else "standard", "total_max_attempts": self._attempts},
            max_pool_connections=options.max_connections,
            connect_timeout=options.connect_timeout_seconds,
            read_timeout=options.read_timeout_seconds,
            # Newer clients add checksums that many stores do not know; where S3 requires one it is still sent.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            # A fixed value: the stock one is rebuilt for every request, a tenth of the cost of a list page.
            user_agent=f"lakesweep/{__version__}",
        )


@functools.cache
def _service_models() -> Any:
    """The client's model of S3's requests, read from disk once per process: most of the cost of opening a client."""
    return loaders.create_loader()


def _look_for_delete_result(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    customized_response_dict[IS_DELETE_RESULT] = _DELETE_RESULT.match(response_dict["body"]) is not None


_KINDS: dict[str, requests.Kind] = {
    "GetObject": "get",
    "GetBucketVersioning": "get",
    "GetBucketLifecycleConfiguration": "get",
    "GetObjectTagging": "get",
    "HeadObject": "head",
    "DeleteObject": "delete",
    "DeleteObjects": "delete",
    "AbortMultipartUpload": "delete",
    "PutObject": "put",
    "CopyObject": "put",
    "CreateMultipartUpload": "put",
    "UploadPartCopy": "put",
    "CompleteMultipartUpload": "put",
}
"""The kind that a request is charged as. Every other request here is a listing."""


def _count(event_name: str, **_: object) -> None:
    """Runs after everything that may still stop the request: botocore calls the more specific name first."""
    requests.sent(_KINDS.get(event_name.rpartition(".")[2], "list"))


def _check_before_sending(**_: object) -> None:
    if check := before_sending.get():
        check()


class _ListingParserFactory(AioResponseParserFactory):  # type: ignore[misc]  # the vendor's class is untyped
    """Creates parsers that read list pages fast and everything else, above all errors, as usual."""

    def create_parser(self, protocol_name: str) -> _ListingParser:
        return _ListingParser(super().create_parser(protocol_name))


class _ListingParser:
    def __init__(self, stock: Any) -> None:
        self._stock = stock

    async def parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        if response["status_code"] != 200 or shape is None or shape.name != "ListObjectsV2Output":
            return await self._parse_stock(response, shape)
        try:
            page = parse_page(response["body"])
        except ErrorPage:
            # An error with status 200: reported as a 500, the client retries it like any other failure of the store.
            return await self._parse_stock({**response, "status_code": 500}, shape)
        except DamagedPage as exc:
            error = {"Code": "InternalError", "Message": f"a damaged list page: {exc}"}
            return {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 500}}
        return {PAGE: page, "ResponseMetadata": {"HTTPStatusCode": 200}}

    async def _parse_stock(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        parsed: dict[str, Any] = await self._stock.parse(response, shape)
        return parsed
