"""Is the newest snapshot that was listed the newest there is? Reads only."""

from __future__ import annotations

from datetime import timedelta

from lakesweep.formats import reads
from lakesweep.formats.paimon.files import Listed, TableFiles
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location

_SAME_TIME = timedelta(seconds=2)
"""A listing may give times more precisely than a look at one object does."""


def below(branch: str | None) -> str:
    return f"branch/branch-{branch}" if branch else ""


async def is_there(files: TableFiles, branch: str | None, number: int) -> bool:
    return await reads.is_there(files.storage, _place(files, branch, number))


async def is_unchanged(files: TableFiles, branch: str | None, latest: Listed) -> bool:
    """Is the latest snapshot as it was listed, and the next one not there? Both in one look: asked one after the other,
    a table that is dropped and created anew in between has neither."""
    number = int(latest.name.rpartition("-")[2])
    if await is_there(files, branch, number + 1):  # by its name, for a store that does not list it
        return False
    places = _place(files, branch, number), _place(files, branch, number + 1)
    found, following = await files.storage.stat_together(*places)
    return found is not None and following is None and _is_same(found, latest)


def _is_same(found: StoredObject, listed: Listed) -> bool:
    if found.size_bytes != listed.size_bytes:
        return False
    if found.etag and listed.etag:
        return found.etag == listed.etag
    if found.modified_at is None or listed.modified_at is None:
        return found.modified_at is listed.modified_at
    return abs(found.modified_at - listed.modified_at) < _SAME_TIME


def _place(files: TableFiles, branch: str | None, number: int) -> Location:
    return files.at(below(branch), "snapshot", f"snapshot-{number}")


async def latest_hint(files: TableFiles, branch: str | None = None) -> int | None:
    """The snapshot that a hint calls the latest; None if there is no hint, or none that can be understood."""
    place = files.at(below(branch), "snapshot", "LATEST")
    try:
        hint = (await files.read_kept(place)).decode("utf-8", "replace").strip()
    except NotFound:
        return None
    return int(hint) if hint.isdecimal() else None


async def check(files: TableFiles, newest: PaimonSnapshot) -> int | None:
    """A hint, or the next number asked for by its name, may know of a snapshot that the listing did not show. Returns
    what the hint names."""
    hint = await latest_hint(files, newest.branch)
    for number in sorted({newest.id + 1, max(newest.id + 1, hint or 0)}):
        if await is_there(files, newest.branch, number):
            raise NotFound(_place(files, newest.branch, number).raw, "it is there, but was not listed")
    if hint is not None and hint > newest.id:
        await _check_not_ahead(files, newest, hint)
    return hint


async def _check_not_ahead(files: TableFiles, newest: PaimonSnapshot, hint: int) -> None:
    """Writers set the hint behind a commit and before a rollback, so one that stays ahead points to snapshots that
    were lost, and all their files would be orphans. Java believes it, and cannot read the table."""
    place = _place(files, newest.branch, hint)
    if await latest_hint(files, newest.branch) != hint:
        raise NotFound(place.raw, "it was rolled back")
    raise Unreadable(
        place.raw,
        f"snapshot/LATEST names it, but it does not exist, and the newest is {newest.label}: restore it, or write "
        f"{newest.id} into snapshot/LATEST if nobody needs the later snapshots",
    )
