"""A TCP gateway in front of a server, which a test can shut and open again: the server is away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gateway:
    """Listens on a port of its own and passes bytes on while it is open. Runs in a thread with its own event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._pairs: set[asyncio.StreamWriter] = set()
        self._open = True
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._pass_on, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """Cut every connection and take no new one."""
        self._call(self._set(open_now=False))

    def open(self) -> None:
        self._call(self._set(open_now=True))

    def close(self) -> None:
        self.shut()
        self._server.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _set(self, *, open_now: bool) -> None:
        self._open = open_now
        if not open_now:
            for writer in list(self._pairs):
                writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._pairs |= {writer, far_writer}
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        self._pairs -= {writer, far_writer}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


@contextmanager
def gateway(host: str, port: int) -> Iterator[Gateway]:
    made = Gateway(host, port)
    try:
        yield made
    finally:
        made.close()
