"""What S3 answered to a request to delete, key by key. Pure: nothing is sent here. A key counts as gone only if the
answer says so, or leaves it out of a page that names every failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesweep.model.errors import FailureKind, StorageError, Unavailable
from lakesweep.model.files import Went
from lakesweep.ports.deleter import ANOTHER_OBJECT, DeleteStatus
from lakesweep.storage.s3.errors import CHANGED, THROTTLING, Throttled, is_passing, kind_of


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The result for a key, with the store's message if it was not deleted."""

    status: DeleteStatus
    why: str | None = None
    kind: FailureKind = FailureKind.OTHER
    went: Went = Went.FREED
    marker: str | None = None


KeyResults = dict[str, KeyResult]
"""Results by key."""
GONE_NOW = KeyResult(DeleteStatus.DELETED)
GONE_BEFORE = KeyResult(DeleteStatus.ALREADY_GONE)
CHANGED_SINCE = KeyResult(DeleteStatus.SPARED, ANOTHER_OBJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one request: final results, and keys to send again with their result if that does not help."""

    final: KeyResults
    again: KeyResults
    throttled: bool = False


def gone(is_marker: object, version: str | None) -> KeyResult:
    """What a delete's response says about a deleted object. Where versioning is suspended the marker's id is `null`, as
    is that of anything written there later: removing it could remove that instead."""
    if not is_marker:
        return GONE_NOW
    return KeyResult(
        DeleteStatus.DELETED, went=Went.VERSIONS, marker=version if version and version != "null" else None
    )


def read_page(keys: list[str], errors: list[dict[str, str]], deleted: Sequence[Mapping[str, Any]] = ()) -> Answer:
    """A quiet response names only the keys that failed; all others are gone. A full response also names the delete
    markers."""
    final: KeyResults = dict.fromkeys(keys, GONE_NOW)
    for one in deleted:
        if one.get("Key") in final:
            final[one["Key"]] = gone(one.get("DeleteMarker"), one.get("DeleteMarkerVersionId"))
    again: KeyResults = {}
    throttled = False
    for error in errors:
        key, code = error.get("Key", ""), error.get("Code", "Unknown")
        message = f"{code}: {error.get('Message') or 'no message'}"
        if key not in final and key not in again:
            # The store reports a key that is not in this page, so no key of the page is known to be gone.
            unclear = f"the store reported {message} for a key that was not requested, {key!r}"
            return Answer(final=dict.fromkeys(keys, KeyResult(DeleteStatus.FAILED, unclear)), again={})
        failed = KeyResult(DeleteStatus.FAILED, message, kind_of(code))
        if code == "NoSuchKey":
            final[key] = GONE_BEFORE
        elif code in CHANGED:
            final[key] = CHANGED_SINCE
        elif is_passing(code):
            final.pop(key, None)
            again[key] = failed
            throttled = throttled or code in THROTTLING
        else:
            final[key] = failed
    return Answer(final=final, again=again, throttled=throttled)


def all_failed(keys: list[str], exc: StorageError) -> Answer:
    """A request that failed as a whole: send it again if that may help, otherwise every key failed."""
    failed = dict.fromkeys(keys, KeyResult(DeleteStatus.FAILED, exc.why, exc.kind))
    if isinstance(exc, Unavailable):
        return Answer(final={}, again=failed, throttled=isinstance(exc, Throttled))
    return Answer(final=failed, again={})


def merged(answers: list[Answer]) -> Answer:
    return Answer(
        final={key: one for answer in answers for key, one in answer.final.items()},
        again={key: one for answer in answers for key, one in answer.again.items()},
        throttled=any(answer.throttled for answer in answers),
    )
