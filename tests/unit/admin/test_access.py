"""Who gets in, and that nobody learns a name that is none of their business."""

import base64
import hashlib
from datetime import timedelta

import pytest
from tests.builders.admin import NOON, ORDERS, RUN_ID, SECRET, SECRET_RUN_ID, SmallService, tenants_named

from lakesweep.admin.auth import check_listen, is_loopback, mint
from lakesweep.model.access import ApiToken, Role
from lakesweep.model.errors import SettingsError
from lakesweep.ports.state import Hold

READS = ["/api/v1/tables", "/api/v1/runs", f"/api/v1/runs/{RUN_ID}", f"/api/v1/runs/{RUN_ID}/plan", "/metrics"]
READS += [f"/api/v1/{name}?table={ORDERS.label}" for name in ("table", "snapshots", "settings")]
CHANGES = [
    ("/api/v1/runs", {"target": ORDERS.label, "execute": True}),
    (f"/api/v1/runs/{RUN_ID}/approve", None),
    (f"/api/v1/runs/{RUN_ID}/cancel", None),
    ("/api/v1/pause", None),
    ("/api/v1/stop", None),
    ("/api/v1/resume", None),
]


@pytest.fixture
async def service(tmp_path):
    service = SmallService(tmp_path)
    await service.seed()
    return service


async def answers(client):
    """One answer of every route."""
    return [await client.get(path) for path in READS] + [await client.post(path, json=body) for path, body in CHANGES]


# Tokens


def test_a_token_is_stored_without_its_secret():
    token, text = mint(role=Role.READ, tenants=["acme", "acme"], now=NOON, lasts=timedelta(days=1))
    prefix, token_id, secret = text.split("_", 2)
    assert (prefix, token_id) == ("lakesweep", token.id)
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    assert token == ApiToken(
        id=token_id,
        digest=hashlib.sha256(secret.encode()).hexdigest(),
        role=Role.READ,
        tenants=("acme",),
        created_at=NOON,
        expires_at=NOON + timedelta(days=1),
    )
    assert secret not in repr(token)


async def test_no_token_is_made_twice():
    texts = {mint(role=Role.READ, tenants=["*"], now=NOON, lasts=None)[1] for _ in range(100)}
    assert len(texts) == 100


async def test_without_a_valid_token_every_route_says_the_same_and_reveals_nothing(service):
    valid = await service.token()
    expired = await service.token(days=1)
    revoked = await service.token()
    await service.state.revoke_token(revoked.split("_")[1], NOON)
    service.clock.moment += timedelta(days=2)
    prefix, token_id, secret = valid.split("_", 2)
    bodies = set()
    for wrong in (
        None, "nonsense", expired, revoked,
        f"{prefix}_{token_id}_{'A' * 43}",
        f"{prefix}_{'0' * 12}_{secret}",
        valid[:-1], valid + "A", valid.upper(), f"{valid} {valid}",
    ):  # fmt: skip
        async with service.client(wrong) as client:
            for answer in await answers(client):
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                bodies.add(answer.text)
    assert len(bodies) == 1
    assert not tenants_named(bodies.pop())


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Token {}", "Bearer\t{}"])
async def test_only_a_bearer_token_counts(service, header):
    text = await service.token()
    async with service.client(Authorization=header.format(text)) as client:
        assert (await client.get("/api/v1/runs")).status_code == 401


async def test_a_token_that_was_made_while_running_counts_at_once(service):
    async with service.client() as client:
        assert (await client.get("/api/v1/runs")).status_code == 200
        text = await service.token()
        assert (await client.get("/api/v1/runs")).status_code == 401
        assert (await client.get("/api/v1/runs", headers={"Authorization": f"Bearer {text}"})).status_code == 200


# Roles


async def test_a_reader_changes_nothing(service):
    async with service.client(await service.token("acme", role=Role.READ)) as client:
        for path, body in CHANGES:
            answer = await client.post(path, json=body)
            assert answer.status_code == 403
            assert answer.json()["detail"] == "this needs a token with the role operate"
    assert service.asked == []
    assert await service.state.holds() == []
    assert await service.state.approvals(ORDERS.label) == []


async def test_a_reader_learns_its_role_before_anything_is_looked_up(service):
    async with service.client(await service.token("acme", role=Role.READ)) as client:
        of_another = await client.post(f"/api/v1/runs/{SECRET_RUN_ID}/approve")
        of_nobody = await client.post(f"/api/v1/runs/{'0' * 32}/approve")
    assert (of_another.status_code, of_another.text) == (of_nobody.status_code, of_nobody.text)


# Tenants


