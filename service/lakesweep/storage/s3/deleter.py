"""Delete S3 objects by exact key, in pages, as fast as the store lets us and no faster.

Never raises for a key: every path gets its own answer, whatever happens to the others. S3 answers a missing key with
success, so DELETED means "no longer there"; a store that knows the difference gives ALREADY_GONE.

The client does not retry here: the limiter must see throttling, and single keys of a page can fail. So every request,
also a repeated one, passes `_Bucket.going` and `_Bucket.last_moment`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from lakesweep import aio
from lakesweep.model.errors import FailureKind, NotFound, StorageError, Unavailable
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.ports.deleter import ANOTHER_OBJECT, Conditions, Deleted, DeleteStatus
from lakesweep.retry import Backoff, Sleep
from lakesweep.storage.adaptive_limiter import LONGEST_PAUSE_SECONDS, Gate, delete_gate
from lakesweep.storage.s3.client import IS_DELETE_RESULT, S3Connection, before_sending
from lakesweep.storage.s3.errors import THROTTLING, Throttled, error_code, is_passing, kind_of, translating
from lakesweep.storage.s3.options import S3Options

_UNSAFE_IN_XML = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and the like: XML 1.0 cannot carry them, or changes them on the way."""

_NO_CONTENT = 204
"""The status with which S3 reports that a single object is gone."""
_UNREADABLE = frozenset({"MalformedXML", "NotImplemented", "MissingContentMD5", "InvalidRequest", "MissingArgument"})
"""The store cannot read a page of keys, does not know the request, or wants a checksum that clients no longer send: the
same keys may still be deleted one by one."""

_CHANGED = frozenset({"PreconditionFailed", "412"})
"""The store compared etags: it has another object now."""
_SINGLES = 16
"""Keys deleted one by one between two checks of the conditions."""


@dataclass(frozen=True, slots=True)
class _Fate:
    """The result for a key, with the store's message if it was not deleted."""

    status: DeleteStatus
    why: str | None = None
    kind: FailureKind = FailureKind.OTHER
    went: Went = Went.FREED
    marker: str | None = None


