"""A deleter asks once more before every request, the ones it sends again too, and sends nothing that was forbidden."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.servers import s3_stub

from lakesweep.ports.deleter import Deleted, DeleteStatus, not_sent
from lakesweep.storage import memory
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.memory import MemoryDeleter
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.settings import S3Options


class Asked:
    """Conditions that remember each question and may change their answer at any of them."""

    def __init__(self, *, spared: Sequence[str] = (), ends_at: int | None = None) -> None:
        self.etags: Mapping[str, str] = {}
        self.written_ms: Mapping[str, int] = {}
        self.pages: list[list[str]] = []
        self.moments = 0
        self._spared, self._ends_at = frozenset(spared), ends_at

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        await asyncio.sleep(0)
        self.pages.append(list(paths))
        return {
            path: Deleted(path=path, status=DeleteStatus.SPARED, why="referenced")
            for path in paths
            if path in self._spared
        }

    def ended(self) -> str | None:
        self.moments += 1
        return "the lease ended" if self._ends_at is not None and self.moments > self._ends_at else None


@pytest.fixture
async def stub(s3_credentials):
    async with s3_stub.s3_stub("lake") as server:
        server.buckets["lake"] = {f"t/{number:04d}": b"x" for number in range(2500)}
        yield server


@pytest.fixture
async def deleter(stub):
    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    options = S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=4, delete_concurrency=1)
    async with aclosing(S3Deleter(options, sleep=sleep)) as opened:
        yield opened


def paths(stub: Any) -> list[str]:
    return [f"s3://lake/{key}" for key in stub.buckets["lake"]]


def counts_by_status(answers: Sequence[Deleted]) -> dict[str, int]:
    return {status: found for status in DeleteStatus if (found := sum(one.status is status for one in answers))}


async def test_every_page_is_asked_about_and_what_is_spared_stays(stub, deleter):
    asked = paths(stub)
    conditions = Asked(spared=[asked[0], asked[1700]])
    answers = await deleter.delete(asked, conditions)
    assert [one.path for one in answers] == asked
    assert counts_by_status(answers) == {DeleteStatus.DELETED: 2498, DeleteStatus.SPARED: 2}
    assert [len(page) for page in conditions.pages] == [1000, 1000, 500]
    assert paths(stub) == [asked[0], asked[1700]]


@pytest.mark.parametrize("pages", [0, 1, 2])
async def test_no_page_is_sent_after_the_lease_has_ended(stub, deleter, pages):
    answers = await deleter.delete(paths(stub), Asked(ends_at=pages))
    assert len(stub.requests) == pages
    assert counts_by_status(answers) == {
        status: found
        for status, found in ((DeleteStatus.DELETED, pages * 1000), (DeleteStatus.NOT_SENT, 2500 - pages * 1000))
        if found
    }


async def test_a_page_that_is_sent_again_is_asked_about_again(stub, deleter):
    said = [s3_stub.error(503, "SlowDown"), s3_stub.error(500, "InternalError")]

    async def fault(_: object) -> Any:
        return said.pop(0) if said else None

    stub.fault = fault
    asked = paths(stub)[:10]
    conditions = Asked()
    assert counts_by_status(await deleter.delete(asked, conditions)) == {DeleteStatus.DELETED: 10}
    assert (len(conditions.pages), conditions.moments, len(stub.requests)) == (3, 3, 3)


async def test_a_page_whose_first_answer_was_lost_is_not_sent_again_after_the_end(stub, deleter):
    async def lost(_: object) -> Any:
        return s3_stub.error(500, "InternalError")

    stub.fault = lost
    asked = paths(stub)[:10]
    answers = await deleter.delete(asked, Asked(ends_at=1))
    assert counts_by_status(answers) == {DeleteStatus.NOT_SENT: 10}
    assert len(stub.requests) == 1


async def test_keys_that_go_one_by_one_are_asked_about_too(stub, deleter):
    async def fault(request: Any) -> Any:
        return s3_stub.error(501, "NotImplemented") if "delete" in request.query else None

    stub.fault = fault
    asked = paths(stub)[:40]
    conditions = Asked(spared=[asked[20]], ends_at=31)
    answers = await deleter.delete(asked, conditions)
    assert counts_by_status(answers) == {DeleteStatus.DELETED: 30, DeleteStatus.SPARED: 1, DeleteStatus.NOT_SENT: 9}
    assert [len(page) for page in conditions.pages] == [40, 16, 16, 7]


async def test_the_moment_before_the_request_is_after_everything_that_could_wait(stub, deleter):
    """The lease ends while the request is being signed: the client is told, and nothing leaves."""
    client = await deleter._connection.client()
    conditions = Asked()

    def end(**_: object) -> None:
        conditions._ends_at = 0

    client.meta.events.register("before-sign.s3.DeleteObjects", end)
    assert counts_by_status(await deleter.delete(paths(stub)[:5], conditions)) == {DeleteStatus.NOT_SENT: 5}
    assert stub.requests == []


@pytest.mark.parametrize("code", ["NotImplemented", "MalformedXML"])
async def test_a_store_that_takes_no_etags_is_asked_without_them(stub, deleter, code):
    async def fault(request: Any) -> Any:
        return s3_stub.error(400, code) if b"ETag" in request.body else None

    stub.fault = fault
    asked = paths(stub)
    conditions = Asked()
    conditions.etags = dict.fromkeys(asked, "0" * 32)
    assert counts_by_status(await deleter.delete(asked, conditions)) == {DeleteStatus.DELETED: 2500}
    assert len(stub.requests) == 4  # told once


async def test_a_key_that_goes_by_itself_is_compared_by_its_own_header(stub, deleter):
    stub.buckets["lake"] = {"t/\x01": b"new", "t/\x02": b"old"}
    asked = paths(stub)
    conditions = Asked()
    conditions.etags = dict.fromkeys(asked, s3_stub.etag(b"old"))
    assert [one.status for one in await deleter.delete(asked, conditions)] == [
        DeleteStatus.SPARED,
        DeleteStatus.DELETED,
    ]
    assert list(stub.buckets["lake"]) == ["t/\x01"]


async def test_local_files_are_asked_about_in_pages(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("lakesweep.storage.local.deleter.PAGE", 4)
    files = [tmp_path / f"{number}" for number in range(10)]
    for file in files:
        file.write_bytes(b"x")
    asked = [f"file://{file}" for file in files]
    answers = await LocalDeleter().delete(asked, Asked(spared=[asked[1]], ends_at=2))
    assert [one.path for one in answers] == asked
    assert counts_by_status(answers) == {DeleteStatus.DELETED: 7, DeleteStatus.SPARED: 1, DeleteStatus.NOT_SENT: 2}
    assert [file.exists() for file in files] == [False, True, *[False] * 6, True, True]


async def test_memory_asks_as_the_others_do():
    memory.bucket("asks").objects.update({name: memory.Held(data=b"x", modified_at=None) for name in "ab"})
    asked = ["memory://asks/a", "memory://asks/b"]
    assert counts_by_status(await MemoryDeleter().delete(asked, Asked(ends_at=0))) == {DeleteStatus.NOT_SENT: 2}
    assert counts_by_status(await MemoryDeleter().delete(asked, Asked(spared=asked[:1]))) == {
        DeleteStatus.DELETED: 1,
        DeleteStatus.SPARED: 1,
    }
    assert set(memory.bucket("asks").objects) == {"a"}
    memory.forget("asks")


def test_what_was_not_sent_says_why():
    assert not_sent("s3://b/k", "why") == Deleted(path="s3://b/k", status=DeleteStatus.NOT_SENT, why="why")
