"""Campaigns against the API of a service that really runs: thousands of requests that nobody sends in good faith.

They held when they were first made by hand, with these counts; here they hold with each release.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import time
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest
from tests.servers.daemon import ORPHANS, make_place

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("service"), pytest.mark.timeout(3600)]

FUZZED = 2237
COMBINATIONS = 912
ODD = ["", "*", "..", "../umbrella", "\x00", "ä",
       "a" * 5000, "%2e%2e%2f", "null", "-1", "1e309", "umbrella/prod/virus",
       "acme/prod/orders", "acme/../umbrella", "ACME",
       "acme\numbrella", "umbrella", "' OR 1=1 --", "${x}", "\u202e", "/",
       "acme//orders", "*/*/*", "[", "0" * 32, "0" * 31, "true", "9" * 400]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "PROPFIND"]
OPEN_PATHS = ("/", "/dashboard.css", "/dashboard.js", "/api/openapi.json", "/healthz", "/readyz")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request."""

    method: str
    path: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None

    def says(self, word: str) -> bool:
        return word in f"{self.path} {self.headers} {(self.body or b'').decode('utf-8', 'replace')}"


def send(port: int, request: Sent) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(request.method, request.path, skip_host=any(n == "Host" for n, _ in request.headers))
        for name, value in request.headers:
            connection.putheader(name, value)
        if request.body is not None:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        answer = connection.getresponse()
        told = "".join(f"{name}: {value}\n" for name, value in answer.getheaders())
        return answer.status, told + answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


class Fuzzer:
    """Requests that are nearly right, by a seed."""

    def __init__(self, seed: int, run_ids: list[str]) -> None:
        self._random = random.Random(seed)
        self._run_ids = run_ids

    def request(self, headers: list[tuple[str, str]]) -> Sent:
        one = self._random
        method = one.choice(METHODS) if one.random() < 0.4 else one.choice(["GET", "POST"])
        body = self._body() if method != "GET" or one.random() < 0.1 else None
        extra = [
            ("Content-Type", one.choice(["application/json", "text/plain", "application/json; charset=utf-7", "x"]))
        ]
        if one.random() < 0.2:
            extra.append(
                one.choice(
                    [
                        ("X-Forwarded-For", "127.0.0.1"), ("X-HTTP-Method-Override", "POST"), ("Origin", "http://evil"),
                        ("X-Original-URL", "/api/v1/runs"), ("Accept", "text/html"), ("Cookie", "token=1"),
                        ("X-Forwarded-Host", "localhost"), ("Forwarded", "for=127.0.0.1"), ("Expect", "nothing"),
                    ]
                )
            )  # fmt: skip
        return Sent(method=method, path=self._path(), headers=[*headers, *extra], body=body)

    def _path(self) -> str:
        one = self._random
        run = one.choice([*self._run_ids, quote(one.choice(ODD), safe=""), f"{one.getrandbits(128):032x}"])
        path = one.choice(
            [
                "/api/v1/tables", "/api/v1/runs", f"/api/v1/runs/{run}", f"/api/v1/runs/{run}/plan",
                f"/api/v1/runs/{run}/approve", f"/api/v1/runs/{run}/cancel", "/api/v1/pause", "/api/v1/stop",
                "/api/v1/resume", "/metrics", f"/{quote(one.choice(ODD))}", f"/api/v1/{quote(one.choice(ODD))}",
                "//api/v1/tables", "/api/v1/tables/", "/api/v1/../v1/runs", "/API/v1/tables", *OPEN_PATHS,
            ]
        )  # fmt: skip
        names = ["limit", "offset", "after", "before", "table", "tenant", "tenants", "execute"]
        query = [f"{one.choice(names)}={quote(self._value(), safe='')}" for _ in range(one.choice([0, 0, 1, 2, 3]))]
        return path + ("?" + "&".join(query) if query else "")

    def _value(self) -> str:
        one = self._random
        return one.choice([*ODD, *self._run_ids, str(one.randrange(-5, 10**13)), "acme/prod/orders", "50"])

    def _body(self) -> bytes:
        one = self._random
        document = {
            name: one.choice([self._value(), True, None, one.randrange(10**20), [self._value()], {"a": self._value()}])
            for name in one.sample(
                ["target", "execute", "scope", "reason", "digest", "tenants", "role"], one.randrange(4)
            )
        }
        if one.random() < 0.3:
            document = one.choice(
                [
                    {"target": "umbrella/prod/virus", "execute": True}, {"scope": "umbrella"}, {"scope": "*"}, {},
                    {"target": "acme/prod/orders", "execute": False}, {"scope": "acme", "reason": self._value()},
                ]
            )  # fmt: skip
        text = json.dumps(document).encode()
        broken = [
            text[:-1],
            b"\xff" + text,
            b"[" * 5000,
            b"{" * 100,
            b"",
            b"nan",
            b'"' + b"a" * 70_000 + b'"',
            text * 2,
        ]
        return one.choice(broken) if one.random() < 0.2 else text


def settled(api, table):
    """The service has looked at this table, so that it begins nothing more by itself."""
    deadline = time.monotonic() + 120
    while not (found := api.get(f"/api/v1/runs?table={table}")["runs"]) or found[0]["outcome"] is None:
        assert time.monotonic() < deadline, table
        time.sleep(0.2)
    return [run["run_id"] for run in found]


