"""Delete S3 objects by exact key, in pages, as fast as the store lets us and no faster.

Never raises for a key: every path gets its own answer, whatever happens to the others. S3 answers a missing key
with success, so DELETED means "not there any more"; a store that does tell says ALREADY_GONE.

The client does not retry here: throttling must reach the pace, and single keys of a page can fail.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from lakesweep.cleanup.deleter import Deleted, Fate
from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.location import Location
from lakesweep.storage.pace import Gate, Sleep, delete_gate, pause
from lakesweep.storage.s3_client import IS_DELETE_RESULT, S3Connection
from lakesweep.storage.s3_errors import THROTTLING, Throttled, error_code, is_passing, translating
from lakesweep.storage.spec import S3Options

_UNSAFE_IN_XML = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters and the like: XML 1.0 cannot carry them, or changes them on the way."""

_NO_CONTENT = 204
"""What S3 answers when a single object is gone."""
_UNREADABLE = frozenset({"MalformedXML", "NotImplemented", "MissingContentMD5", "InvalidRequest", "MissingArgument"})
"""The store cannot read a page of keys, has no such request or wants the checksum that clients no longer send: the same
keys may still go one by one."""

Fates = dict[str, tuple[Fate, str | None]]
"""By key: what became of it, and what the store said if it did not go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What came of one request: final fates, and keys to ask again with what the store said."""

    fates: Fates
    again: dict[str, str]
    throttled: bool = False


