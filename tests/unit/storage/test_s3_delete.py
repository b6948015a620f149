"""Deleting on S3: every key gets its own answer, and a store that asks for less gets less."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import aclosing

import pytest
from aiohttp import web
from tests.servers import s3_stub

from lakesweep.model.errors import FailureKind
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.ports.deleter import DeleteStatus
from lakesweep.storage.adaptive_limiter import delete_gate
from lakesweep.storage.s3 import deleter as s3_deleter
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.settings import S3Options


@pytest.fixture
async def stub(s3_credentials):
    async with s3_stub.s3_stub("lake") as server:
        server.buckets["lake"] = {f"t/{number:04d}": b"x" for number in range(2500)}
        yield server


@pytest.fixture
async def pauses():
    return []


@pytest.fixture
async def deleter(stub, pauses):
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    opened = S3Deleter(
        S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=4, delete_concurrency=3), sleep=sleep
    )
    yield opened
    await opened.aclose()


_ALWAYS_TOLD = (DeleteStatus.DELETED, DeleteStatus.ALREADY_GONE, DeleteStatus.FAILED)


def paths(stub) -> list[str]:
    return [f"s3://lake/{key}" for key in stub.buckets["lake"]]


def by_fate(answers) -> dict[DeleteStatus, int]:
    counts = {status: sum(one.status is status for one in answers) for status in DeleteStatus}
    return {status: count for status, count in counts.items() if count or status in _ALWAYS_TOLD}


async def test_pages_hold_at_most_a_thousand_keys_and_few_run_at_once(stub, deleter):
    running, most = 0, []

    async def watch(request):
        nonlocal running
        running += 1
        most.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    stub.fault = watch
    stub.buckets["lake"] = {f"t/{number:05d}": b"x" for number in range(7000)}
    answers = await deleter.delete(paths(stub))
    assert by_fate(answers)[DeleteStatus.DELETED] == 7000
    assert stub.buckets["lake"] == {}
    assert max(most) <= 3
    assert {len(s3_stub.asked_keys(request)) for request in stub.requests} == {1000}


async def test_a_storm_of_slow_down_shrinks_the_pace_and_loses_no_key(stub, deleter, pauses):
    async def storm(request):
        return s3_stub.error(503, "SlowDown") if len(stub.requests) <= 4 else None

    stub.fault = storm
    answers = await deleter.delete(paths(stub))
    assert by_fate(answers)[DeleteStatus.DELETED] == 2500
    assert stub.buckets["lake"] == {}
    assert deleter.limits.page_size < 1000
    assert 1 <= len(pauses) <= 4  # three are in flight when it begins
    assert max(len(s3_stub.asked_keys(request)) for request in stub.requests[6:]) < 1000


@pytest.mark.parametrize("seed", range(12))
async def test_every_path_is_answered_whatever_fails(stub, deleter, seed):
    chance = random.Random(seed)
    stub.buckets["lake"] = {f"t/{number:03d}": b"x" for number in range(60)}
    deleter.limits.page_size = 7
    codes = ["AccessDenied", "NoSuchKey", "InternalError", "SlowDown"]

    async def trouble(request):
        match chance.choice(["fine", "partly", "refused", "throttled", "broken", "lost answer"]):
            case "partly":
                failed = {key: chance.choice(codes) for key in s3_stub.asked_keys(request) if chance.random() < 0.5}
                for key in s3_stub.asked_keys(request):
                    if failed.get(key, "NoSuchKey") == "NoSuchKey":
                        stub.buckets["lake"].pop(key, None)
                return s3_stub.delete_errors(failed)
            case "refused":
                return s3_stub.error(403, "AccessDenied")
            case "throttled":
                return s3_stub.error(503, "SlowDown")
            case "broken":
                return s3_stub.xml("<DeleteResult>cut sho")
            case "lost answer":
                for key in s3_stub.asked_keys(request):
                    stub.buckets["lake"].pop(key, None)
                return s3_stub.error(500, "InternalError")
        return None

    stub.fault = trouble
    asked = paths(stub)
    answers = await deleter.delete(asked)
    assert [one.path for one in answers] == asked
    there = {f"s3://lake/{key}" for key in stub.buckets["lake"]}
    for one in answers:
        assert one.status is DeleteStatus.FAILED or one.path not in there
        assert (one.why is None) == (one.status is not DeleteStatus.FAILED)


class Capacity:
    """A store that answers SlowDown to whatever is more than it can take at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running = self.refused = 0
        self.seen: list[int] = []

    async def __call__(self, request):
        self.running += 1
        self.seen.append(self.running)
        try:
            await asyncio.sleep(0.001)
            if self.running > self.most:
                self.refused += 1
                return s3_stub.error(503, "SlowDown")
            return None
        finally:
            self.running -= 1