def fault(caller, hidden, request, status, text):
    """What must never be, whatever was asked."""
    if status >= 500:
        return "an error of ours"
    if request.path.partition("?")[0] in OPEN_PATHS:
        return None  # the same bytes for everybody
    if any(word in text and not request.says(word) for word in hidden):
        return "a name of another tenant"
    if status < 300 and caller in ("nobody", "stranger"):
        return "an answer to a stranger"
    if status < 300 and caller.startswith("reader") and request.method not in ("GET", "HEAD", "OPTIONS"):
        return "an action of a reader"
    return None


def test_fuzzed_requests_break_nothing_and_reveal_nobody_elses_names(tmp_path, capsys):
    place = make_place(tmp_path)
    acme, reader = place.token("acme"), place.token("umbrella", role="read")
    with place.service() as api:
        api.with_token(acme).knows("acme/prod/orders", "acme/prod/returns")
        api.with_token(reader).knows("umbrella/prod/virus")
        ours = settled(api.with_token(acme), "acme/prod/orders")
        theirs = settled(api.with_token(reader), "umbrella/prod/virus")
        fuzzer = Fuzzer(20260301, [*ours, *theirs])
        callers = {
            "operator of acme": ([("Authorization", f"Bearer {acme}")], ["umbrella", "virus", *theirs]),
            "reader of umbrella": ([("Authorization", f"Bearer {reader}")], ["acme", "orders", "returns", *ours]),
            "nobody": ([], ["acme", "umbrella", "orders", "virus", *ours, *theirs]),
            "stranger": ([("Authorization", f"Bearer {acme[:-1]}!")], ["acme", "umbrella", "virus", *ours, *theirs]),
        }
        faults, answered = [], {}
        for number in range(FUZZED):
            caller = list(callers)[number % len(callers)]
            headers, hidden = callers[caller]
            request = fuzzer.request(headers)
            status, text = send(place.admin_port, request)
            answered.setdefault(caller, []).append(status)
            wrong = fault(caller, hidden, request, status, text)
            if wrong:
                faults.append((caller, wrong, request, status, text[-300:]))
        assert faults == []
        assert all(200 in answered[caller] for caller in callers)  # the campaign is no campaign of refusals alone
        virus = api.with_token(reader).get("/api/v1/tables")["tables"]
        assert [(table["table"], table["paused"]) for table in virus] == [("umbrella/prod/virus", False)]
        assert settled(api.with_token(reader), "umbrella/prod/virus") == theirs
    left = list((tmp_path / "lake" / "umbrella").rglob("virus/data/orphan-*"))
    assert len(left) == ORPHANS["umbrella"]["virus"]
    log = (tmp_path / "service.log").read_text()
    assert "Traceback" not in log
    assert acme not in log
    assert reader not in log
    with capsys.disabled():
        print(f"\n{sum(map(len, answered.values()))} fuzzed requests: 0 errors of ours, 0 names or acts of others")


def test_no_foreign_page_acts_through_a_browser_on_this_machine(tmp_path, capsys):
    """Without tokens the API is this machine's alone: every Host, Origin and Sec-Fetch-Site that is not refuses."""
    place = make_place(tmp_path)
    port = place.admin_port
    local = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "127.0.0.1", "LOCALHOST", f"localhost.:{port}",
             f"127.9.9.9:{port}"]  # fmt: skip
    foreign = ["evil.example", f"evil.example:{port}",
               f"127.0.0.1.evil.example:{port}", f"localhost.evil.example:{port}",
               f"2130706433:{port}", f"0x7f.1:{port}", f"0.0.0.0:{port}", f"10.0.0.1:{port}", f"[::]:{port}",
               f"localhost,evil.example:{port}", f"notlocalhost:{port}", ""]  # fmt: skip
    strange = ["null", "http://evil.example", f"http://evil.example:{port}", "http://127.0.0.1:1", "http://localhost:1",
               f"http://127.0.0.1:{port}.evil.example", f"http://evil.example/127.0.0.1:{port}",
               f"http://127.0.0.1:{port}@evil.example", "https://", "file://"]  # fmt: skip
    combinations = list(
        itertools.product(
            [*((host, True) for host in local), *((host, False) for host in foreign)],
            [None, "same", *strange],
            [None, "same-origin", "same-site", "cross-site"],
        )
    )
    assert len(combinations) == COMBINATIONS
    body = json.dumps({"scope": "acme/prod/returns", "reason": "campaign"}).encode()
    faults = []
    with place.service() as api:
        api.knows("acme/prod/returns")
        for (host, is_local), origin, site in combinations:
            headers = [("Host", host), ("Content-Type", "application/json")]
            headers += [("Origin", f"http://{host}" if origin == "same" else origin)] if origin else []
            headers += [("Sec-Fetch-Site", site)] if site else []
            allowed = is_local and origin in (None, "same") and site in (None, "same-origin")
            status, text = send(port, Sent(method="POST", path="/api/v1/pause", headers=headers, body=body))
            if (status == 200) is not allowed or status >= 500 or (not allowed and "acme" in text):
                faults.append((host, origin, site, status, text))
            paused = api.ask("POST", "/api/v1/resume", {"scope": "umbrella"}).document["paused"]
            if bool(paused) is not allowed:
                faults.append((host, origin, site, "acted"))
            if paused:
                assert api.ask("POST", "/api/v1/resume", {"scope": "acme/prod/returns"}).document == {"paused": []}
    assert faults == []
    with capsys.disabled():
        print(f"\n{len(combinations)} combinations of Host, Origin and Sec-Fetch-Site: 0 foreign pages acted")
