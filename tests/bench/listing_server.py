"""A list-only S3 with ready pages, in a process of its own, so fast that only the client is measured.

The keys are `t/data/<page>-<number>-….parquet`, a thousand to a page, in key order.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import parse_qs

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


class _Pages(asyncio.Protocol):
    """Just enough HTTP: GET requests without bodies on kept-alive connections."""

    def __init__(self, pages: int, template: bytes) -> None:
        self._pages = pages
        self._template = template
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode()
            self._transport.writelines(self._answer(parse_qs(target.partition("?")[2])))

    def _answer(self, query: dict[str, list[str]]) -> list[bytes]:
        number = self._number(query)
        rest = number < self._pages - 1
        head = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{PREFIX}</Prefix><KeyCount>{KEYS_PER_PAGE}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>{str(rest).lower()}</IsTruncated>"
            + (f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if rest else "")
        ).encode()
        entries = self._template.replace(_NUMBER, b"%05d" % number) if number < self._pages else b""
        body = [head, entries, b"</ListBucketResult>"]
        length = sum(map(len, body))
        return [b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % length, *body]

    def _number(self, query: dict[str, list[str]]) -> int:
        if token := query.get("continuation-token"):
            return int(token[0])
        if after := query.get("start-after"):
            return sum(f"{PREFIX}{number:05d}" <= after[0] for number in range(self._pages))
        return 0


async def _serve(pages: int, ready: Connection) -> None:
    template = _template()
    server = await asyncio.get_running_loop().create_server(lambda: _Pages(pages, template), "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run(pages: int, ready: Connection) -> None:
    asyncio.run(_serve(pages, ready))


@contextmanager
def running(pages: int) -> Iterator[str]:
    """The endpoint of a server with that many pages, ended by its process id."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(pages, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()