async def test_another_tenants_run_and_one_that_does_not_exist_answer_alike(service):
    async with service.client(await service.token("acme")) as client:
        for method, path in (
            ("GET", ""), ("GET", "/plan"), ("POST", "/approve"), ("POST", "/cancel"),
        ):  # fmt: skip
            hidden = await client.request(method, f"/api/v1/runs/{SECRET_RUN_ID}{path}")
            absent = await client.request(method, f"/api/v1/runs/{'0' * 32}{path}")
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text == absent.text
            assert not tenants_named(hidden.text)


async def test_another_tenants_table_and_one_that_does_not_exist_answer_alike(service):
    async with service.client(await service.token("acme")) as client:
        for path, field in (("/api/v1/runs", "target"), ("/api/v1/pause", "scope"), ("/api/v1/resume", "scope")):
            hidden = await client.post(path, json={field: SECRET.label})
            absent = await client.post(path, json={field: "nobody/at/all"})
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text == absent.text
        own = await client.post("/api/v1/runs", json={"target": "acme/prod/none"})
        assert own.text == hidden.text
    assert service.asked == []


async def test_lists_hold_only_what_is_the_callers(service):
    await service.state.set_hold(holds_on := hold("umbrella/lab"))
    async with service.client(await service.token("acme")) as client:
        tables = await client.get("/api/v1/tables")
        runs = await client.get("/api/v1/runs")
        of_another = await client.get("/api/v1/runs", params={"table": SECRET.label})
        pauses = await client.post("/api/v1/pause")
    assert [table["table"] for table in tables.json()["tables"]] == [ORDERS.label]
    assert [run["run_id"] for run in runs.json()["runs"]] == [RUN_ID]
    assert of_another.json() == {"runs": [], "next": None}
    assert [pause["scope"] for pause in pauses.json()["paused"]] == ["acme"]
    for answer in (tables, runs, of_another, pauses):
        assert not tenants_named(answer.text) & {"umbrella", "virus", "lab"}
    assert holds_on in await service.state.holds()


def hold(scope, reason=None):
    return Hold(scope=scope, since=NOON, by="token abc", reason=reason)


async def test_a_pause_of_everything_is_reported_without_who_and_why(service):
    await service.state.set_hold(hold("*", reason="umbrella is on fire"))
    async with service.client(await service.token("acme")) as client:
        answer = await client.post("/api/v1/resume")
    assert answer.json()["paused"] == [
        {"scope": "*", "since": "2026-03-01T12:00:00.000Z", "ends_at": None, "by": None, "reason": None}
    ]


@pytest.mark.parametrize("scope", ["*", "*/lab", "a*", "umbrella", "umbrella/lab/virus", "", "acm"])
async def test_a_limited_token_pauses_nothing_outside_its_tenants(service, scope):
    async with service.client(await service.token("acme")) as client:
        answer = await client.post("/api/v1/pause", json={"scope": scope})
    assert answer.status_code == (404 if scope else 422)
    assert await service.state.holds() == []


async def test_the_metrics_name_tenants_and_need_a_token_for_all(service):
    async with service.client(await service.token("acme")) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 403
        assert not tenants_named(answer.text)
    async with service.client(await service.token(role=Role.READ)) as client:
        assert 'tenant="acme"' in (await client.get("/metrics")).text


# Without tokens


async def test_without_any_token_this_machine_may_do_everything(service):
    async with service.client() as client:
        assert (await client.get("/api/v1/runs")).status_code == 200
        assert (await client.post("/api/v1/pause")).status_code == 200
    assert [held.by for held in await service.state.holds()] == ["local"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8484"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[2001:db8::1]"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_without_tokens_a_foreign_web_page_gets_nothing(service, headers):
    async with service.client(**headers) as client:
        for answer in await answers(client):
            assert answer.status_code == 403
            assert not tenants_named(answer.text)
    assert service.asked == []


@pytest.mark.parametrize("host", ["localhost:8484", "127.0.0.1:8484", "127.9.9.9", "[::1]:8484", "LOCALHOST."])
async def test_without_tokens_this_machine_may_be_called_by_any_of_its_names(service, host):
    async with service.client(Host=host, Origin=f"http://{host}") as client:
        assert (await client.get("/api/v1/runs")).status_code == 200


async def test_an_api_that_others_can_reach_is_never_open(service):
    async with service.client(loopback=False) as client:
        for answer in await answers(client):
            assert answer.status_code == 401


async def test_an_address_that_others_can_reach_needs_a_token_first(service):
    await check_listen("127.0.0.1:8484", service.state)
    with pytest.raises(SettingsError, match=r"admin\.listen = '0\.0\.0\.0:8484'.*lakesweep token new"):
        await check_listen("0.0.0.0:8484", service.state)
    await service.token("acme")
    await check_listen("0.0.0.0:8484", service.state)


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1"])
def test_these_addresses_are_this_machine_alone(listen):
    assert is_loopback(listen)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "localhost.example.org:1"])
def test_these_addresses_may_be_reached_by_others(listen):
    assert not is_loopback(listen)
