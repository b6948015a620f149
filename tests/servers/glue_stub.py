"""As much of AWS Glue as pyiceberg uses, with Glue's own condition: an update of another version is refused.

moto, the usual emulator, accepts a stale `VersionId`, so it cannot show whether a swap is conditional.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_Answer = tuple[int, dict[str, Any]]


@dataclass
class GlueStub:
    """Tables by database and name; each update makes the next version."""

    tables: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    updates: list[dict[str, Any]] = field(default_factory=list)
    uri: str = ""

    def handle(self, action: str, request: dict[str, Any]) -> _Answer:
        match action:
            case "CreateTable":
                table = request["TableInput"] | {"DatabaseName": request["DatabaseName"], "VersionId": "0"}
                self.tables[request["DatabaseName"], table["Name"]] = table
                return 200, {}
            case "GetTable":
                found = self.tables.get((request["DatabaseName"], request["Name"]))
                return (200, {"Table": found}) if found else _error("EntityNotFoundException")
            case "GetDatabase":
                return 200, {"Database": {"Name": request["Name"]}}
            case "GetDatabases":
                names = sorted({database for database, _ in self.tables})
                return 200, {"DatabaseList": [{"Name": name} for name in names]}
            case "GetTables":
                return self._listed(request)
            case "UpdateTable":
                return self._update(request)
        return _error("InvalidInputException")

    def _listed(self, request: dict[str, Any]) -> _Answer:
        """One table to a page."""
        found = [table for (database, _), table in sorted(self.tables.items()) if database == request["DatabaseName"]]
        at = int(request.get("NextToken", 0))
        more = {"NextToken": str(at + 1)} if at + 1 < len(found) else {}
        return 200, {"TableList": found[at : at + 1]} | more

    def _update(self, request: dict[str, Any]) -> _Answer:
        self.updates.append(request)
        key = (request["DatabaseName"], request["TableInput"]["Name"])
        held = self.tables[key]
        if request.get("VersionId", held["VersionId"]) != held["VersionId"]:
            return _error("ConcurrentModificationException")
        version = str(int(held["VersionId"]) + 1)
        self.tables[key] = request["TableInput"] | {"DatabaseName": key[0], "VersionId": version}
        return 200, {}


def _error(kind: str) -> _Answer:
    return 400, {"__type": kind, "Message": kind}


@contextmanager
def glue_stub() -> Iterator[GlueStub]:
    """Run it on a free port of the loopback."""
    stub = GlueStub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = stub.handle(self.headers["X-Amz-Target"].rpartition(".")[2], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    stub.uri = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
