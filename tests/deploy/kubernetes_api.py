"""As much of a Kubernetes API server as a Spark driver needs, which runs the pods it is given as local containers.

It stands for the cluster, not for Spark: the driver, the executors and their image's entry point are the real ones.
Every request is written down, so that a role can be held against what was asked.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Start = Callable[[Object, dict[tuple[str, str], Object]], "subprocess.Popen[bytes]"]
"""Run a pod; the second value holds all objects by resource and name."""

Wanted = Callable[[Object], bool]
"""Judges an object by its metadata."""

_PATH = re.compile(r"/api/v1/namespaces/[^/]+/(?P<resource>\w+)(?:/(?P<name>[^/]+))?/?")
_WATCH_SECONDS = 5
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclass(kw_only=True)
class Cluster:
    """What is stored, what runs, and what was asked."""

    start: Start
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    asked: set[tuple[str, str]] = field(default_factory=set)
    """Verb and resource."""
    pods_given: list[Object] = field(default_factory=list)
    """Pods as they were asked for."""
    url: str = ""
    closed: threading.Event = field(default_factory=threading.Event)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, resource: str, given: Object) -> Object:
        """Store, and run it if it is a pod."""
        with self._lock:
            if resource == "pods":
                self.pods_given.append(copy.deepcopy(given))
            number = str(next(self._numbers))
            given["metadata"].setdefault("name", f"{resource}-{number}")
            given["metadata"] |= {"uid": number, "resourceVersion": number, "namespace": "lakesweep"}
            self.objects[resource, given["metadata"]["name"]] = given
            if resource == "pods":
                given["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
                self._processes[given["metadata"]["name"]] = self.start(given, self.objects)
            return given

    def find(self, resource: str, wanted: Wanted) -> list[Object]:
        """The objects of a resource that are wanted."""
        return [one for (kind, _), one in list(self.objects.items()) if kind == resource and wanted(one["metadata"])]

    def delete(self, resource: str, wanted: Wanted) -> None:
        """Remove them, and stop those that are pods."""
        with self._lock:
            for one in self.find(resource, wanted):
                del self.objects[resource, one["metadata"]["name"]]
                stop(self._processes.pop(one["metadata"]["name"], None))

    def close(self) -> None:
        """Stop every pod."""
        self.closed.set()
        self.delete("pods", lambda _: True)


def _wanted(name: str | None, query: str) -> Wanted:
    """By name, or by labels that must be equal."""
    selector = ",".join(parse_qs(query).get("labelSelector", []))
    labels = dict(pair.split("=", 1) for pair in selector.split(",") if pair).items()
    return lambda metadata: name in (None, metadata["name"]) and labels <= metadata.get("labels", {}).items()


def stop(process: subprocess.Popen[bytes] | None) -> None:
    """By its process group: what runs in a container ends with it."""
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def serving(start: Start) -> Iterator[Cluster]:
    """The server, on loopback."""
    cluster = Cluster(start=start)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    server.daemon_threads = True
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        cluster.close()


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            address = urlsplit(self.path)
            watching = parse_qs(address.query).get("watch") == ["true"]
            found = _PATH.fullmatch(address.path)
            resource, name = found.group("resource", "name") if found else ("", None)
            verb = _VERBS.get(self.command) or ("watch" if watching else "get" if name else "list")
            cluster.asked.add(("deletecollection" if verb == "delete" and not name else verb, resource))
            if watching:
                cluster.closed.wait(_WATCH_SECONDS)  # nothing to tell; clients watch again
                with suppress(ConnectionError):  # who watched may have left
                    self._answer(200, None, last=True)
            else:
                self._answer(*self._do(verb, resource, _wanted(name, address.query), body))

        def _do(self, verb: str, resource: str, wanted: Wanted, body: Any) -> tuple[int, Object]:
            if verb == "create":
                return 201, cluster.create(resource, body)
            if verb == "delete":
                cluster.delete(resource, wanted)
                return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            found = cluster.find(resource, wanted)
            if verb == "list":
                kind = {"pods": "PodList", "configmaps": "ConfigMapList"}.get(resource, "List")
                return 200, {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found}
            return (200, found[0]) if found else (404, {"kind": "Status", "apiVersion": "v1", "code": 404})

        def _answer(self, status: int, document: Object | None, *, last: bool = False) -> None:
            body = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if last:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
