"""Loopback ports for the servers of a test run, each given out once."""

from __future__ import annotations

import random
import socket

# Below what systems give to whoever asks for any port, so that no client's end of a connection takes one first.
# SeaweedFS also takes the port that is ten thousand higher unless told otherwise: those stay below, too.
_LOWEST, _HIGHEST = 12_000, 21_999

_held: list[socket.socket] = []


def free_port() -> int:
    """A loopback port that nothing listens on, and that no other process of the tests is given while this one lives."""
    while True:
        port = random.randint(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _hold(port):
            return port


def _hold(port: int) -> bool:
    """Mark a TCP port as taken by keeping the UDP port of that number, which goes when the process does."""
    mark = socket.socket(type=socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    _held.append(mark)
    return True
