"""An HTTP proxy in front of a real catalog that answers wrongly when told to.

The server behind it stays the real one. A fault says what happens to the next matching requests: an error
instead of the request, an error or silence *after* the request was carried out (the answer is lost), a stall,
or a piece of test code that runs just before the request goes on, such as another client's commit.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "accept-encoding"}


class Act(StrEnum):
    """What becomes of a request."""

    ANSWER = "answer"
    """Not carried out; the client gets `status`."""
    APPLY_THEN_ANSWER = "apply_then_answer"
    """Carried out, but the client gets `status` all the same."""
    APPLY_THEN_DROP = "apply_then_drop"
    """Carried out, then the connection closes without an answer."""
    DROP = "drop"
    """Not carried out; the connection closes without an answer."""
    STALL = "stall"
    """Not carried out and not answered until the proxy ends or the client gives up."""
    PASS = "pass"
    """Carried out and answered; only `before` makes a difference."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the next `times` requests that match. By default: commits to a table."""

    act: Act
    status: int = 500
    times: int = 1
    method: str = "POST"
    path: str = r"/v1/namespaces/[^/]+/tables/[^/]+$"
    body: str = ""
    """A text that the request body must hold, such as `remove-snapshots`."""
    before: Callable[[], None] | None = None
    """Runs before the request is carried out, once per matching request."""

    def matches(self, method: str, path: str, body: str) -> bool:
        """Is it this request's turn?"""
        return self.times > 0 and method == self.method and bool(re.search(self.path, path)) and self.body in body


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as the proxy saw it; `status` is what the client got, None when it got nothing."""

    method: str
    path: str
    body: str
    act: Act
    status: int | None


@dataclass(slots=True)
class FaultProxy:
    """The running proxy. Add faults with `inject`; `seen` tells what happened."""

    target: str
    uri: str = ""
    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, fault: Fault) -> Fault:
        """Make this happen, after the faults that are already waiting."""
        with self._lock:
            self.faults.append(fault)
        return fault

    def take(self, method: str, path: str, body: str) -> Fault | None:
        """The fault for this request, used up by one."""
        with self._lock:
            for fault in self.faults:
                if fault.matches(method, path, body):
                    fault.times -= 1
                    return fault
        return None

    def record(self, seen: Seen) -> None:
        """Remember one request."""
        with self._lock:
            self.seen.append(seen)

    def commits(self, body: str = "") -> list[Seen]:
        """Requests that asked for a commit to a table and held `body`."""
        probe = Fault(act=Act.PASS, body=body)
        with self._lock:
            return [seen for seen in self.seen if probe.matches(seen.method, seen.path, seen.body)]


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """A proxy on a free loopback port in front of `target` (`http://host:port`)."""
    proxy = FaultProxy(target)

    class Handler(_Handler):
        owner = proxy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    proxy.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="fault-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultProxy

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = body.decode("utf-8", "replace")
        path = urlsplit(self.path).path
        fault = self.owner.take(self.command, path, text) or Fault(act=Act.PASS)
        if fault.before is not None:
            fault.before()
        status = self._carry_out(fault, body)
        self.owner.record(Seen(method=self.command, path=path, body=text, act=fault.act, status=status))

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = handle_any

    def _carry_out(self, fault: Fault, body: bytes) -> int | None:
        match fault.act:
            case Act.ANSWER:
                return self._answer_fault(fault.status)
            case Act.APPLY_THEN_ANSWER:
                self._forward(body)
                return self._answer_fault(fault.status)
            case Act.APPLY_THEN_DROP:
                self._forward(body)
            case Act.DROP:
                pass
            case Act.STALL:
                self.owner.closing.wait()
            case Act.PASS:
                return self._answer(*self._forward(body))
        self.close_connection = True
        return None

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = urlsplit(self.owner.target)
        connection = http.client.HTTPConnection(target.hostname or "127.0.0.1", target.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        try:
            connection.request(self.command, target.path + self.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer_fault(self, status: int) -> int:
        kind = "CommitFailedException" if status == http.client.CONFLICT else "InternalServerError"
        error = {"error": {"message": f"injected {status}", "type": kind, "code": status}}
        return self._answer(status, [("Content-Type", "application/json")], json.dumps(error).encode())

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> int:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return status

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: `seen` is the log."""
