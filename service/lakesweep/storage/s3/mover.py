"""Move S3 objects to the trash and back: a server-side copy, verified, then a delete that compares etags.

If a copy fails, the object stays where it is. The source is deleted only after the target was verified: its size, and
its etag or a checksum. A bucket that keeps versions gets a plain delete instead of a move to the trash: it keeps the
object by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from botocore.exceptions import ClientError

from lakesweep import aio
from lakesweep.model.errors import StorageError
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.ports.deleter import ANOTHER_OBJECT, TAKEN, Conditions, Deleted, DeleteStatus, Marker, Move, not_sent
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.s3.client import S3Connection
from lakesweep.storage.s3.copying import Copier, Stored
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.errors import CHANGED, error_code, translating
from lakesweep.storage.s3.settings import S3Options

_PAGE = 200
"""Objects between two checks of the conditions. Each takes three requests."""
_ENABLED = "Enabled"
_NOT_OURS = "the newest version of it is not the delete marker of this run: it was deleted again, or purged"
_NO_VERSION = "the bucket no longer has the version behind our delete marker: a lifecycle rule or somebody removed it"
_TOO_LONG = "its key in the trash would be longer than S3 allows: set orphan_cleanup.trash to a shorter place"
_KEY_BYTES = 1024
"""Of the longest key that S3 has."""


class S3Mover:
    """Moves objects. A deleter deletes the sources, within its limits and under its conditions."""

    def __init__(self, options: S3Options, gate: Gate | None = None) -> None:
        self._connection = S3Connection(options, attempts=options.attempts)
        self._deleter = S3Deleter(options, gate)
        self._versions = S3Deleter(options, gate)
        """A deleter for buckets that keep versions. One that has deleted elsewhere may no longer request delete
        markers."""
        self._seen_to_keep: set[str] = set()
        self._keeps_nothing: dict[str, str] = {}
        """Buckets that claim to keep versions and do not, each with an object that was lost there."""
        self._copier = Copier(self._connection)
        self._at_once = options.delete_concurrency

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """In a bucket with versioning this is a plain delete."""
        buckets = {Location.parse(move.source).authority for move in moves}
        versioned = [await self._versioned(bucket) for bucket in buckets]
        if all(versioned):
            return await self._to_versions([move.source for move in moves], conditions)
        if any(versioned):
            why = "some of these objects are in a bucket with versioning and some are not"
            return [Deleted(path=move.source, status=DeleteStatus.FAILED, why=why) for move in moves]
        return await self._move(moves, conditions, finish=True)

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """Never overwrites anything: checked before, and the request itself is conditional."""
        return await self._move(moves, conditions, finish=False)

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:
        """Delete each marker by its version id, and check that the object is back."""
        answers: list[Deleted] = []
        for first in range(0, len(markers), _PAGE):
            page = markers[first : first + _PAGE]
            if why := conditions and conditions.ended():
                return answers + [not_sent(one.path, why) for one in markers[first:]]
            answers += await aio.gather_bounded(page, self._uncover, limit=self._at_once)
        return answers

    async def aclose(self) -> None:
        await self._connection.aclose()
        await self._deleter.aclose()
        await self._versions.aclose()

    async def _to_versions(self, paths: Sequence[str], conditions: Conditions | None) -> list[Deleted]:
        """Delete, and stop at the first response that names no delete marker: that object is gone for good. A bucket is
        tried with one object first."""
        answers: list[Deleted] = []
        while len(answers) < len(paths):
            left = paths[len(answers) :]
            buckets = {Location.parse(path).authority for path in left}
            if lost := next((self._keeps_nothing[one] for one in buckets if one in self._keeps_nothing), None):
                return answers + [_unkept(path, lost) for path in left]
            proven = answers or buckets <= self._seen_to_keep
            answers += self._noted(await self._versions.delete(left[: _PAGE if proven else 1], conditions))
        return answers

    def _noted(self, page: list[Deleted]) -> list[Deleted]:
        for one in page:
            if one.status is DeleteStatus.DELETED:
                bucket = Location.parse(one.path).authority
                if one.delete_marker:
                    self._seen_to_keep.add(bucket)
                else:
                    self._keeps_nothing.setdefault(bucket, one.path)
        return page

    async def _move(self, moves: Sequence[Move], conditions: Conditions | None, *, finish: bool) -> list[Deleted]:
        answers: list[Deleted] = []
        for first in range(0, len(moves), _PAGE):
            answers += await self._move_page(moves[first : first + _PAGE], conditions, finish=finish)
        return answers

    async def _move_page(self, moves: Sequence[Move], conditions: Conditions | None, *, finish: bool) -> list[Deleted]:
        kept = dict(await conditions.withheld([move.source for move in moves])) if conditions else {}
        going = [move for move in moves if move.source not in kept]

        async def copied(move: Move) -> Deleted | Stored:
            return await self._copied(move, conditions, finish=finish)

        results = await aio.gather_bounded(going, copied, limit=self._at_once)
        etags = {move.source: one.etag for move, one in zip(going, results, strict=True) if isinstance(one, Stored)}
        gone = await self._deleter.delete(list(etags), _Compared(conditions, etags)) if etags else []
        answers = kept | {one.path: one for one in results if isinstance(one, Deleted)}
        answers |= {one.path: _moved(one) for one in gone}
        return [answers[move.source] for move in moves]

    async def _copied(self, move: Move, conditions: Conditions | None, *, finish: bool) -> Deleted | Stored:
        """The object at the source once it is at the target too; otherwise the result to report."""
        path = move.source
        if why := conditions and conditions.ended():
            return not_sent(path, why)
        try:
            stored = await self._copier.find(Location.parse(path))
            if stored is None:
                return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
            judged = conditions.etags.get(path) if conditions else None
            if judged is not None and stored.etag != judged:
                return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
            taken = await self._taken(move, stored, finish=finish)
        except StorageError as exc:
            if isinstance(exc.__cause__, ClientError) and error_code(exc.__cause__) in CHANGED:
                return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
            return Deleted(path=path, status=DeleteStatus.FAILED, why=exc.why, kind=exc.kind)
        return Deleted(path=path, status=DeleteStatus.SPARED, why=TAKEN) if taken else stored

    async def _taken(self, move: Move, stored: Stored, *, finish: bool) -> bool:
        """Copy unless the target exists. With `finish` an identical object at the target is our own copy whose response
        was lost."""
        source, target = Location.parse(move.source), Location.parse(move.target)
        if len(target.path.encode()) > _KEY_BYTES:
            raise StorageError(target.raw, _TOO_LONG)
        if not finish and await self._copier.find(target) is not None:
            return True
        if await self._copier.copy(source, target, stored):
            return False
        return not (finish and (await self._copier.look(target)).has_same_bytes(stored))

    async def _uncover(self, marker: Marker) -> Deleted:
        path, place = marker.path, Location.parse(marker.path)
        client = await self._connection.client()
        try:
            if await self._copier.find(place) is not None:
                return Deleted(path=path, status=DeleteStatus.SPARED, why=TAKEN)
            if why := await self._why_not(place, marker.version):
                return Deleted(path=path, status=DeleteStatus.ALREADY_GONE, why=why)
            with translating(path, self._connection.endpoint, "s3:DeleteObjectVersion"):
                await client.delete_object(Bucket=place.authority, Key=place.path, VersionId=marker.version)
            if await self._copier.find(place) is None:
                return Deleted(path=path, status=DeleteStatus.ALREADY_GONE, why=_NO_VERSION)
        except StorageError as exc:
            return Deleted(path=path, status=DeleteStatus.FAILED, why=exc.why, kind=exc.kind)
        return Deleted(path=path, status=DeleteStatus.DELETED, went=Went.VERSIONS)

    async def _why_not(self, place: Location, version: str) -> str | None:
        """Why to remove this would bring nothing back, if so. It must be a delete marker, the newest of its key, and
        have a version behind it: a version with data must never be deleted by its id."""
        async with self._connection.calling(place.raw, "s3:ListBucketVersions") as client:
            answer = await client.list_object_versions(Bucket=place.authority, Prefix=place.path)
        markers = [one for one in answer.get("DeleteMarkers", ()) if one["Key"] == place.path]
        if not any(one["VersionId"] == version and one["IsLatest"] for one in markers):
            return _NOT_OURS
        behind = any(one["Key"] == place.path for one in answer.get("Versions", ()))
        return None if behind else _NO_VERSION

    async def _versioned(self, bucket: str) -> bool:
        """Whether the bucket keeps versions, checked for every batch: if versioning is suspended meanwhile, a delete is
        final. Without the permission to ask, the object is always copied to the trash."""
        client = await self._connection.client()
        try:
            with translating(f"s3://{bucket}", self._connection.endpoint, "s3:GetBucketVersioning"):
                answer = await client.get_bucket_versioning(Bucket=bucket)
        except StorageError:
            return False
        return bool(answer.get("Status") == _ENABLED)


@dataclass(frozen=True, slots=True)
class _Compared:
    """The conditions of a page whose objects were copied: each is deleted only if it is still the object that was
    copied."""

    inner: Conditions | None
    etags: Mapping[str, str]
    written_ms: Mapping[str, int] = field(default_factory=dict)

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        return await self.inner.withheld(paths) if self.inner else {}

    def ended(self) -> str | None:
        return self.inner.ended() if self.inner else None


def _unkept(path: str, lost: str) -> Deleted:
    why = (
        f"the bucket says that it keeps versions, but it kept no version of {lost}: the trash cannot work there, and "
        "nothing more is deleted; see whether versioning is suspended or leaves out this prefix"
    )
    return Deleted(path=path, status=DeleteStatus.FAILED, why=why)


def _moved(answer: Deleted) -> Deleted:
    """The object is in the trash. Its delete marker is not reported: a restore would look for the version behind it,
    not in the trash."""
    return replace(answer, went=Went.TRASH, delete_marker=None) if answer.status is DeleteStatus.DELETED else answer
