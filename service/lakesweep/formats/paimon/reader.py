"""Reads what protects files: schemas, snapshots, tags, branches, changelogs and consumers of one table.

All of it or nothing. What counts is what the directories list; a hint that knows more than they do stops us (`newest`).
The directories are listed in the order in which protection moves from one to the other (a snapshot becomes a tag, a
branch or a changelog before it goes), so that nothing slips through between two listings. A file that was listed and is
gone when it is read means that somebody is expiring: list again. A file that stays unreadable stops the table."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import TypeVar

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads
from lakesweep.formats.inflate import parse_json
from lakesweep.formats.paimon import names, newest, schema
from lakesweep.formats.paimon.files import Listed, TableFiles, unreadable
from lakesweep.formats.paimon.schema import TableSchema
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role, identity_of, parse_snapshot
from lakesweep.model.errors import Indeterminate, NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

_DIRECTORIES = ("snapshot", "tag", "branch", "changelog", "consumer", "schema")
_LISTINGS = 5
"""How often a table that changes under our eyes is listed anew."""
_PARSE_TRIES = 3
_PARSE_WAIT_SECONDS = 0.2
"""Some stores show a file before all of it is there."""

T = TypeVar("T")
Listing = Mapping[str, list[Listed]]
_UNFINISHED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.tmp$")
"""How writers call a file before they rename it. A tag may end with `.tmp`, but hardly with this."""
_TAG_IS_READY = re.compile(r"^tag-success-file/.*_SUCCESS$")
"""What Java leaves beside the tags for those who wait for one (`tag.create-success-file`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Everything that protects files, at one moment."""

    head: str
    schemas: tuple[TableSchema, ...]
    """Of the main table, ascending; the last one is in force."""
    other_schemas: tuple[TableSchema, ...]
    """Of branches."""
    snapshots: tuple[PaimonSnapshot, ...]
    """Of the main table, by id."""
    tags: tuple[PaimonSnapshot, ...]
    changelogs: tuple[PaimonSnapshot, ...]
    branched: tuple[PaimonSnapshot, ...]
    """Snapshots, tags and changelogs of branches, each branch's by id."""
    consumers: Mapping[str, int]
    """The next snapshot each consumer of the main table will read."""
    table_id: str
    trace: str = ""
    """Of the newest snapshot, the consumers and the schemas: what lets snapshots expire."""
    latest_hint: int | None = None
    """What `snapshot/LATEST` of the main table names."""


async def list_log(files: TableFiles) -> Listing:
    """List what protects files, each directory after those it takes over from."""
    await reads.refuse_irregular(files.storage, *(files.at(directory) for directory in (*_DIRECTORIES, "manifest")))
    return {directory: await files.names(directory) for directory in _DIRECTORIES}


Known = MutableMapping[str, PaimonSnapshot]
"""Snapshots that were read before, by place, size, time and etag: a table may have thousands, and they stay."""


async def read_log(files: TableFiles, *, without: frozenset[str] = frozenset(), known: Known | None = None) -> Log:
    """Read everything that `list_log` shows. Raises Refused or Unreadable, never returns a part. `without` is as for
    `head_of`; those files are read all the same."""
    known = {} if known is None else known
    gone: NotFound | None = None
    for look in range(1, _LISTINGS + 1):
        listing = await list_log(files)
        try:
            return await _read_listed(files, listing, without, known)
        except NotFound as exc:
            gone = exc
        except Refused as exc:
            # A commit or a branch that is being made looks like this for a moment.
            if exc.code != RefusalCode.NO_SNAPSHOTS or look == _LISTINGS:
                raise
    raise Indeterminate(f"{gone} while it was being read, {_LISTINGS} times in a row: the table changes too fast")


async def read_schemas(files: TableFiles) -> list[TableSchema]:
    """Every schema of the table and of its branches, whether or not the table may be cleaned."""
    found = await _schemas(files, "schema", await files.names("schema"))
    for branch, below in _branches(await files.names("branch")).items():
        found += await _schemas(files, f"branch/branch-{branch}/schema", below["schema"])
    return found


async def still_stands(files: TableFiles, snapshot: PaimonSnapshot) -> bool:
    """Is its file there and the same? Else it has expired or was rolled back, and its id may be another one's."""
    try:
        return identity_of(await files.read(snapshot.location)) == snapshot.identity
    except NotFound:
        return False


async def table_id(files: TableFiles, oldest_schema: int) -> str:
    """Identity of the table: the same name created anew is another table."""
    data = await files.read_kept(files.at("schema", f"schema-{oldest_schema}"))
    return hashlib.sha256(data).hexdigest()[:32]


async def head_of(files: TableFiles, listing: Listing, *, without: frozenset[str] = frozenset()) -> str:
    """Identity of what protects files. `without` names snapshot files whose going changes nothing."""
    digest = hashlib.sha256()
    latest = max(numbers(listing["snapshot"], "snapshot"), default=None)
    if latest is not None:
        digest.update(await files.read(files.at("snapshot", f"snapshot-{latest}")))
    for directory in _DIRECTORIES:
        for listed in listing[directory]:
            skipped = directory in ("snapshot", "changelog") and (listed.name in names.HINTS or listed.name in without)
            if not skipped:
                digest.update(f"{directory}/{listed.fingerprint}\n".encode())
    return f"{latest or 0}-{digest.hexdigest()[:24]}"


async def has_changed_since(files: TableFiles, listing: Listing) -> bool:
    """Is there a snapshot behind the latest one that was listed, of the main table or of a branch, or is that one no
    longer there as it was listed? One look at each, behind everything else."""
    lines: list[tuple[str | None, Listing]] = [(None, listing), *_branches(listing["branch"]).items()]

    async def has_changed(line: tuple[str | None, Listing]) -> bool:
        branch, below = line
        snapshots = _numbered(below["snapshot"], "snapshot")
        if not snapshots:
            return branch is None and await newest.is_there(files, None, 1)
        return not await newest.is_unchanged(files, branch, snapshots[-1])

    return any(await gather_bounded(lines, has_changed))


async def _read_listed(files: TableFiles, listing: Listing, without: frozenset[str], known: Known) -> Log:
    schemas = await _schemas(files, "schema", listing["schema"])
    if not schemas:
        raise Refused(
            RefusalCode.NO_SCHEMA,
            f"{files.location} has no schema files: it is not a Paimon table, or a REST catalog manages it",
        )
    schema.check_ours(schemas[-1].options)
    branches = _branches(listing["branch"])
    other_schemas: list[TableSchema] = []
    branched: list[PaimonSnapshot] = []
    for branch, below in branches.items():
        found = await _schemas(files, f"branch/branch-{branch}/schema", below["schema"])
        if not found:
            raise Unreadable(files.at("branch", f"branch-{branch}").raw, "the branch has no schema file")
        other_schemas += found
        in_branch = await _snapshots(files, below, branch, known)
        await _check_newest(files, in_branch)
        branched += in_branch
    main = await _snapshots(files, listing, None, known)
    latest_hint = await _check_newest(files, main)
    snapshots = tuple(found for found in main if found.role is Role.SNAPSHOT)
    consumers = await _consumers(files, listing["consumer"])
    if not snapshots:
        await _check_never_committed(files, branched, consumers)
    return Log(
        head=await head_of(files, listing, without=without),
        schemas=tuple(schemas),
        other_schemas=tuple(other_schemas),
        snapshots=snapshots,
        tags=tuple(found for found in main if found.role is Role.TAG),
        changelogs=tuple(found for found in main if found.role is Role.CHANGELOG),
        branched=tuple(branched),
        consumers=consumers,
        table_id=await table_id(files, schemas[0].id),
        trace=_trace(listing),
        latest_hint=latest_hint,
    )


def _trace(listing: Listing) -> str:
    """What is looked at by `is_still_at`, as it was listed. Empty without a snapshot."""
    latest = max(numbers(listing["snapshot"], "snapshot"), default=None)
    if latest is None:
        return ""
    digest = hashlib.sha256()
    for directory in ("snapshot", "consumer", "schema"):
        for listed in listing[directory]:
            if directory != "snapshot" or listed.name == f"snapshot-{latest}":
                digest.update(f"{directory}/{listed.fingerprint}\n".encode())
    return f"{latest}-{digest.hexdigest()[:24]}"


async def is_still_at(files: TableFiles, trace: str) -> bool:
    """Is the newest snapshot the same and the next one not there, and are consumers and schemas the same?"""
    newest = trace.partition("-")[0]
    if not newest.isdecimal():
        return False  # the table had another format then
    number = int(newest)
    places = [files.at("snapshot", f"snapshot-{one}") for one in (number, number + 1)]
    found, following = await files.storage.stat_together(*places)
    if found is None or following is not None:
        return False
    newest_now = Listed(
        name=f"snapshot-{number}", size_bytes=found.size_bytes, modified_at=found.modified_at, etag=found.etag
    )
    others = {directory: await files.names(directory) for directory in ("consumer", "schema")}
    return trace == _trace({"snapshot": [newest_now], **others})


async def _check_never_committed(files: TableFiles, branched: list[PaimonSnapshot], consumers: dict[str, int]) -> None:
    """Manifest lists of no branch show that there was a commit: without its snapshot all its files would be orphans. So
    does a consumer that has read a snapshot."""
    for name, following in consumers.items():
        if following > 1:
            raise Refused(
                RefusalCode.NO_SNAPSHOTS,
                f"{files.location} has no snapshot, but consumer {name} has read all before snapshot {following}: the "
                "snapshots were probably lost or moved away, restore them",
            )
    of_branches = {name for one in branched for name in (one.base_list, one.delta_list, one.changelog_list)}
    for listed in await files.names("manifest"):
        if listed.name.startswith("manifest-list-") and listed.name not in of_branches:
            raise Refused(
                RefusalCode.NO_SNAPSHOTS,
                f"{files.location} has manifest lists but no snapshot: the snapshots were lost or moved away, or a "
                "first commit is in progress or has failed",
            )


def _check_not_lost(place: Location, listing: Listing, found: list[PaimonSnapshot]) -> None:
    """Tags, changelogs and hints come after a snapshot, and one always stays. An EARLIEST hint alone may also be what a
    cleaner wrote when the table was dropped and created anew in that moment: no store can make that write depend on a
    snapshot. Only a person knows which it is."""
    if any(one.role is Role.SNAPSHOT for one in found):
        return
    hints = [one.name for one in listing["snapshot"] if one.name in names.HINTS]
    if "LATEST" in hints:
        raise Unreadable(
            place.raw,
            f"there is a hint ({', '.join(hints)}), but no snapshot file is listed: restore the snapshots, or delete "
            "the hints if the table was created anew and has no commit yet",
        )
    if hints:
        raise Refused(
            RefusalCode.NO_SNAPSHOTS,
            f"{place} contains no snapshot, but a hint (EARLIEST): if the snapshots were lost or moved away, restore "
            "them. If the table was created anew and has no commit yet, its first commit resolves this, or delete the "
            "hint",
        )
    if found:
        raise Refused(
            RefusalCode.NO_SNAPSHOTS,
            f"{place} contains {found[0].label}, but no snapshot: the snapshots were probably lost or moved away, "
            "restore them",
        )


async def _snapshots(files: TableFiles, listing: Listing, branch: str | None, known: Known) -> list[PaimonSnapshot]:
    below = newest.below(branch)
    wanted = [(role, one) for role in (Role.SNAPSHOT, Role.CHANGELOG) for one in _numbered(listing[role], role)]
    tags = [one for one in listing["tag"] if one.name.startswith("tag-") and not _UNFINISHED.search(one.name)]
    wanted += [(Role.TAG, one) for one in tags if not _TAG_IS_READY.match(one.name)]

    async def read(item: tuple[Role, Listed]) -> PaimonSnapshot:
        role, listed = item
        location = files.at(below, role, listed.name)
        key = f"{location.raw}|{listed.fingerprint}"
        if key not in known:
            name = listed.name.removeprefix("tag-") if role is Role.TAG else None
            known[key] = await _parse(
                files,
                location,
                lambda data: parse_snapshot(data, location, role=role, branch=branch, name=name),
                listed,
            )
        found = known[key]
        if role is not Role.TAG and found.id != names.numbered(listed.name, role):
            raise Unreadable(location.raw, f"its own id is {found.id}")
        return found

    found = await gather_bounded(wanted, read)
    _check_not_lost(files.at(below, Role.SNAPSHOT), listing, found)
    return found


async def _check_newest(files: TableFiles, found: list[PaimonSnapshot]) -> int | None:
    """What the LATEST hint names, if there is a snapshot."""
    last = max((one for one in found if one.role is Role.SNAPSHOT), key=lambda one: one.id, default=None)
    return await newest.check(files, last) if last is not None else None


async def _schemas(files: TableFiles, directory: str, listed: list[Listed]) -> list[TableSchema]:
    async def read(one: Listed) -> TableSchema:
        return await _parse(files, files.at(directory, one.name), schema.parse_schema, one)

    return await gather_bounded(_numbered(listed, "schema"), read)


async def _consumers(files: TableFiles, listed: list[Listed]) -> dict[str, int]:
    found = [one.name for one in listed if one.name.startswith("consumer-") and not _UNFINISHED.search(one.name)]

    async def read(name: str) -> int:
        return await _parse(files, files.at("consumer", name), lambda data: int(parse_json(data)["nextSnapshot"]))

    following = await gather_bounded(found, read)
    return {name.removeprefix("consumer-"): number for name, number in zip(found, following, strict=True)}


async def _parse(files: TableFiles, location: Location, parse: Callable[[bytes], T], listed: Listed | None = None) -> T:
    """Read and decode a small file, a few times: a writer on some stores may not be done with it yet."""
    tries = 0
    while True:
        data = await files.read_kept(location, listed if tries == 0 else None)
        tries += 1
        try:
            return parse(data)
        except (ValueError, KeyError, TypeError) as exc:
            if tries == _PARSE_TRIES:
                raise unreadable(location, exc) from exc
        await asyncio.sleep(_PARSE_WAIT_SECONDS)


def numbers(listed: list[Listed], prefix: str) -> list[int]:
    found = (names.numbered(one.name, prefix) for one in listed)
    return sorted(number for number in found if number is not None)


def _numbered(listed: list[Listed], prefix: str) -> list[Listed]:
    by_id = {names.numbered(one.name, prefix): one for one in listed}
    return [by_id[number] for number in numbers(listed, prefix)]


def _branches(listed: list[Listed]) -> dict[str, dict[str, list[Listed]]]:
    branches: dict[str, dict[str, list[Listed]]] = {}
    for one in listed:
        path = one.name.split("/")
        # A branch may have slashes in its name, and then it lies below another: its directories show where it ends.
        ends = max((depth for depth, part in enumerate(path[:-1]) if part in _DIRECTORIES), default=None)
        top = "/".join(path[: 1 if ends is None else ends])
        if top.startswith("branch-") and len(path) > 2:
            below = branches.setdefault(top.removeprefix("branch-"), {part: [] for part in _DIRECTORIES})
            if ends is not None:
                below[path[ends]].append(replace(one, name="/".join(path[ends + 1 :])))
    return branches