Fates = dict[str, _Fate]
"""Results by key."""
_GONE_NOW = _Fate(DeleteStatus.DELETED)
_GONE_BEFORE = _Fate(DeleteStatus.ALREADY_GONE)
_CHANGED_SINCE = _Fate(DeleteStatus.SPARED, ANOTHER_OBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The result of one request: final results, and keys to send again with their result if that does not help."""

    fates: Fates
    again: Fates
    throttled: bool = False


class NotSent(Exception):
    """Raised instead of sending a request that the conditions no longer allow."""

    def answer(self, keys: list[str]) -> _Answer:
        return _Answer(fates=dict.fromkeys(keys, _Fate(DeleteStatus.NOT_SENT, str(self))), again={})


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

    async def going(self, keys: list[str]) -> tuple[list[str], _Answer]:
        """The keys that may be sent now, and the results for the others."""
        kept = await self.conditions.withheld([self.paths[key] for key in keys]) if self.conditions else {}
        if not kept:
            return keys, _Answer(fates={}, again={})
        results = {key: kept[self.paths[key]] for key in keys if self.paths[key] in kept}
        fates: Fates = {key: _Fate(one.fate, one.why) for key, one in results.items()}
        return [key for key in keys if key not in results], _Answer(fates=fates, again={})

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
    """Deletes objects. All calls and all deleters of one gate share its pace: a deleter lives for one sweep, but a
    store throttles for longer."""

    def __init__(
        self,
        options: S3Options,
        gate: Gate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._connection = S3Connection(options, attempts=1)
        self._backoff = Backoff(options.attempts, sleep, longest=LONGEST_PAUSE_SECONDS)
        self._workers = options.delete_concurrency
        self._places = asyncio.Semaphore(options.delete_concurrency)
        self._gate = gate or delete_gate(options.delete_concurrency, sleep)
        self.pace = self._gate.pace
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
        fates = {
            bucket: await self._delete_in(_Bucket(client, bucket, keys, conditions)) for bucket, keys in buckets.items()
        }
        results = [fates[bucket][key] for bucket, key in places]
        return [
            Deleted(
                path=path, fate=fate.status, why=fate.why, kind=fate.kind, went=fate.went, delete_marker=fate.marker
            )
            for path, fate in zip(paths, results, strict=True)
        ]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002  # the port's
        """S3 has no directories."""
        return 0

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _delete_in(self, bucket: _Bucket) -> Fates:
        waiting = deque(bucket.paths)
        fates: Fates = {}
        tries: Counter[str] = Counter()
        workers = min(self._workers, -(-len(waiting) // self.pace.page_size))
        async with aio.task_group() as tasks:
            for _ in range(workers):
                tasks.create_task(self._work_off(bucket, waiting, fates, tries), name=f"delete in {bucket.name}")
        return fates

    async def _work_off(self, bucket: _Bucket, waiting: deque[str], fates: Fates, tries: Counter[str]) -> None:
        """Take pages from the queue until it is empty; keys to send again go back to its end."""
        failures = 0
        while waiting:
            async with self._places, self._gate.enter() as began:
                page = [waiting.popleft() for _ in range(min(self.pace.page_size, len(waiting)))]
                answer = await self._delete_keys(bucket, page)
            fates.update(answer.fates)
            for key, given_up in answer.again.items():
                tries[key] += 1
                if tries[key] < self._backoff.attempts:
                    waiting.append(key)
                else:
                    fates[key] = given_up
            if not answer.again:
                failures = 0
                self._gate.calm(began)
                continue
            failures += 1
            if answer.throttled:
                await self._gate.throttled(began)
            else:
                await self._backoff.pause(failures)

    async def _delete_keys(self, bucket: _Bucket, keys: list[str]) -> _Answer:
        """Delete one page; keys that XML cannot carry are deleted one by one."""
        odd = _unsafe(keys)
        if not odd:
            return await self._send_page(bucket, keys)
        plain = [key for key in keys if key not in odd]
        answers = [await self._send_singly(bucket, list(odd))]
        if plain:
            answers.append(await self._send_page(bucket, plain))
        return _merged(answers)

    async def _send_page(self, bucket: _Bucket, keys: list[str], *, loud: bool = False) -> _Answer:
        going, kept = await bucket.going(keys)
        if not going:
            return kept
        quiet = self._quiet and not loud and bucket.name in self._frees
        compares = self._compares and bucket.knows_etags(going)
        try:
            answer = await self._send(bucket, going, quiet=quiet, compares=compares)
            if not answer[IS_DELETE_RESULT]:
                if quiet:
                    return _merged([kept, await self._send_page(bucket, going, loud=True)])
                raise self._not_the_stores(bucket.address())
        except NotSent as exc:
            return _merged([kept, exc.answer(going)])
        except StorageError as exc:
            return _merged([kept, await self._after_error(bucket, going, exc, compares=compares)])
        self._quiet = self._quiet and not loud
        read = _read(going, answer.get("Errors", []), answer.get("Deleted", []))
        if not quiet:
            self._note_markers(bucket.name, read)
        return _merged([kept, read])

    def _note_markers(self, bucket: str, read: _Answer) -> None:
        """Does this bucket keep versions? A page without a deleted key does not show it."""
        went = {fate.went for fate in read.fates.values() if fate.status is DeleteStatus.DELETED}
        if Went.VERSIONS in went:
            self._frees.discard(bucket)
        elif went:
            self._frees.add(bucket)

    async def _after_error(self, bucket: _Bucket, keys: list[str], exc: StorageError, *, compares: bool) -> _Answer:
        if not (isinstance(exc.__cause__, ClientError) and error_code(exc.__cause__) in _UNREADABLE):
            return _refused(keys, exc)
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

    async def _send_singly(self, bucket: _Bucket, keys: list[str]) -> _Answer:
        """One request for each key. The conditions are checked for several keys together, otherwise they would cost
        more than the deletes."""
        answers = []
        for first in range(0, len(keys), _SINGLES):
            going, kept = await bucket.going(keys[first : first + _SINGLES])
            answers += [kept, *[await self._send_one(bucket, key) for key in going]]
        return _merged(answers)

    async def _send_one(self, bucket: _Bucket, key: str) -> _Answer:
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
            return _Answer(fates={key: _GONE_BEFORE}, again={})
        except StorageError as exc:
            code = error_code(exc.__cause__) if isinstance(exc.__cause__, ClientError) else None
            if code in _CHANGED:
                return _Answer(fates={key: _CHANGED_SINCE}, again={})
            if compared and code in _UNREADABLE:
                self._compares = False
                return await self._send_one(bucket, key)
            return _refused([key], exc)
        return _Answer(fates={key: _gone(answer.get("DeleteMarker"), answer.get("VersionId"))}, again={})

    def _not_the_stores(self, address: str) -> Unavailable:
        """A proxy in front of a store may answer 200 to everything: that does not prove that a key is gone."""
        return Unavailable(address, f"{self._connection.endpoint} answered a delete in a way that no object store does")


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


def _gone(is_marker: object, version: str | None) -> _Fate:
    """What a delete's response says about a deleted object. Where versioning is suspended the marker's id is `null`, as
    is that of anything written there later: removing it could remove that instead."""
    if not is_marker:
        return _GONE_NOW
    return _Fate(DeleteStatus.DELETED, went=Went.VERSIONS, marker=version if version and version != "null" else None)


def _read(keys: list[str], errors: list[dict[str, str]], deleted: Sequence[Mapping[str, Any]] = ()) -> _Answer:
    """A quiet response names only the keys that failed; all others are gone. A full response also names the delete
    markers."""
    fates: Fates = dict.fromkeys(keys, _GONE_NOW)
    for one in deleted:
        if one.get("Key") in fates:
            fates[one["Key"]] = _gone(one.get("DeleteMarker"), one.get("DeleteMarkerVersionId"))
    again: Fates = {}
    throttled = False
    for error in errors:
        key, code = error.get("Key", ""), error.get("Code", "Unknown")
        message = f"{code}: {error.get('Message') or 'no message'}"
        if key not in fates and key not in again:
            # The store reports a key that is not in this page, so no key of the page is known to be gone.
            unclear = f"the store reported {message} for a key that was not requested, {key!r}"
            return _Answer(fates=dict.fromkeys(keys, _Fate(DeleteStatus.FAILED, unclear)), again={})
        failed = _Fate(DeleteStatus.FAILED, message, kind_of(code))
        if code == "NoSuchKey":
            fates[key] = _GONE_BEFORE
        elif code in _CHANGED:
            fates[key] = _CHANGED_SINCE
        elif is_passing(code):
            fates.pop(key, None)
            again[key] = failed
            throttled = throttled or code in THROTTLING
        else:
            fates[key] = failed
    return _Answer(fates=fates, again=again, throttled=throttled)


def _refused(keys: list[str], exc: StorageError) -> _Answer:
    """A request that failed as a whole: send it again if that may help, otherwise every key failed."""
    failed = dict.fromkeys(keys, _Fate(DeleteStatus.FAILED, exc.why, exc.kind))
    if isinstance(exc, Unavailable):
        return _Answer(fates={}, again=failed, throttled=isinstance(exc, Throttled))
    return _Answer(fates=failed, again={})


def _merged(answers: list[_Answer]) -> _Answer:
    return _Answer(
        fates={key: fate for answer in answers for key, fate in answer.fates.items()},
        again={key: fate for answer in answers for key, fate in answer.again.items()},
        throttled=any(answer.throttled for answer in answers),
    )