class S3Deleter:
    """The power to delete objects. The pace is shared by all calls, and by all deleters of one gate, so that together
    they stay below it: a deleter lives for one sweep, a store that throttles remembers for longer."""

    def __init__(
        self,
        options: S3Options,
        gate: Gate | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._connection = S3Connection(options, attempts=1)
        self._attempts = options.attempts
        self._workers = options.delete_concurrency
        self._places = asyncio.Semaphore(options.delete_concurrency)
        self._sleep = sleep
        self._gate = gate or delete_gate(options.delete_concurrency, sleep)
        self.pace = self._gate.pace
        self._quiet = True
        """Until the store turns out to say nothing at all when asked to be quiet: then each page would go twice."""

    async def delete(self, paths: Sequence[str]) -> list[Deleted]:
        """One answer per path, in the order asked."""
        places = _places(paths)
        buckets: dict[str, dict[str, None]] = {}
        for bucket, key in places:
            buckets.setdefault(bucket, {})[key] = None
        fates = {bucket: await self._delete_in(bucket, list(keys)) for bucket, keys in buckets.items()}
        told = [fates[bucket][key] for bucket, key in places]
        return [Deleted(path=path, fate=fate, why=why) for path, (fate, why) in zip(paths, told, strict=True)]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002  # the port's
        """S3 has no directories."""
        return 0

    async def aclose(self) -> None:
        """Close the client."""
        await self._connection.aclose()

    async def _delete_in(self, bucket: str, keys: list[str]) -> Fates:
        client = await self._connection.client()
        waiting = deque(keys)
        fates: Fates = {}
        tries: Counter[str] = Counter()
        workers = min(self._workers, -(-len(keys) // self.pace.page_size))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(self._work_off(client, bucket, waiting, fates, tries), name=f"delete in {bucket}")
        return fates

    async def _work_off(self, client: Any, bucket: str, waiting: deque[str], fates: Fates, tries: Counter[str]) -> None:
        """Take pages off the queue until it is empty; what must be asked again goes back to its end."""
        failures = 0
        while waiting:
            async with self._places, self._gate.enter() as began:
                page = [waiting.popleft() for _ in range(min(self.pace.page_size, len(waiting)))]
                answer = await self._ask(client, bucket, page)
            fates.update(answer.fates)
            for key, said in answer.again.items():
                tries[key] += 1
                if tries[key] < self._attempts:
                    waiting.append(key)
                else:
                    fates[key] = (Fate.FAILED, said)
            if not answer.again:
                failures = 0
                self._gate.calm(began)
                continue
            failures += 1
            if answer.throttled:
                await self._gate.throttled(began)
            else:
                await self._sleep(pause(failures))

    async def _ask(self, client: Any, bucket: str, keys: list[str]) -> _Answer:
        """One page; keys that XML cannot carry go by themselves."""
        odd = _unsafe(keys)
        if not odd:
            return await self._ask_page(client, bucket, keys)
        plain = [key for key in keys if key not in odd]
        answers = [await self._ask_one(client, bucket, key) for key in odd]
        if plain:
            answers.append(await self._ask_page(client, bucket, plain))
        return _merged(answers)

    async def _ask_page(self, client: Any, bucket: str, keys: list[str]) -> _Answer:
        try:
            answer = await self._send(client, bucket, keys, quiet=self._quiet)
            if not answer[IS_DELETE_RESULT]:
                answer = await self._send(client, bucket, keys, quiet=False)
                self._quiet = self._quiet and not answer[IS_DELETE_RESULT]
            if not answer[IS_DELETE_RESULT]:
                raise self._not_the_stores(f"s3://{bucket}")
        except StorageError as exc:
            if isinstance(exc.__cause__, ClientError) and error_code(exc.__cause__) in _UNREADABLE:
                return _merged([await self._ask_one(client, bucket, key) for key in keys])
            return _refused(keys, exc)
        return _read(keys, answer.get("Errors", []))

    async def _send(self, client: Any, bucket: str, keys: list[str], *, quiet: bool) -> dict[str, Any]:
        request = {"Objects": [{"Key": key} for key in keys], "Quiet": quiet}
        with translating(f"s3://{bucket}", self._connection.endpoint, "s3:DeleteObject"):
            answer: dict[str, Any] = await client.delete_objects(Bucket=bucket, Delete=request)
        return answer

    async def _ask_one(self, client: Any, bucket: str, key: str) -> _Answer:
        address = f"s3://{bucket}/{key}"
        try:
            with translating(address, self._connection.endpoint, "s3:DeleteObject"):
                answer = await client.delete_object(Bucket=bucket, Key=key)
            if answer["ResponseMetadata"]["HTTPStatusCode"] != _NO_CONTENT:
                raise self._not_the_stores(address)
        except NotFound:
            return _Answer(fates={key: (Fate.ALREADY_GONE, None)}, again={})
        except StorageError as exc:
            return _refused([key], exc)
        return _Answer(fates={key: (Fate.DELETED, None)}, again={})

    def _not_the_stores(self, address: str) -> Unavailable:
        """What stands before a store may say 200 to everything: that does not show that a key is gone."""
        return Unavailable(address, f"{self._connection.endpoint} answers what no object store says to a delete")


def _places(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Bucket and key of each. What begins like the first one is in its bucket, and nothing more needs to be parsed."""
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


def _read(keys: list[str], errors: list[dict[str, str]]) -> _Answer:
    """A quiet answer names only the keys that failed; all others are gone."""
    fates: Fates = dict.fromkeys(keys, (Fate.DELETED, None))
    again: dict[str, str] = {}
    throttled = False
    for error in errors:
        key, code = error.get("Key", ""), error.get("Code", "Unknown")
        said = f"{code}: {error.get('Message') or 'no message'}"
        if key not in fates and key not in again:
            # The store means a key we cannot tell: then none of this page is known to be gone.
            unclear = f"the store reported {said} for a key that was not asked for, {key!r}"
            return _Answer(fates=dict.fromkeys(keys, (Fate.FAILED, unclear)), again={})
        if code == "NoSuchKey":
            fates[key] = (Fate.ALREADY_GONE, None)
        elif is_passing(code):
            fates.pop(key, None)
            again[key] = said
            throttled = throttled or code in THROTTLING
        else:
            fates[key] = (Fate.FAILED, said)
    return _Answer(fates=fates, again=again, throttled=throttled)


def _refused(keys: list[str], exc: StorageError) -> _Answer:
    """A request that failed as a whole: ask again if that may help, else every key failed."""
    if isinstance(exc, Unavailable):
        return _Answer(fates={}, again=dict.fromkeys(keys, exc.why), throttled=isinstance(exc, Throttled))
    return _Answer(fates=dict.fromkeys(keys, (Fate.FAILED, exc.why)), again={})


def _merged(answers: list[_Answer]) -> _Answer:
    return _Answer(
        fates={key: fate for answer in answers for key, fate in answer.fates.items()},
        again={key: said for answer in answers for key, said in answer.again.items()},
        throttled=any(answer.throttled for answer in answers),
    )
