"""A REST server that wants code run, tokens sent elsewhere, memory filled or another host's words repeated."""

from __future__ import annotations

import asyncio
import gzip
import json
import socketserver
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from tests.builders.iceberg import Lake
from tests.unit.iceberg.expiring import expire
from tests.unit.iceberg.rest_stub import serve

from lakesweep.formats.iceberg import http_guard
from lakesweep.formats.iceberg.catalog import IcebergCatalog
from lakesweep.formats.iceberg.catalog_errors import AnswerRefused
from lakesweep.model.errors import CatalogUnavailable, SettingsError
from lakesweep.storage.local.store import LocalStorage, LocalWriter

SECRET = "instance-role-key"
EVIL = """
import pathlib
pathlib.Path({marker!r}).write_text("imported")
class Evil:
    def __init__(self, *args, **options):
        pathlib.Path({marker!r}).write_text("called")
    def auth_header(self):
        return None
"""


class Server:
    """Answers raw bytes by path, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.config: dict[str, Any] = {"defaults": {}, "overrides": {}}
        self.other: Callable[[str], bytes | Iterator[bytes]] = lambda _: answer({"namespaces": []})
        self.uri = ""

    def reply(self, request: str) -> bytes | Iterator[bytes]:
        self.requests.append(request)
        return answer(self.config) if "/v1/config" in request.partition("\r\n")[0] else self.other(request)


def answer(document: Any, status: str = "200 OK", *headers: str, body: bytes | None = None) -> bytes:
    data = json.dumps(document).encode() if body is None else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


@contextmanager
def hostile() -> Iterator[Server]:
    server = Server()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = []
            while (line := self.rfile.readline().decode()) not in ("\r\n", ""):
                lines.append(line)
            reply = server.reply("".join(lines))
            try:
                for part in [reply] if isinstance(reply, bytes) else reply:
                    self.wfile.write(part)
            except OSError:
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as tcp:
        tcp.daemon_threads = True
        thread = threading.Thread(target=tcp.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.uri = f"http://127.0.0.1:{tcp.server_address[1]}"
        yield server
        tcp.shutdown()


@pytest.fixture
def server() -> Iterator[Server]:
    with hostile() as found:
        yield found


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    with hostile() as found:
        yield found


@pytest.fixture
def marker(tmp_path: Path, monkeypatch) -> Path:
    """Is there only if the module `evil_code` was imported."""
    path = tmp_path / "was here"
    (tmp_path / "evil_code.py").write_text(EVIL.format(marker=str(path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil_code", raising=False)
    return path


def client(server: Server, seconds: float = 5.0, **properties: Any) -> IcebergCatalog:
    whole = {"type": "rest", "uri": server.uri, **properties}
    return IcebergCatalog("prod", whole, LocalStorage(), LocalWriter(), timeout_seconds=seconds)


async def refused(catalog: IcebergCatalog, match: str = "") -> str:
    with pytest.raises(CatalogUnavailable, match=match) as caught:
        await catalog.tables(None)
    return str(caught.value)


@pytest.mark.parametrize("part", ["defaults", "overrides"])
@pytest.mark.parametrize(
    "named",
    [
        {"auth": {"type": "custom", "impl": "evil_code.Evil"}},
        {"py-io-impl": "evil_code.Evil"},
        {"py-catalog-impl": "evil_code.Evil"},
    ],
)
async def test_a_server_never_names_code_that_runs_here(server: Server, marker: Path, part: str, named: dict):
    server.config[part] = named
    server.other = lambda request: answer(
        {"namespaces": [["db"]] if "parent" not in request else []}
        if "/tables" not in request
        else {"identifiers": [{"namespace": ["db"], "name": "t"}]}
        if "/tables/t" not in request
        else {"metadata-location": "file:/x/metadata/v1.metadata.json", "config": named, "metadata": {}}
    )
    catalog = client(server)
    assert await catalog.tables(None) == [("db", "t")]
    pointer = await catalog.pointer(("db", "t"))
    assert pointer.metadata_location.startswith("file:/x")
    assert pointer.config == {}
    assert not marker.exists()


async def test_a_class_made_from_the_rest_client_is_refused(server: Server, marker: Path):
    server.config["overrides"] = {"auth": {"type": "custom", "impl": "evil_code.Evil"}}
    properties = {"py-catalog-impl": "pyiceberg.catalog.rest.RestCatalog", "uri": server.uri}
    with pytest.raises(SettingsError, match='type = "rest"'):
        await IcebergCatalog("prod", properties, LocalStorage(), None).tables(None)
    assert not marker.exists()


@pytest.mark.parametrize("part", ["defaults", "overrides"])
async def test_only_two_plain_texts_of_a_server_are_taken(server: Server, elsewhere: Server, part: str):
    server.config[part] = {
        "prefix": "wh/main",
        "namespace-separator": "%2E",
        "uri": elsewhere.uri,
        "oauth2-server-uri": elsewhere.uri,
        "ssl": {"cabundle": "/etc/passwd"},
        "header.X-Evil": "yes",
        "rest.sigv4-enabled": "true",
        "token": "the-servers",
        "warehouse": "file:///etc",
        "s3.endpoint": elsewhere.uri,
    }
    catalog = client(server, token="ours")
    await catalog.tables(None)
    assert not elsewhere.requests
    asked = server.requests[-1]
    assert asked.startswith("GET /v1/wh/main/namespaces")
    assert "Bearer ours" in asked
    assert "X-Evil" not in asked
    assert set(catalog._connected.properties) & {"ssl", "warehouse", "s3.endpoint", "oauth2-server-uri"} == set()


@pytest.mark.parametrize("prefix", ["../admin", "a/%2e%2e/b", "x?y=", "x#y", "a\\b"])
async def test_a_prefix_that_leaves_its_place_is_refused(server: Server, prefix: str):
    server.config["overrides"] = {"prefix": prefix}
    await refused(client(server), "prefix")
    assert len(server.requests) == 1


@pytest.mark.parametrize("when", ["config", "later"])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
async def test_redirects_are_not_followed(server: Server, elsewhere: Server, when: str, status: str, monkeypatch):
    redirect = answer({}, status, f"Location: {elsewhere.uri}/v1/config")
    server.other = lambda _: redirect
    if when == "config":
        monkeypatch.setattr(server, "reply", lambda _: redirect)
    await refused(client(server, token="ours"), "redirect")
    assert not elsewhere.requests


@pytest.mark.parametrize("kind", ["credential", "oauth2"])
async def test_a_token_server_cannot_send_our_secret_elsewhere(server: Server, elsewhere: Server, kind: str):
    redirect = answer({}, "307 Temporary Redirect", f"Location: {elsewhere.uri}/token")
    server.reply = lambda request: redirect if "POST" in request else answer(server.config)
    oauth = {"client_id": "id", "client_secret": SECRET, "token_url": f"{server.uri}/token"}
    given = {
        "credential": {"credential": f"id:{SECRET}"},
        "oauth2": {"auth": {"type": "oauth2", "oauth2": oauth}},
    }[kind]
    assert SECRET not in await refused(client(server, **given), "redirect")
    assert not elsewhere.requests


@pytest.mark.parametrize(
    "reply",
    [
        answer({"error": {"message": SECRET, "type": SECRET, "code": 403}}, "403 Forbidden"),
        answer(None, f"403 {SECRET}", body=b""),
        answer(None, "400 Bad", body=SECRET.encode()),
        answer(None, "500 Oh", body=SECRET.encode()),
        answer(None, body=SECRET.encode()),
        answer({"namespaces": SECRET}),
        f"{SECRET} SSH-2.0-OpenSSH\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Length: {SECRET}\r\nContent-Encoding: {SECRET}\r\n\r\n".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{SECRET}".encode(),
    ],
)
@pytest.mark.parametrize("when", ["config", "later", "table"])
async def test_the_text_of_an_answer_reaches_no_message(server: Server, reply: bytes, when: str, caplog, monkeypatch):
    caplog.set_level("DEBUG", logger="lakesweep")
    server.other = lambda _: reply
    if when == "config":
        monkeypatch.setattr(server, "reply", lambda _: reply)
    with pytest.raises(CatalogUnavailable) as caught:
        await (client(server).pointer(("db", "t")) if when == "table" else client(server).tables(None))
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text


def test_a_guarded_session_goes_nowhere_else_and_keeps_no_text(server: Server, elsewhere: Server):
    session = requests.Session()
    http_guard.HttpGuard([f"{server.uri}/api"], 5).attach(session)
    for other in (elsewhere.uri, server.uri, f"{server.uri}/apis", f"{server.uri}/api/../x", "http://localhost/api"):
        with pytest.raises(AnswerRefused, match="configured address"):
            session.get(other)
    assert not elsewhere.requests + server.requests
    server.other = lambda _: answer(None, f"403 {SECRET}", body=SECRET.encode())
    refusal = session.get(f"{server.uri}/api/v1/x")
    assert (refusal.status_code, refusal.reason) == (403, "Forbidden")
    assert SECRET not in refusal.text


async def test_an_answer_has_a_size(server: Server, monkeypatch):
    monkeypatch.setattr(http_guard, "ANSWER_BYTES", 1 << 20)
    server.other = lambda _: answer({"namespaces": [["x" * (2 << 20)]]})
    await refused(client(server), "larger than 1 MiB")


async def test_an_answer_has_a_size_when_it_is_inflated(server: Server, monkeypatch):
    monkeypatch.setattr(http_guard, "ANSWER_BYTES", 1 << 20)
    bomb = gzip.compress(bytes(64 << 20))
    reply = answer(None, "200 OK", "Content-Encoding: gzip", body=bomb)
    server.other = lambda _: reply
    catalog = client(server)
    await catalog.commit_style()
    tracemalloc.start()
    await refused(catalog, "larger than 1 MiB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


async def test_a_zipped_answer_is_read_and_a_cut_one_is_not(server: Server):
    whole = gzip.compress(b'{"namespaces": []}')
    server.other = lambda _: answer(None, "200 OK", "Content-Encoding: gzip", body=whole)
    assert await client(server).tables(None) == []
    server.other = lambda _: answer(None, "200 OK", "Content-Encoding: gzip", body=whole[:-8])
    await refused(client(server), "is truncated")
    server.other = lambda _: answer(None, "200 OK", "Content-Encoding: br", body=whole)
    await refused(client(server), "not requested")


async def test_a_server_that_drips_does_not_outlast_the_call(server: Server):
    def drip() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        while True:
            time.sleep(0.02)
            yield b" "

    server.other = lambda _: drip()
    catalog = client(server, seconds=0.3)
    await refused(catalog, "did not answer")
    await asyncio.to_thread(catalog._threads.shutdown)  # waits for the threads: they must end by themselves


async def test_pages_without_end_do_not_outlast_the_call(server: Server):
    server.other = lambda _: answer({"namespaces": [["a"]], "next-page-token": "more"})
    catalog = client(server, seconds=0.3)
    await refused(catalog, "did not answer")
    await asyncio.to_thread(catalog._threads.shutdown)


async def test_namespaces_without_end_are_refused(server: Server, monkeypatch):
    monkeypatch.setattr("lakesweep.formats.iceberg.catalog.MOST_NAMESPACES", 50)

    def deeper(request: str) -> bytes:
        line = request.partition("\r\n")[0]
        if "/tables" in line:
            return answer({"identifiers": []})
        depth = line.count("%1F") + 2 if "parent=" in line else 1
        return answer({"namespaces": [["a"] * depth]})

    server.other = deeper
    await refused(client(server), "namespaces")


@pytest.mark.parametrize(
    "shown",
    [
        {"metadata-location": 7},
        {"metadata-location": "file:/x", "metadata": [1]},
        {"metadata-location": "file:/x", "metadata": {"snapshots": [1]}},
        {"metadata-location": "file:/x", "metadata": {"refs": {"main": {}}}},
        ["not an object"],
    ],
)
async def test_a_table_answer_of_another_shape_is_one_sentence(server: Server, shown: Any):
    server.other = lambda _: answer(shown)
    with pytest.raises(CatalogUnavailable):
        await client(server).pointer(("db", "t"))


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
async def test_a_table_never_names_code_that_runs_here(tmp_path: Path, marker: Path, name: str):
    lake = Lake.make(tmp_path / "lake")
    table = lake.create()
    table.history()
    path = Path(table.refresh().metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["properties"][name] = "evil_code.Evil"
    path.write_text(json.dumps(document))
    plan = await expire(await table.open())
    assert not marker.exists()
    assert len(plan.expire) == 2


async def test_an_honest_server_still_works(tmp_path: Path):
    lake = Lake.make(tmp_path)
    lake.create()
    with serve(lake.another_client()) as stub:
        found = IcebergCatalog("prod", {"type": "rest", "uri": f"{stub.uri}/"}, LocalStorage(), None)
        assert await found.tables(None) == [("db", "t")]
        await found.aclose()