def opened(stub, gate=None, concurrency=16) -> S3Deleter:
    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0)

    options = S3Options(
        endpoint_url=stub.endpoint_url, path_style=True, attempts=10, delete_concurrency=concurrency, max_connections=64
    )
    return S3Deleter(options, gate, sleep=sleep)


async def test_a_store_that_takes_little_is_not_stormed_and_gets_more_when_it_can(stub):
    stub.fault = capacity = Capacity(2)
    stub.buckets["lake"] = {f"t/{number:06d}": b"x" for number in range(8_000)}
    async with aclosing(opened(stub, concurrency=8)) as deleter:
        answers = await deleter.delete(paths(stub))
        assert by_fate(answers)[DeleteStatus.DELETED] == 8_000
        # Eight at first, once; from then on it is asked for about what it takes.
        assert max(capacity.seen[8:]) <= 4
        assert capacity.refused <= 8 + len(capacity.seen) / 3
        capacity.most, capacity.seen = 100, []
        stub.requests.clear()
        stub.buckets["lake"] = {f"t/{number:06d}": b"x" for number in range(30_000)}
        assert by_fate(await deleter.delete(paths(stub)))[DeleteStatus.DELETED] == 30_000
        assert (deleter.limits.concurrency, deleter.limits.page_size) == (8, 1000)
        assert len(stub.requests) <= 30 + 50  # some smaller ones on the way back


async def test_in_a_storm_few_requests_are_sent_however_many_keys_wait(stub):
    waits: list[float] = []

    async def storm(request):
        return s3_stub.error(503, "SlowDown") if len(waits) < 12 else None

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    stub.fault = storm
    stub.buckets["lake"] = {f"t/{number:06d}": b"x" for number in range(16_000)}
    options = S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=100, delete_concurrency=16)
    batches = [paths(stub)[start : start + 1000] for start in range(0, 16_000, 1000)]
    async with aclosing(S3Deleter(options, sleep=sleep)) as deleter:
        answers = await asyncio.gather(*map(deleter.delete, batches))
    assert sum(by_fate(batch)[DeleteStatus.DELETED] for batch in answers) == 16_000
    # Sixteen are in flight when it begins, then 8, 4 and 2, then one after each pause.
    assert len(waits) == 12
    refused = len(stub.requests) - 16_000 / 100
    assert refused <= 16 + 8 + 4 + 2 + 9
    assert all(wait <= 0.2 * 2**number for number, wait in enumerate(waits))
    assert max(waits) <= 5


async def test_the_next_deleter_goes_on_at_the_pace_that_the_last_one_learnt(stub):
    gate = delete_gate(16)
    stub.fault = capacity = Capacity(2)
    stub.buckets["lake"] = {f"t/{number:06d}": b"x" for number in range(8_000)}
    async with aclosing(opened(stub, gate)) as first:
        await first.delete(paths(stub))
    capacity.seen, capacity.refused = [], 0
    stub.buckets["lake"] = {f"u/{number:06d}": b"x" for number in range(3_000)}
    async with aclosing(opened(stub, gate)) as second:
        answers = await second.delete(paths(stub))
    assert by_fate(answers)[DeleteStatus.DELETED] == 3_000
    assert max(capacity.seen) <= 6


async def test_deleters_of_one_gate_stay_below_it_and_each_below_its_own_limit(stub):
    stub.fault = capacity = Capacity(100)
    gate = delete_gate(5)
    keys = [f"s3://lake/t/{number:06d}" for number in range(8_000)]
    async with aclosing(opened(stub, gate)) as one, aclosing(opened(stub, gate)) as other:
        await asyncio.gather(one.delete(keys), other.delete(keys))
    assert max(capacity.seen) == 5
    capacity.seen = []
    async with aclosing(opened(stub, gate, concurrency=2)) as small:
        await asyncio.gather(small.delete(keys[:4_000]), small.delete(keys[4_000:]))
    assert max(capacity.seen) == 2


async def test_a_storm_without_end_fails_every_key_and_ends(stub, deleter):
    async def storm(_):
        return s3_stub.error(503, "SlowDown")

    stub.fault = storm
    answers = await deleter.delete(paths(stub)[:300])
    assert by_fate(answers)[DeleteStatus.FAILED] == 300
    assert all("SlowDown" in one.why and one.kind is FailureKind.THROTTLED for one in answers)
    assert len(stub.buckets["lake"]) == 2500


