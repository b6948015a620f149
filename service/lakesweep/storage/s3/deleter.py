"""Delete S3 objects by exact key, in pages, as fast as the store lets us and no faster.

Never raises for a key: every path gets its own answer, whatever happens to the others. S3 answers a missing key with
success, so DELETED means "no longer there"; a store that knows the difference gives ALREADY_GONE.

The client does not retry here: the limiter must see throttling, and single keys of a page can fail. So every request,
also a repeated one, passes `_Bucket.going` and `_Bucket.last_moment`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from lakesweep import aio
from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Conditions, Deleted, DeleteStatus
from lakesweep.retry import Backoff, Sleep
from lakesweep.storage.adaptive_limiter import LONGEST_PAUSE_SECONDS, Gate, delete_gate
from lakesweep.storage.s3 import delete_answers
from lakesweep.storage.s3.client import IS_DELETE_RESULT, S3Connection, before_sending
from lakesweep.storage.s3.delete_answers import Answer, KeyResult, KeyResults
from lakesweep.storage.s3.errors import CHANGED, error_code, translating
from lakesweep.storage.s3.settings import S3Options

_UNSAFE_IN_XML = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and the like: XML 1.0 cannot carry them, or changes them on the way."""

_NO_CONTENT = 204
"""The status with which S3 reports that a single object is gone."""
_UNREADABLE = frozenset({"MalformedXML", "NotImplemented", "MissingContentMD5", "InvalidRequest", "MissingArgument"})
"""The store cannot read a page of keys, does not know the request, or wants a checksum that clients no longer send: the
same keys may still be deleted one by one."""

_SINGLES = 16
"""Keys deleted one by one between two checks of the conditions."""


class NotSent(Exception):
    """Raised instead of sending a request that the conditions no longer allow."""

    def answer(self, keys: list[str]) -> Answer:
        return Answer(final=dict.fromkeys(keys, KeyResult(DeleteStatus.NOT_SENT, str(self))), again={})


@dataclass(frozen=True, slots=True)
class _Bucket:
    """One bucket, the keys to delete there, and the conditions."""

    client: Any
    name: str
    paths: dict[str, str]
    """Addresses by key, as they were given."""
    conditions: Conditions | None

    def address(self, key: str | None = None) -> str:
        return f"s3://{self.name}" if key is None else f"s3://{self.name}/{key}"

    async def going(self, keys: list[str]) -> tuple[list[str], Answer]:
        """The keys that may be sent now, and the results for the others."""
        kept = await self.conditions.withheld([self.paths[key] for key in keys]) if self.conditions else {}
        if not kept:
            return keys, Answer(final={}, again={})
        results = {key: kept[self.paths[key]] for key in keys if self.paths[key] in kept}
        final: KeyResults = {key: KeyResult(one.status, one.why) for key, one in results.items()}
        return [key for key in keys if key not in results], Answer(final=final, again={})

    @contextmanager
    def last_moment(self) -> Iterator[None]:
        """Inside the block, a request checks the conditions when it is ready: signed, with nothing left to wait for but
        its socket."""
        token = before_sending.set(self._check)
        try:
            yield
        finally:
            before_sending.reset(token)

    def knows_etags(self, keys: list[str]) -> bool:
        etags = self.conditions.etags if self.conditions else {}
        return bool(etags) and any(self.paths[key] in etags for key in keys)

    def identified(self, key: str) -> dict[str, str]:
        """The key, with the etag of the judged object if it is known."""
        etag = self.conditions.etags.get(self.paths[key]) if self.conditions else None
        return {"Key": key} if etag is None else {"Key": key, "ETag": f'"{etag}"'}

    def _check(self) -> None:
        if self.conditions and (why := self.conditions.ended()):
            raise NotSent(why)


