"""A REST catalog in front of a real SQL catalog, for what only a server can do to a client.

It applies updates by pyiceberg's own rules, which drop a ref whose snapshot is removed, as Iceberg's server does. A
test may act between receiving a commit and applying it, or have the answer lost. The protocol is Iceberg's; only the
few calls that the product makes are there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakesweep.model.location import Location

_REQUIREMENTS = TypeAdapter(list[TableRequirement])
_UPDATES = TypeAdapter(list[TableUpdate])


@dataclass
class RestStub:
    """The server's knobs and its records."""

    catalog: Catalog
    before_commit: Callable[[], None] = lambda: None
    commit_answer: Callable[[int], int | None] = lambda _: None
    """Given the number of a commit, the status to answer instead of the truth, after applying it."""
    load_answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
    status: int | None = None
    """Answer everything but the configuration with this."""
    commits: list[dict[str, Any]] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    uri: str = ""

    def handle(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path.startswith("/v1/config"):
            return 200, {"defaults": {}, "overrides": {}}
        if self.status is not None:
            return self.status, _error(self.status, "out of order")
        path, _, query = path.partition("?")
        parts = [unquote(part) for part in path.removeprefix("/v1/").split("/")]
        match method, parts:
            case "GET", ["namespaces"]:
                return 200, {"namespaces": [] if "parent=" in query else self.catalog.list_namespaces()}
            case "GET", ["namespaces", space, "tables"]:
                found = self.catalog.list_tables(space)
                return 200, {"identifiers": [{"namespace": [space], "name": one[-1]} for one in found]}
            case "GET", ["namespaces", space, "tables", name]:
                self.loads.append(query)
                return self._load(name, space)
            case "POST", ["namespaces", "db", "tables", name]:
                return self._commit(name, json.loads(body))
        return 404, _error(404, "no such thing")

    def _load(self, name: str, namespace: str = "db") -> tuple[int, dict[str, Any]]:
        try:
            table = self.catalog.load_table(f"{namespace}.{name}")
        except NoSuchTableError:
            return 404, _error(404, "no such table")
        metadata = json.loads(Path(Location.parse(table.metadata_location).path).read_bytes())
        # As some servers answer: the pointer is spelled with one slash, the snapshots are only the heads.
        heads = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
        metadata["snapshots"] = [one for one in metadata.get("snapshots", []) if one["snapshot-id"] in heads]
        location = table.metadata_location.replace("file:///", "file:/")
        return 200, self.load_answer({"metadata-location": location, "metadata": metadata, "config": {}})

    def _commit(self, name: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.commits.append(request)
        self.before_commit()
        try:
            done = self.catalog.commit_table(
                self.catalog.load_table(f"db.{name}"),
                tuple(_REQUIREMENTS.validate_python(request["requirements"])),
                tuple(_UPDATES.validate_python(request["updates"])),
            )
        except CommitFailedException as exc:
            return 409, _error(409, str(exc))
        status = self.commit_answer(len(self.commits))
        if status is not None:
            return status, _error(status, "the answer was lost")
        metadata = json.loads(done.metadata.model_dump_json())
        return 200, {"metadata-location": done.metadata_location, "metadata": metadata}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Error", "code": code}}


@contextmanager
def serve(catalog: Catalog) -> Iterator[RestStub]:
    """Run the server on a free port of the loopback."""
    stub = RestStub(catalog)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = stub.handle(method, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stub.uri = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