async def test_single_keys_that_fail_are_distinguished(stub, deleter):
    codes = {"t/0001": "AccessDenied", "t/0002": "NoSuchKey", "t/0003": "InternalError", "t/0004": "SlowDown"}

    async def some(request):
        asked = s3_stub.asked_keys(request)
        for key in asked:
            if key not in codes:
                stub.buckets["lake"].pop(key, None)
        return s3_stub.delete_errors({key: code for key, code in codes.items() if key in asked})

    stub.fault = some
    answers = {one.path[-4:]: one for one in await deleter.delete(paths(stub)[:10])}
    assert answers["0000"].status is DeleteStatus.DELETED
    assert (answers["0001"].status, answers["0001"].why) == (DeleteStatus.FAILED, "AccessDenied: on purpose")
    assert answers["0002"].status is DeleteStatus.ALREADY_GONE
    assert (answers["0003"].status, answers["0003"].why) == (DeleteStatus.FAILED, "InternalError: on purpose")
    assert answers["0004"].status is DeleteStatus.FAILED
    kinds = [answers[key].kind for key in ("0001", "0003", "0004")]
    assert kinds == [FailureKind.DENIED, FailureKind.UNAVAILABLE, FailureKind.THROTTLED]
    # What may pass is asked again, alone; what was refused is not.
    assert [len(s3_stub.asked_keys(request)) for request in stub.requests] == [10, 2, 2, 2]


async def test_one_failing_page_does_not_lose_the_answers_of_the_others(stub, deleter):
    async def refuse(request):
        return s3_stub.error(403, "AccessDenied") if "t/0000" in s3_stub.asked_keys(request) else None

    stub.fault = refuse
    answers = await deleter.delete(paths(stub))
    assert by_fate(answers) == {DeleteStatus.DELETED: 1500, DeleteStatus.ALREADY_GONE: 0, DeleteStatus.FAILED: 1000}
    assert len(stub.buckets["lake"]) == 1000
    assert "s3:DeleteObject" in answers[0].why
    assert answers[0].kind is FailureKind.DENIED


async def test_an_error_for_a_key_not_asked_for_leaves_the_page_in_doubt(stub, deleter):
    async def confused(_):
        return s3_stub.delete_errors({"t/else": "AccessDenied"})

    stub.fault = confused
    answers = await deleter.delete(paths(stub)[:5])
    assert by_fate(answers)[DeleteStatus.FAILED] == 5


NOT_S3 = {
    "a page for people": "<html><body>Sign in first</body></html>",
    "nothing": "",
    "another answer of S3": "<ListBucketResult></ListBucketResult>",
    "no XML": "OK",
    "a result that was cut": "<DeleteResult><Deleted>",
}


@pytest.mark.parametrize("key", ["t/0000", "t/\x01"], ids=["in a page", "by itself"])
@pytest.mark.parametrize("body", NOT_S3.values(), ids=NOT_S3.keys())
async def test_success_that_is_not_in_the_stores_format_does_not_make_a_key_gone(stub, deleter, body, key):
    async def something_before_the_store(_):
        return web.Response(text=body)

    stub.buckets["lake"] = {key: b"x"}
    stub.fault = something_before_the_store
    (answer,) = await deleter.delete(paths(stub))
    assert answer.status is DeleteStatus.FAILED
    assert stub.endpoint_url in answer.why
    stub.fault = None
    (answer,) = await deleter.delete(paths(stub))
    assert (answer.status, stub.buckets["lake"]) == (DeleteStatus.DELETED, {})


@pytest.mark.parametrize(
    "head",
    ["<DeleteResult/>", "\n<DeleteResult></DeleteResult>", '<s3:DeleteResult xmlns:s3="urn:s3"></s3:DeleteResult>'],
)
async def test_a_result_is_known_however_it_is_spelled(stub, deleter, head):
    async def spelled(_):
        return s3_stub.xml(head)

    stub.fault = spelled
    assert by_fate(await deleter.delete(paths(stub)[:5]))[DeleteStatus.DELETED] == 5
    assert len(stub.requests) == 1


def marked(version):
    """A fault: the bucket puts a delete marker of that version in the place of every key."""

    async def answer(request):
        if request.operation != "delete_page":
            return None
        assert b"<Quiet>true</Quiet>" not in request.body, "a quiet answer names no marker"
        keys = re.findall(rb"<Key>(.*?)</Key>", request.body)
        named = "".join(
            f"<Deleted><Key>{key.decode()}</Key><DeleteMarker>true</DeleteMarker>"
            f"<DeleteMarkerVersionId>{version}</DeleteMarkerVersionId></Deleted>"
            for key in keys
        )
        return s3_stub.xml(f"<DeleteResult>{named}</DeleteResult>")

    return answer


