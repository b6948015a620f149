"""Is the newest snapshot that was listed the newest there is? Reads only."""

from __future__ import annotations

from lakesweep.formats.paimon.files import TableFiles, unreadable
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.location import Location


def below(branch: str | None) -> str:
    """Where a branch keeps its directories."""
    return f"branch/branch-{branch}" if branch else ""


async def is_there(files: TableFiles, branch: str | None, number: int) -> bool:
    """Is there such a snapshot, listed or not?"""
    try:
        await files.storage.stat(_place(files, branch, number))
    except NotFound:
        return False
    return True


def _place(files: TableFiles, branch: str | None, number: int) -> Location:
    return files.at(below(branch), "snapshot", f"snapshot-{number}")


async def latest_hint(files: TableFiles, branch: str | None = None) -> int | None:
    """The snapshot that a hint calls the latest; None if there is no hint, or none that can be understood."""
    place = files.at(below(branch), "snapshot", "LATEST")
    try:
        hint = (await files.read(place)).decode("utf-8", "replace").strip()
    except NotFound:
        return None
    except StorageError as exc:
        raise unreadable(place, exc) from exc
    return int(hint) if hint.isdecimal() else None


async def check(files: TableFiles, newest: PaimonSnapshot) -> None:
    """A hint may be missing or behind, but it may also know of a snapshot that the listing did not show. So may the
    next number, asked for by its name."""
    hint = await latest_hint(files, newest.branch) or 0
    for number in sorted({newest.id + 1, max(newest.id + 1, hint)}):
        if await is_there(files, newest.branch, number):
            raise NotFound(_place(files, newest.branch, number).raw, "it is there, but was not listed")
    if hint > newest.id:
        await _check_not_ahead(files, newest, hint)


async def _check_not_ahead(files: TableFiles, newest: PaimonSnapshot, hint: int) -> None:
    """Writers set the hint behind a commit and before a rollback, so one that is ahead for good tells of snapshots that
    were lost, and all their files would be orphans. Java believes it, and cannot read the table."""
    place = _place(files, newest.branch, hint)
    if await latest_hint(files, newest.branch) != hint:
        raise NotFound(place.raw, "it was rolled back")
    raise Unreadable(
        place.raw,
        f"snapshot/LATEST names it, yet it is not there, and the newest is {newest.label}: restore it, or write "
        f"{newest.id} into that hint if nobody needs what came later",
    )
