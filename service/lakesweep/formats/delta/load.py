"""Read a Delta table: list its log once, open the newest checkpoint that can be opened, replay what came after. The
commits are the source of truth and a checkpoint is only a shortcut: a damaged one is skipped as long as an older one,
or version 0, leads to the newest version without a gap. If nothing does, the table is unreadable. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads, streams
from lakesweep.formats.delta import actions, checkpoint, files, log, protocol, retention
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogListing
from lakesweep.formats.delta.other_commits import CutShort, OtherCommits, Vanished
from lakesweep.formats.delta.retention import Inspected
from lakesweep.formats.delta.state import DeltaState, OpenedCheckpoint, Segment, Tail
from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import Indeterminate, NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.storage import KnownContents, Storage

_ATTEMPTS = 3
"""A writer or another cleaner may change the log while it is being read: then it is listed again."""
_EMPTY = (
    "it is empty, so its writer was interrupted, and no reader can open this version either: restore it from a "
    "backup; or, if it is the newest commit and its writer is gone, remove it"
)


class _Overruled(NamedTuple):
    """What commits have removed of a checkpoint."""

    commits: tuple[LogFile, ...]
    addresses: frozenset[str]


class LogReader:
    """Reads one table's log. A file is read once as long as it is listed as the same: by this handle, and by any other
    where `contents` can prove that it is."""

    def __init__(self, storage: Storage, root: Location, contents: KnownContents | None = None) -> None:
        self._contents = contents
        self.reads_anyway = False
        """Also what may not be cleaned?"""
        self._storage = storage
        self._root = root
        self._log = root.join(log.LOG_DIRECTORY)
        self._commits: dict[LogFile, Actions] = {}
        self._heads: dict[LogFile, Actions] = {}
        self._inspected: dict[Checkpoint, Inspected] = {}
        self._overruled: dict[Checkpoint, _Overruled] = {}
        self.other_commits = OtherCommits(lambda file: self.commit(file, keep=False), self.listing)
        self._recorded: dict[str, int] = {}
        """Lengths of checkpoint files, as `_last_checkpoint` has them."""

    async def load(self, moment: Callable[[], Awaitable[datetime]]) -> DeltaState:
        """The newest state. `moment` is called after the first answer of the store. Raises Refused or Indeterminate."""
        for attempt in range(_ATTEMPTS):
            try:
                listing = await self.listing()
                return await self._load(listing, await moment())
            except (Unreadable, _HeadCommitMissing):
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def listing(self) -> LogListing:
        """Everything below `_delta_log` now. Raises Indeterminate if there is more than a listing shows."""
        found = await self._listed()
        await reads.refuse_irregular(self._storage, self._log)
        following = self._log.join(log.commit_name(found.latest_version + 1))
        if await reads.is_there(self._storage, following):
            # Committed since, or hidden from listings: then it is unknown how many more there are.
            found = await self._listed()
            if following.raw not in (file.path for file in found.commits.values()):
                raise Indeterminate(
                    f"{following} can be read but is not listed, so the newest commits are unknown: find out why the "
                    "store does not list it (a link, a case-insensitive or cached file system)"
                )
        return found

    async def _listed(self) -> LogListing:
        cut = len(self._log.as_directory().raw)
        return log.arrange(await reads.collect(self._storage, self._log, lambda page: _rows(page, cut)))

    async def _load(self, listing: LogListing, as_of: datetime) -> DeltaState:
        last_checkpoint = await self._last_checkpoint(listing)
        segment = await self._segment(listing)
        if last_checkpoint is not None and last_checkpoint > listing.latest_version:
            # Commits since the listing, or a log that was rolled back: files of acknowledged commits look unreferenced.
            raise _HeadCommitMissing(self._log, last_checkpoint)
        properties = self._checked(segment)
        if last_checkpoint is not None and properties.log_cleanup_enabled:
            cutoff_ms = retention.cutoff_ms(as_of, properties.log_retention)
            await self._inspect(listing, segment.protocol, cutoff_ms, last_checkpoint - 1)
        state = DeltaState(
            root=self._root,
            as_of=as_of,
            version=listing.latest_version,
            listing=listing,
            segment=segment,
            properties=properties,
            last_checkpoint=last_checkpoint,
            inspected=dict(self._inspected),
            live_files=await self.number_in(listing, f"{listing.latest_version:020d}.crc", "numFiles"),
        )
        below = segment.checkpoint.checkpoint.version if segment.checkpoint else -1
        removed = await self.other_commits.removed_since(listing, below, state.delete_before_ms())
        freed = await self.other_commits.oddly_named(listing, segment.tail.last, state.delete_before_ms(timedelta(0)))
        return replace(state, removed_below=removed, freed=freed)

    def _checked(self, segment: Segment) -> protocol.Properties:
        """What the properties of a table that may be cleaned say; of another that is read anyway, the defaults."""
        try:
            protocol.check(segment.protocol)
            return protocol.properties(segment.metadata)
        except Refused:
            if not self.reads_anyway:
                raise
            return protocol.properties(replace(segment.metadata, configuration={}))

    async def _segment(self, listing: LogListing) -> Segment:
        latest = listing.latest_version
        complete = [one for one in listing.checkpoints if one.complete]
        if latest < 0 and not complete:
            raise Refused(RefusalCode.NOT_A_TABLE, f"{self._log} contains no commit: this is not a Delta table")
        if complete and complete[-1].version > latest:
            raise _HeadCommitMissing(self._log, complete[-1].version)
        damage: Unreadable | None = None
        for one in (*reversed(complete), None):
            first = one.version + 1 if one else 0
            gap = log.first_gap(listing.commits, first, latest)
            if gap is not None:
                raise damage or Unreadable(
                    self._log.raw,
                    f"the commit of version {gap} is missing: restore it, or write a checkpoint of a later version",
                )
            try:
                opened = await self._open(one, listing) if one else None
                return await self._replay(opened, [listing.commits[v] for v in range(first, latest + 1)])
            except Unreadable as exc:
                if one is None:
                    raise damage or exc from exc
                damage = damage or exc
        raise AssertionError("unreachable")

    async def _replay(self, opened: OpenedCheckpoint | None, commits: Sequence[LogFile]) -> Segment:
        parsed = await gather_bounded(commits, self.commit)
        heads = [opened.head, *parsed] if opened else parsed
        newest_protocol = next((one.protocol for one in reversed(heads) if one.protocol), None)
        newest_metadata = next((one.metadata for one in reversed(heads) if one.metadata), None)
        if newest_protocol is None or newest_metadata is None:
            raise Unreadable(
                self._log.raw, "the log has no protocol or no metadata: its first commits are lost, restore them"
            )
        return Segment(
            checkpoint=opened,
            commits=tuple(commits),
            tail=await asyncio.to_thread(Tail.replay, parsed),
            protocol=newest_protocol,
            metadata=newest_metadata,
            stream=next((one.stream for one in reversed(heads) if one.stream), None)
            or streams.of_properties(newest_metadata.configuration),
        )

    async def commit(self, file: LogFile, *, keep: bool = True) -> Actions:
        """What one commit says. It is not kept in memory where it will not be asked for again."""
        if file in self._commits:
            return self._commits[file]
        data = await self._read(file)
        if not data:
            raise Unreadable(file.path, _EMPTY)
        found = await asyncio.to_thread(actions.parse, data, self._root, file.path)
        # A store's clock may have been behind, or the file was copied with an older time: the later of both counts.
        committed_ms = None if file.modified_ms is None else max(file.modified_ms, found.stated_ms)
        found = replace(found, files=files.dated(found.files, committed_ms))
        if keep:
            self._commits[file] = found
        return found

    async def head(self, file: LogFile) -> Actions:
        recorded = self._recorded.get(file.relative, file.size_bytes)
        if recorded != file.size_bytes:
            raise Unreadable(file.path, f"{file.size_bytes} bytes instead of {recorded}")
        if file not in self._heads:
            data = await self._read(file)
            self._heads[file] = await asyncio.to_thread(checkpoint.read_head, data, self._root, file.path)
        return self._heads[file]

    async def overruled(self, segment: Segment, delete_before_ms: int) -> frozenset[str]:
        """Addresses that the checkpoint spells and later commits have removed. Looked up once per checkpoint: what
        is removed later counts as kept, and what is added again is no longer removed. But once more if a commit was
        taken back: what it had removed may hold a file that others have removed."""
        opened = segment.checkpoint
        if opened is None:
            return frozenset()
        removed = await asyncio.to_thread(segment.tail.removed)
        if not len(removed):
            return frozenset()
        known = self._overruled.get(opened.checkpoint)
        if known is None or known.commits != segment.commits[: len(known.commits)]:
            held: set[str] = set()
            for file in opened.files:
                data = await self._read(file)
                naming = await asyncio.to_thread(checkpoint.holders, data, self._root, file.path, removed)
                found = await asyncio.to_thread(segment.tail.still_held, removed, naming, delete_before_ms)
                held.update(found.to_pylist())
            known = _Overruled(segment.commits, frozenset(removed.to_pylist()) - held)
            self._overruled[opened.checkpoint] = known
        return known.addresses.intersection(removed.to_pylist())

    async def _open(self, one: Checkpoint, listing: LogListing) -> OpenedCheckpoint:
        """Read until protocol and metadata are found; parts of a checkpoint have them in no known order."""
        found = Actions()
        for file in one.files:
            head = await self.head(file)
            found = Actions(
                protocol=head.protocol or found.protocol,
                metadata=head.metadata or found.metadata,
                sidecars=(*found.sidecars, *head.sidecars),
                stream=head.stream or found.stream,
            )
            if found.protocol and found.metadata:
                break
        if not (found.protocol and found.metadata):
            raise Unreadable(one.files[0].path, "the checkpoint has no protocol or no metadata")
        return OpenedCheckpoint(checkpoint=one, head=found, sidecars=_sidecars(one, found, listing))

    async def _last_checkpoint(self, listing: LogListing) -> int | None:
        """Only a hint: it just limits cleanup. A damaged one is replaced by what the listing shows."""
        if listing.hint is None:
            return None
        try:
            hint = parse_json(await self._look_into(listing.hint))
            version = hint["version"]
        except NotFound:
            return None
        except (ValueError, TypeError, KeyError):
            hint, version = {}, None
        self._recorded = _recorded_length(hint.get("v2Checkpoint"))
        if isinstance(version, int):
            return version
        return max((one.version for one in listing.checkpoints if one.complete), default=None)

    async def _inspect(self, listing: LogListing, newest: protocol.Protocol, cutoff_ms: int, max_version: int) -> None:
        """Open the checkpoint that the walk would end at; if it cannot be used, the one before it, and so on. Then, for
        policies that keep more versions than it leaves, one that leaves twice as many, and so on: few are opened."""
        wanted = 1
        for one in reversed(retention.boundaries(listing, cutoff_ms=cutoff_ms, max_version=max_version)):
            left = listing.latest_version - one.version + 1
            if left < wanted:
                continue
            if one not in self._inspected:
                self._inspected[one] = await self._look_at(one, listing, newest)
            if self._inspected[one].allows(cutoff_ms):
                wanted = 2 * left

    async def _look_at(self, one: Checkpoint, listing: LogListing, newest: protocol.Protocol) -> Inspected:
        if one.version not in listing.commits:
            return Inspected(usable=False, why="its commit file is missing")
        try:
            opened = await self._open(one, listing)
            for file in opened.files:
                await asyncio.to_thread(checkpoint.verify, await self._read(file), self._root, file.path)
            below = listing.commits.get(one.version - 1)
            in_commit = (
                await self.commit(below) if below and newest.features & protocol.IN_COMMIT_TIMESTAMPS else Actions()
            )
        except Unreadable as exc:
            return Inspected(usable=False, why=exc.why)
        return Inspected(usable=True, newest_released_ms=in_commit.in_commit_ms)

    async def number_in(self, listing: LogListing, name: str, field: str) -> int | None:
        """What a small JSON file of the log says; None if it is not there or does not say it."""
        file = next((file for file in listing.files if file.relative == name), None)
        try:
            found = parse_json(await self._look_into(file)).get(field) if file else None
        except (NotFound, ValueError, AttributeError):
            return None
        return found if isinstance(found, int) else None

    async def _look_into(self, file: LogFile) -> bytes:
        """A small file that writers overwrite."""
        with reads.or_stop(file.path):
            return await self._storage.read(Location.parse(file.path))

    async def _read(self, file: LogFile) -> bytes:
        try:
            with reads.or_stop(file.path):
                data = await reads.read_listed(self._storage, self._contents, file.stored)
        except NotFound as exc:
            raise Vanished(
                file.path, "it was deleted while the log was read: another tool cleans it; the next run tries again"
            ) from exc
        if len(data) != file.size_bytes:
            raise CutShort(file.path, f"{len(data)} bytes instead of {file.size_bytes}")
        return data


class _HeadCommitMissing(Refused):
    """The newest checkpoint, there or only remembered by `_last_checkpoint`, is of a version that the log has no commit
    for."""

    def __init__(self, place: Location, version: int) -> None:
        super().__init__(
            RefusalCode.DAMAGED_LOG,
            f"{place} has a checkpoint of version {version} but not its commit: somebody deleted log files, or "
            "restored the log from a backup. Files of later commits are kept. Restore the commit; if nobody needs what "
            "is lost, remove that checkpoint, or the _last_checkpoint that names it",
        )


def _rows(page: pa.RecordBatch, cut: int) -> list[LogFile]:
    modified = page.column("modified_at").cast("int64").to_pylist()
    columns = (page.column(name).to_pylist() for name in ("path", "size_bytes", "etag"))
    return [
        LogFile(path, path[cut:], log.parse_name(path[cut:]), size, time, etag)
        for path, size, etag, time in zip(*columns, modified, strict=True)
    ]


def _recorded_length(named: Any) -> dict[str, int]:
    """Of a checkpoint named by UUID, which nobody writes twice: a JSON file cut after a line reads like a complete one
    with fewer files."""
    match named:
        case {"path": str(name), "sizeInBytes": int(size)} if log.parse_name(name).unique:
            return {name: size}
    return {}


def _sidecars(one: Checkpoint, found: Actions, listing: LogListing) -> tuple[LogFile, ...]:
    files = []
    for name, size in found.sidecars:
        file = listing.sidecars.get(name)
        if file is None:
            raise Unreadable(one.files[0].path, f"its sidecar {name} is missing")
        if size is not None and size != file.size_bytes:
            raise Unreadable(file.path, f"{file.size_bytes} bytes instead of {size}")
        files.append(file)
    return tuple(files)
