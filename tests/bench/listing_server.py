"""A list-only S3 with ready pages, in a process of its own, so fast that only the client is measured.

The keys are `t/data/<page>-<number>-….parquet`, a thousand to a page, in key order; with folders it is
`t/data/p<folder>/<page>-…` and as many pages in each. It can be told to take its time, as a far-away store does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from urllib.parse import parse_qs

from tests.bench.own_process import serving

BUCKET = "lake"
PREFIX = "t/data/"
KEYS_PER_PAGE = 1000
_NUMBER = b"@@@@@"


def _template() -> bytes:
    """The entries of any page, as AWS writes them."""
    rows = []
    for number in range(KEYS_PER_PAGE):
        digest = uuid.uuid5(uuid.NAMESPACE_URL, str(number))
        rows.append(
            f"<Contents><Key>{PREFIX}@@@@@-{number:05d}-{digest}-00001.parquet</Key>"
            f"<LastModified>2026-01-{number % 28 + 1:02d}T01:02:03.000Z</LastModified>"
            f"<ETag>&quot;{digest.hex}&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"
            f"<ChecksumType>FULL_OBJECT</ChecksumType><Size>{number * 4096}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )
    return "".join(rows).encode()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What there is to list, and how long every answer takes."""

    pages: int
    folders: int = 0
    delay_seconds: float = 0.0

    def name(self, number: int) -> str:
        """What the keys of a page begin with."""
        return f"p{number // self._each:03d}/{number:05d}" if self.folders else f"{number:05d}"

    def names(self) -> list[str]:
        """The folders."""
        return [f"{PREFIX}p{folder:03d}/" for folder in range(self.folders)]

    def below(self, prefix: str) -> range:
        """The pages of a prefix."""
        if prefix not in self.names():
            return range(self.pages)
        folder = self.names().index(prefix)
        return range(folder * self._each, min((folder + 1) * self._each, self.pages))

    @property
    def _each(self) -> int:
        return -(-self.pages // self.folders)


class _Pages(asyncio.Protocol):
    """Just enough HTTP: GET requests without bodies on kept-alive connections."""

    def __init__(self, shape: Shape, template: bytes) -> None:
        self._shape = shape
        self._template = template
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            answer = self._answer({name: values[0] for name, values in parse_qs(target.partition("?")[2]).items()})
            asyncio.get_running_loop().call_later(self._shape.delay_seconds, self._transport.writelines, answer)

    def _answer(self, query: dict[str, str]) -> list[bytes]:
        shape = self._shape
        pages = shape.below(query.get("prefix", ""))
        if shape.folders and "delimiter" in query and pages == range(shape.pages):
            folders = (f"<CommonPrefixes><Prefix>{one}</Prefix></CommonPrefixes>" for one in shape.names())
            return _framed("<IsTruncated>false</IsTruncated>", "".join(folders).encode())
        number = self._number(query, pages)
        more = number < pages.stop - 1
        token = f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if more else ""
        entries = self._template.replace(_NUMBER, shape.name(number).encode()) if number < pages.stop else b""
        return _framed(f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}", entries)

    def _number(self, query: dict[str, str], pages: range) -> int:
        if "continuation-token" in query:
            return int(query["continuation-token"])
        after = query.get("start-after", "")
        return pages.start + sum(f"{PREFIX}{self._shape.name(number)}" <= after for number in pages)


def _framed(said: str, entries: bytes) -> list[bytes]:
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><Prefix>{PREFIX}</Prefix><KeyCount>{KEYS_PER_PAGE}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType>{said}"
    ).encode()
    body = [head, entries, b"</ListBucketResult>"]
    length = sum(map(len, body))
    return [b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % length, *body]


async def _serve(shape: Shape, ready: Connection) -> None:
    template = _template()
    server = await asyncio.get_running_loop().create_server(lambda: _Pages(shape, template), "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run(shape: Shape, ready: Connection) -> None:
    asyncio.run(_serve(shape, ready))


@contextmanager
def running(shape: Shape) -> Iterator[str]:
    """The endpoint of a server."""
    with serving(_run, shape) as port:
        yield f"http://127.0.0.1:{port}"
