"""The webhook is told how runs ended: signed, at least once, in order per table, and given up after a day."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.builders.admin import SetClock
from tests.builders.small_lake import LocalLake, to_toml
from tests.unit.cli import examples

from lakesweep.cli.main import main
from lakesweep.daemon import notifier as webhook
from lakesweep.daemon.notifier import Notifier
from lakesweep.settings.observability import NotifySettings
from lakesweep.state.memory import MemoryStateStore

SECRET = "a secret of enough characters"


class Receiver:
    """A small server that checks signatures and answers as it is told."""

    def __init__(self) -> None:
        self.taken: list[dict] = []
        self.refusing: set[str] = set()
        self.tries: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
                expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
                document = json.loads(body)
                receiver.tries.append(self.headers["webhook-id"])
                if self.headers["webhook-signature"] != f"v1,{expected}":
                    status = 401
                elif document.get("subject") in receiver.refusing:
                    status = 503
                else:
                    status = 204
                    receiver.taken.append(document)
                self.send_response(status)
                if status == 401:
                    self.send_header("location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?team=data"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def state(clock):
    return MemoryStateStore(clock)


def run(number, table="orders", kind=examples.refused):
    from dataclasses import replace  # noqa: PLC0415 - only here

    made = kind()
    return replace(made, id=f"{number:032x}", table=replace(made.table, name=table))


async def test_a_refusal_is_delivered_once_and_signed(receiver, state, clock):
    notifier = Notifier(NotifySettings(url=receiver.url, secret=SECRET), state, clock)
    await notifier.note(run(1))
    assert await notifier.deliver() == 1
    assert await notifier.deliver() == 0
    (event,) = receiver.taken
    assert (event["specversion"], event["subject"]) == ("1.0", "acme/prod/orders")
    assert event["type"] in ("io.lakesweep.run.refused", "io.lakesweep.run.waiting")
    assert event["data"]["run_id"] == f"{1:032x}"
    assert await state.notices() == []


async def test_a_wrong_secret_is_tried_again_and_no_redirect_is_followed(receiver, state, clock):
    notifier = Notifier(NotifySettings(url=receiver.url, secret="another " + SECRET), state, clock)
    await notifier.note(run(1))
    assert await notifier.deliver() == 0
    (waiting,) = await state.notices()
    assert waiting.attempts == 1
    assert waiting.next_try > clock.now()


async def test_no_notice_of_a_table_overtakes_another(receiver, state, clock):
    notifier = Notifier(NotifySettings(url=receiver.url, secret=SECRET), state, clock)
    receiver.refusing = {"acme/prod/orders"}
    for number, table in ((1, "orders"), (2, "orders"), (3, "events")):
        clock.moment += timedelta(seconds=1)
        await notifier.note(run(number, table))
    await notifier.deliver()
    assert [event["subject"] for event in receiver.taken] == ["acme/prod/events"]
    assert not any(one.startswith(f"{2:032x}") for one in receiver.tries)
    receiver.refusing = set()
    clock.moment += timedelta(hours=1)
    assert await notifier.deliver() == 2
    told = [event["data"]["run_id"] for event in receiver.taken if event["subject"] == "acme/prod/orders"]
    assert told == [f"{1:032x}", f"{2:032x}"]


async def test_a_notice_is_given_up_after_a_day_and_kept(receiver, state, clock):
    notifier = Notifier(NotifySettings(url="http://127.0.0.1:1/", secret=SECRET), state, clock)
    await notifier.note(run(1))
    for _ in range(30):
        await notifier.deliver()
        clock.moment += timedelta(hours=1)
    assert await state.notices() == []
    (dead,) = await state.notices(dead=True)
    assert dead.dead_at is not None
    assert await notifier.deliver() == 0


async def test_waits_double_up_to_an_hour_and_a_day_has_33_tries(state, clock):
    notifier = Notifier(NotifySettings(url="http://127.0.0.1:1/", secret=SECRET), state, clock)
    await notifier.note(run(1))
    waits = []
    while left := await state.notices():
        (waiting,) = left
        await notifier.deliver()
        if again := await state.notices():
            waits.append((again[0].next_try - clock.now()).total_seconds())
            clock.moment = again[0].next_try
        else:
            assert waiting.attempts == 32
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, *[3600] * 23]


async def test_two_replicas_do_not_send_one_try_twice(receiver, state, clock):
    settings = NotifySettings(url=receiver.url, secret=SECRET)
    one = Notifier(settings, state, clock)
    await one.note(run(1))
    (waiting,) = await state.notices()
    assert await state.claim_notice(waiting, clock.now() + timedelta(minutes=1))
    assert not await state.claim_notice(waiting, clock.now() + timedelta(minutes=1))
    assert await Notifier(settings, state, clock).deliver() == 0


async def test_only_what_was_requested_is_delivered(receiver, state, clock):
    notifier = Notifier(NotifySettings(url=receiver.url, secret=SECRET, events=("failed",)), state, clock)
    await notifier.note(run(1))
    await notifier.note(run(2, kind=examples.done))
    assert await state.notices() == []
    loud = Notifier(NotifySettings(url=receiver.url, secret=SECRET, done_above_bytes=10**15), state, clock)
    await loud.note(run(2, kind=examples.done))
    assert await state.notices() == []
    every = Notifier(NotifySettings(url=receiver.url, secret=SECRET), state, clock)
    await every.note(run(2, kind=examples.done))
    assert (await state.notices())[0].body["type"] == "io.lakesweep.run.done"


def test_slack_has_a_text_with_its_marks_escaped():
    from lakesweep.cleanup import report  # noqa: PLC0415 - only here

    document = report.run_document(run(1, "<!channel>"))
    event = webhook.cloud_event("refused", document, source="s")
    text = webhook.slack_message(event)["text"]
    assert "&lt;!channel&gt;" in text
    assert "<" not in text
    done = webhook.cloud_event("done", {**document, "deleted": {"count": 1, "bytes": 2048, "by_kind": {}}}, source="s")
    assert "deleted 1 file, 2,048 bytes" in webhook.slack_message(done)["text"]


def test_the_signature_is_that_of_the_standard_s_own_example():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = webhook.signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_run_by_hand_notifies_the_webhook_at_its_end(receiver, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAKESWEEP_NOTIFY__SECRET", SECRET)
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings(logging={"level": "error"}, notify={"url": receiver.url})))
    assert main(["run", "*", "--execute", "--config", str(file)]) == 0
    (event,) = receiver.taken
    assert (event["type"], event["data"]["deleted"]["count"]) == ("io.lakesweep.run.done", 3)
    main(["settings", "--config", str(file), "--all"])
    assert SECRET not in capsys.readouterr().out