async def test_every_page_of_a_bucket_with_versions_names_its_markers(stub, deleter):
    stub.fault = marked("v1")
    answers = await deleter.delete(paths(stub))
    assert {(one.status, one.went, one.delete_marker) for one in answers} == {
        (DeleteStatus.DELETED, Went.VERSIONS, "v1")
    }


async def test_a_marker_without_a_version_of_its_own_is_not_recorded(stub, deleter):
    stub.fault = marked("null")  # whatever is written there later is called null too: removing it could take that
    answers = await deleter.delete(paths(stub))
    assert {(one.went, one.delete_marker) for one in answers} == {(Went.VERSIONS, None)}


async def test_a_store_that_is_silent_when_asked_to_be_quiet_is_asked_aloud(stub, deleter):
    async def silent(request):
        return web.Response() if b"<Quiet>true</Quiet>" in request.body else s3_stub.delete_errors({"t/0003": "Locked"})

    stub.fault = silent
    answers = await deleter.delete(paths(stub)[:5])
    assert [one.status for one in answers] == [DeleteStatus.DELETED] * 3 + [DeleteStatus.FAILED, DeleteStatus.DELETED]
    answers = await deleter.delete(paths(stub)[3:5])
    assert [one.status for one in answers] == [DeleteStatus.FAILED, DeleteStatus.DELETED]
    assert len(stub.requests) == 3  # it was told once


async def test_a_missing_bucket_fails_every_key(deleter):
    (answer,) = await deleter.delete(["s3://nowhere/t/a"])
    assert answer.status is DeleteStatus.FAILED
    assert "bucket does not exist" in answer.why


async def test_keys_that_xml_cannot_carry_go_one_by_one(stub, deleter):
    odd = ["t/\x01", "t/a\rb", "t/a\nb", "t/\ufffe", "t/\x0b"]
    stub.buckets["lake"] = dict.fromkeys([*odd, "t/plain", "t/é\x85"], b"")
    answers = await deleter.delete(paths(stub))
    assert by_fate(answers)[DeleteStatus.DELETED] == 7
    assert stub.buckets["lake"] == {}
    assert sorted(request.key for request in stub.requests if request.operation == "delete") == sorted(odd)


@pytest.mark.parametrize(
    ("status", "code"),
    [(501, "NotImplemented"), (400, "MalformedXML"), (400, "MissingContentMD5"), (400, "InvalidRequest")],
)
async def test_a_store_that_cannot_read_pages_gets_the_keys_one_by_one(stub, deleter, status, code):
    async def old(request):
        return s3_stub.error(status, code) if request.operation == "delete_page" else None

    stub.fault = old
    answers = await deleter.delete(paths(stub)[:20])
    assert by_fate(answers)[DeleteStatus.DELETED] == 20
    assert stub.count("delete") == 20


async def test_a_store_that_is_gone_fails_every_key_without_raising(s3_credentials):
    async def no_sleep(_: float) -> None:
        return None

    deleter = S3Deleter(S3Options(endpoint_url="http://127.0.0.1:9", attempts=2), sleep=no_sleep)
    answers = await deleter.delete(["s3://lake/a", "s3://other/b"])
    await deleter.aclose()
    assert [one.status for one in answers] == [DeleteStatus.FAILED, DeleteStatus.FAILED]
    assert [one.path for one in answers] == ["s3://lake/a", "s3://other/b"]
    assert "127.0.0.1:9" in answers[0].why
    assert answers[0].kind is FailureKind.UNAVAILABLE


@pytest.mark.parametrize(
    "other", ["s3://lake2/k", "s3://lak/k", "s3a://lake/k", "S3://lake/k", "s3://lake//k", "s3://lake/k%2F"]
)
def test_every_path_is_looked_for_in_its_own_bucket_under_its_own_key(other):
    paths = ["s3://lake/a/b", other]
    for order in (paths, paths[::-1]):
        parsed = [Location.parse(path) for path in order]
        assert s3_deleter._places(order) == [(place.authority, place.path) for place in parsed]


@pytest.mark.parametrize("odd", ["a\nb", "a\rb", "\x01", "\x1f", "\ufffe", "\ud800"])
def test_a_key_that_xml_cannot_carry_is_distinguished(odd):
    assert list(s3_deleter._unsafe(["plain", odd, "é 漢😀", "a&b<c>"])) == [odd]
    assert list(s3_deleter._unsafe(["plain", odd])) == [odd]