class S3Deleter:
    """Deletes objects. All calls and all deleters of one gate share its limits: a deleter lives for one sweep, but a
    store throttles for longer."""

    def __init__(self, options: S3Options, gate: Gate | None = None, sleep: Sleep = asyncio.sleep) -> None:
        self._connection = S3Connection(options, attempts=1)
        self._backoff = Backoff(options.attempts, sleep, longest=LONGEST_PAUSE_SECONDS)
        self._workers = options.delete_concurrency
        self._places = asyncio.Semaphore(options.delete_concurrency)
        self._gate = gate or delete_gate(options.delete_concurrency, sleep)
        self.limits = self._gate.limits
        self._quiet = True
        """False once a store sends nothing at all in quiet mode: each page would be sent twice."""
        self._frees: set[str] = set()
        """Buckets whose responses named no delete marker. Only there a quiet response, which names none, is enough."""
        self._compares = options.compare_etags
        """False once a store turns out not to accept etags."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        places = _places(paths)
        buckets: dict[str, dict[str, str]] = {}
        for (bucket, key), path in zip(places, paths, strict=True):
            buckets.setdefault(bucket, {})[key] = path
        client = await self._connection.client() if buckets else None
        final = {
            bucket: await self._delete_in(_Bucket(client, bucket, keys, conditions)) for bucket, keys in buckets.items()
        }
        results = [final[bucket][key] for bucket, key in places]
        return [
            Deleted(path=path, status=one.status, why=one.why, kind=one.kind, went=one.went, delete_marker=one.marker)
            for path, one in zip(paths, results, strict=True)
        ]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002  # the port's
        """S3 has no directories."""
        return 0

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _delete_in(self, bucket: _Bucket) -> KeyResults:
        waiting = deque(bucket.paths)
        final: KeyResults = {}
        tries: Counter[str] = Counter()
        workers = min(self._workers, -(-len(waiting) // self.limits.page_size))
        async with aio.task_group() as tasks:
            for _ in range(workers):
                tasks.create_task(self._work_off(bucket, waiting, final, tries), name=f"delete in {bucket.name}")
        return final

    async def _work_off(self, bucket: _Bucket, waiting: deque[str], final: KeyResults, tries: Counter[str]) -> None:
        """Take pages from the queue until it is empty; keys to send again go back to its end."""
        failures = 0
        while waiting:
            async with self._places, self._gate.enter() as began:
                page = [waiting.popleft() for _ in range(min(self.limits.page_size, len(waiting)))]
                answer = await self._delete_keys(bucket, page)
            final.update(answer.final)
            for key, failed in answer.again.items():
                tries[key] += 1
                if tries[key] < self._backoff.attempts:
                    waiting.append(key)
                else:
                    final[key] = failed
            if not answer.again:
                failures = 0
                self._gate.record_success(began)
                continue
            failures += 1
            if answer.throttled:
                await self._gate.throttled(began)
            else:
                await self._backoff.pause(failures)

    async def _delete_keys(self, bucket: _Bucket, keys: list[str]) -> Answer:
        """Delete one page; keys that XML cannot carry are deleted one by one."""
        odd = _unsafe(keys)
        if not odd:
            return await self._send_page(bucket, keys)
        plain = [key for key in keys if key not in odd]
        answers = [await self._send_singly(bucket, list(odd))]
        if plain:
            answers.append(await self._send_page(bucket, plain))
        return delete_answers.merged(answers)

    async def _send_page(self, bucket: _Bucket, keys: list[str], *, loud: bool = False) -> Answer:
        going, kept = await bucket.going(keys)
        if not going:
            return kept
        quiet = self._quiet and not loud and bucket.name in self._frees
        compares = self._compares and bucket.knows_etags(going)
        try:
            answer = await self._send(bucket, going, quiet=quiet, compares=compares)
            if not answer[IS_DELETE_RESULT]:
                if quiet:
                    return delete_answers.merged([kept, await self._send_page(bucket, going, loud=True)])
                raise self._not_the_stores(bucket.address())
        except NotSent as exc:
            return delete_answers.merged([kept, exc.answer(going)])
        except StorageError as exc:
            return delete_answers.merged([kept, await self._after_error(bucket, going, exc, compares=compares)])
        self._quiet = self._quiet and not loud
        read = delete_answers.read_page(going, answer.get("Errors", []), answer.get("Deleted", []))
        if not quiet:
            self._note_markers(bucket.name, read)
        return delete_answers.merged([kept, read])

    def _note_markers(self, bucket: str, read: Answer) -> None:
        """Does this bucket keep versions? A page without a deleted key does not show it."""
        went = {one.went for one in read.final.values() if one.status is DeleteStatus.DELETED}
        if Went.VERSIONS in went:
            self._frees.discard(bucket)
        elif went:
            self._frees.add(bucket)

    async def _after_error(self, bucket: _Bucket, keys: list[str], exc: StorageError, *, compares: bool) -> Answer:
        if not (isinstance(exc.__cause__, ClientError) and error_code(exc.__cause__) in _UNREADABLE):
            return delete_answers.all_failed(keys, exc)
        if compares:
            self._compares = False
            return await self._send_page(bucket, keys)
        return await self._send_singly(bucket, keys)

    async def _send(self, bucket: _Bucket, keys: list[str], *, quiet: bool, compares: bool) -> dict[str, Any]:
        objects = [bucket.identified(key) for key in keys] if compares else [{"Key": key} for key in keys]
        request = {"Objects": objects, "Quiet": quiet}
        client = bucket.client
        with translating(bucket.address(), self._connection.endpoint, "s3:DeleteObject"), bucket.last_moment():
            answer: dict[str, Any] = await client.delete_objects(Bucket=bucket.name, Delete=request)
        return answer

    async def _send_singly(self, bucket: _Bucket, keys: list[str]) -> Answer:
        """One request for each key. The conditions are checked for several keys together, otherwise they would cost
        more than the deletes."""
        answers = []
        for first in range(0, len(keys), _SINGLES):
            going, kept = await bucket.going(keys[first : first + _SINGLES])
            answers += [kept, *[await self._send_one(bucket, key) for key in going]]
        return delete_answers.merged(answers)

    async def _send_one(self, bucket: _Bucket, key: str) -> Answer:
        address = bucket.address(key)
        compared = {"IfMatch": bucket.identified(key)["ETag"]} if self._compares and bucket.knows_etags([key]) else {}
        client = bucket.client
        try:
            with translating(address, self._connection.endpoint, "s3:DeleteObject"), bucket.last_moment():
                answer = await client.delete_object(Bucket=bucket.name, Key=key, **compared)
            if answer["ResponseMetadata"]["HTTPStatusCode"] != _NO_CONTENT:
                raise self._not_the_stores(address)
        except NotSent as exc:
            return exc.answer([key])
        except NotFound:
            return Answer(final={key: delete_answers.GONE_BEFORE}, again={})
        except StorageError as exc:
            code = error_code(exc.__cause__) if isinstance(exc.__cause__, ClientError) else None
            if code in CHANGED:
                return Answer(final={key: delete_answers.CHANGED_SINCE}, again={})
            if compared and code in _UNREADABLE:
                self._compares = False
                return await self._send_one(bucket, key)
            return delete_answers.all_failed([key], exc)
        return Answer(final={key: delete_answers.gone(answer.get("DeleteMarker"), answer.get("VersionId"))}, again={})

    def _not_the_stores(self, address: str) -> Unavailable:
        """A proxy in front of a store may answer 200 to everything: that does not prove that a key is gone."""
        endpoint = self._connection.endpoint
        return Unavailable(
            address, f"{endpoint} did not answer a delete as object stores do; a proxy may have answered"
        )


def _places(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Bucket and key of each path. Paths that begin like the first one are in its bucket and need no parsing."""
    if not paths:
        return []
    first = Location.parse(paths[0])
    bucket, store = first.authority, first.store
    if not all(path.startswith(store) for path in paths):
        return [(place.authority, place.path) for place in map(Location.parse, paths)]
    return [(bucket, path[len(store) :]) for path in paths]


def _unsafe(keys: list[str]) -> dict[str, None]:
    """Keys that XML cannot carry, in order."""
    together = "".join(keys)
    if together.isascii() and together.isprintable():
        return {}
    return {key: None for key in keys if _UNSAFE_IN_XML.search(key)}
