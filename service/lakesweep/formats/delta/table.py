"""One Delta table behind the Table port. Decisions are in `expire` and `tail`; this joins them to what was read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from lakesweep.formats.delta import decode, expire, lite, log, names, retention, unpublished_commits
from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.delta.load import LogReader
from lakesweep.formats.delta.log import Checkpoint, LogFile
from lakesweep.formats.delta.log_replay import Tail
from lakesweep.formats.delta.names import LogKind
from lakesweep.formats.delta.options import DeltaOptions, VacuumMode
from lakesweep.formats.delta.state import DeltaState
from lakesweep.formats.delta.uniform import IcebergNeighbour
from lakesweep.formats.unpublished_files import LeaveAll, Tidy
from lakesweep.model.errors import Indeterminate, NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Shortlist, TableState

_SAME_TIME_MS = 2000
"""A listing may tell times more finely than a look at one object does."""


class DeltaTable:
    """A handle for one cycle: everything is judged at the moment of its first load."""

    executable = True

    def __init__(
        self,
        ref: TableRef,
        root: Location,
        storage: Storage,
        clock: Clock,
        options: DeltaOptions | None = None,
        *,
        tidy: Tidy | None = None,
    ) -> None:
        self.ref = ref
        self._root = root
        self._storage = storage
        self._clock = clock
        self._options = options or DeltaOptions()
        self._lite = self._options.vacuum_mode is VacuumMode.LITE
        self._tidy = tidy or LeaveAll()
        self._reader = LogReader(storage, root)
        self._iceberg = IcebergNeighbour(storage, root)
        self._as_of: datetime | None = None
        self._loaded: TableState | None = None
        self._shortlist: Shortlist | None = None
        self._stands_on: Checkpoint | None = None
        """What the log begins with after this cycle. While we delete what is below it, it must not go."""
        self._floor = GRACE_FLOOR
        """How long a removed file waits at least. An operator may allow less; a table's own property may not."""

    async def head(self) -> str:
        """A few looks at single objects while nothing is committed."""
        await self._check_ground()
        known = self._loaded
        # The log comes last: a commit of this table's own writers is what is most likely to come in between.
        if known and await self._head_of(known.native) == known.head and await self._stands_still(known.native):
            return known.head
        return (await self.load()).head

    def place(self) -> Location:
        """As it was given or discovered."""
        return self._root

    async def load(self) -> TableState:
        """The newest version."""
        native = await self._reader.load(self._moment)
        metadata = native.segment.metadata
        if self._lite and self._shortlist is None:
            self._shortlist = await lite.shortlist(self._reader, self._storage, native)
        self._loaded = TableState(
            ref=self.ref,
            head=await self._head_of(native),
            table_uuid=metadata.table_id,
            position=native.version,
            location=self._root,
            roots=(self._root.as_directory(),),
            snapshots=expire.snapshots(native),
            layout=DeltaLayout(
                prefix=self._root.as_directory().raw,
                partition_columns=metadata.partition_columns,
                iceberg_metadata=native.properties.iceberg_metadata,
                hudi_metadata=native.properties.hudi_metadata,
                keep_data=self._options.has_shallow_clones,
                freed=native.freed,
            ),
            minimum_age=native.properties.deleted_file_retention,
            stream=native.segment.stream,
            counted_files=native.live_files,
            estimated_files=native.live_files,
            shortlist=self._shortlist,
            native=native,
        )
        return self._loaded

    async def load_at(self, head: str, now_state: TableState) -> TableState | None:  # noqa: ARG002  # the port's
        """Expiry commits nothing, so no earlier state is ever needed."""
        return None

    def plan_expiry(self, state: TableState, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """The versions that leave the log."""
        self._floor = min(GRACE_FLOOR, policy.grace_period)
        return expire.plan(state.native, state.head, policy, now)

    async def commit_expiry(
        self, state: TableState, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableState, ExpiryPlan]:
        """Nothing to commit: a version is gone when its log files are."""
        await fence.check()
        return state, self.plan_expiry(state, policy, now)

    async def references(
        self,
        state: TableState,
        expiring: ExpiryPlan,
        before: TableState | None = None,  # noqa: ARG002  # expired versions are still in the log
    ) -> References:
        """The checkpoint is decoded by engines; the commits behind it are replayed here."""
        native: DeltaState = state.native
        tail, delete_before_ms = native.segment.tail, native.delete_before_ms(self._floor)
        boundary = expire.boundary_of(native, expiring)
        self._stands_on = boundary.checkpoint if boundary else self._stands_on
        released = expire.released(native, boundary)
        going = frozenset(file.path for file in (*released, *await self._free_sidecars(native, released)))
        newest = frozenset(file.path for file in native.segment.files)
        stays = [file.path for file in native.listing.files if _is_of_the_log(file)]
        live = await asyncio.to_thread(tail.live)
        elsewhere = () if self._lite else tuple(await asyncio.to_thread(tail.elsewhere))
        return References(
            retained=(*sorted(newest), *(() if self._lite else live)),
            expired=tuple(sorted(going)),
            sources=self._sources(native),
            released=tuple(sorted(await self._reader.overruled(native.segment, delete_before_ms))),
            tolerated=(
                *(live if self._lite else ()),
                *(path for path in stays if path not in going and path not in newest),
                *await asyncio.to_thread(self._removed_lately, native),
                *sorted(await unpublished_commits.named(self._reader, native.listing)),
                *sorted(await self._named_by_iceberg(native)),
            ),
            elsewhere=elsewhere,
        )

    async def foreign_owner(self, state: TableState, unreferenced: Sequence[str]) -> str | None:
        """A log below the root is another table's: its files look like orphans of this one."""
        marker = f"/{names.LOG_DIRECTORY}/"
        own = self._root.join(names.LOG_DIRECTORY).as_directory().raw
        nested = next((path for path in unreferenced if marker in path and not path.startswith(own)), None)
        if nested is None:
            layout: DeltaLayout = state.layout  # type: ignore[assignment]  # the layout that `load` gave
            other = next((path for path in unreferenced if layout.is_other_table(path)), None)
            return other and f"{other} belongs to a table of another format inside this one: move one of them"
        return f"another Delta table lives inside this one, at {nested.partition(marker)[0]}: move one of them"

    async def after_sweep(self, state: TableState, expiring: ExpiryPlan) -> None:  # noqa: ARG002  # looks anew
        """Health check: the newest version can still be rebuilt from what is left, if it could before: a checkpoint
        without its own commit is readable all the same. Then directories that nobody uses any more go."""
        before: DeltaState = state.native
        listing = await self._reader.listing()
        if log.earliest_reliable(listing) is None and log.earliest_reliable(before.listing) is not None:
            raise Indeterminate(
                f"{self._root}: after the cleanup no complete checkpoint leads to version {listing.latest_version} "
                "without a gap: restore the log before anything else"
            )
        await self._remove_old_empty_directories(state)

    async def _remove_old_empty_directories(self, state: TableState) -> None:
        """Those that have been empty for as long as a removed file is kept. Only a full vacuum looks for them: it
        takes a walk over the whole table."""
        layout: DeltaLayout = state.layout  # type: ignore[assignment]  # the layout that `load` gave
        if layout.keep_data or self._lite:
            return
        older_than = await self._moment() - max(GRACE_FLOOR, state.minimum_age)
        tidy = self._tidy.within(state.roots)
        found = await tidy.empty_directories(self._root, older_than)
        ours = [path for path in found if layout.is_data_directory(path)]
        if ours:
            await tidy.remove_empty_directories(self._root, ours)

    async def explain(self, state: TableState, source: Location) -> tuple[str, ...]:
        """What leads to a checkpoint file or to a path that the log names directly."""
        native: DeltaState = state.native
        key = source.match_key
        for file in native.listing.files:
            if Location.parse(file.path).match_key == key:
                return (_log_sentence(native, file),)
        if _names(native.segment.tail.live(), key):
            return (f"version {native.version} has it: a commit behind the newest checkpoint added it",)
        if _names(self._removed_lately(native), key):
            hours = self._floor / timedelta(hours=1)
            return (f"a commit removed it, and delta.deletedFileRetentionDuration (at least {hours:g} h) is not over",)
        if _names(await unpublished_commits.named(self._reader, native.listing), key):
            return ("a commit names it that was written under a temporary name and may still come into the log",)
        if _names(await self._named_by_iceberg(native), key):
            return ("Iceberg metadata in the table's directory names it",)
        return ()

    async def _moment(self) -> datetime:
        """The slower of the two clocks, asked once: a whole cycle judges at one moment."""
        if self._as_of is None:
            self._as_of = min(self._clock.now(), await self._storage.now())
        return self._as_of

    async def _head_of(self, native: DeltaState) -> str:
        """The version of the table, and where Iceberg metadata lies beside the log which of it is the newest: what is
        committed to it counts as well."""
        head = f"{native.version}@{native.segment.metadata.table_id}"
        beside = [] if native.properties.iceberg_metadata else await self._iceberg.newest()
        if not beside:
            return head
        return f"{head}+{hashlib.sha256(repr(beside).encode()).hexdigest()[:16]}"

    async def _check_ground(self) -> None:
        for file in self._stands_on.files if self._stands_on else ():
            try:
                await self._storage.stat(Location.parse(file.path))
            except NotFound as exc:
                raise Indeterminate(
                    f"{file.path} is gone, and the log would begin with it: no older log file is deleted; see which "
                    "other tool cleans this log"
                ) from exc

    async def _stands_still(self, native: DeltaState) -> bool:
        """Is the newest commit still the same, and the next one not there?"""
        newest = native.listing.commits[native.version]
        try:
            found = await self._storage.stat(Location.parse(newest.path))
        except NotFound:
            return False
        if found.size_bytes != newest.size_bytes or not _same_time(found.modified_at, newest.modified_ms):
            return False
        following = self._root.join(names.LOG_DIRECTORY, names.commit_name(native.version + 1))
        try:
            await self._storage.stat(following)
        except NotFound:
            return True
        return False

    def _removed_lately(self, native: DeltaState) -> list[str]:
        """What the newest state keeps although it may be absent: see `Tail.tolerated`."""
        delete_before_ms = native.delete_before_ms(self._floor)
        below = Tail(last=native.removed_below).tolerated(delete_before_ms)
        return sorted({*native.segment.tail.tolerated(delete_before_ms), *below})

    def _sources(self, native: DeltaState) -> tuple[ReferenceSource, ...]:
        opened = native.segment.checkpoint
        return tuple(
            ReferenceSource(
                location=Location.parse(file.path),
                format=FormatName.DELTA,
                kind=decode.KIND,
                retained=True,
                size_bytes=file.size_bytes,
                context=decode.context(self._root, native.delete_before_ms(self._floor), listed=not self._lite),
            )
            for file in (opened.files if opened else ())
        )

    async def _named_by_iceberg(self, native: DeltaState) -> frozenset[str]:
        """While UniForm is on, its metadata follows this log and names nothing else."""
        return frozenset() if native.properties.iceberg_metadata else await self._iceberg.named()

    async def _free_sidecars(self, native: DeltaState, going: list[LogFile]) -> list[LogFile]:
        """Old sidecars that no staying checkpoint names. They were listed before the checkpoints are read here."""
        if not native.properties.log_cleanup_enabled:
            return []
        cutoff_ms = retention.sidecar_cutoff_ms(native.as_of, native.properties.log_retention)
        newest = set(native.segment.files)
        old = {
            name: file
            for name, file in native.listing.sidecars.items()
            if file not in newest and file.modified_ms is not None and file.modified_ms < cutoff_ms
        }
        leaving = set(going)
        for one in native.listing.checkpoints if old else ():
            if not one.may_use_sidecars or not one.complete or one.files[0] in leaving:
                continue
            try:
                head = await self._reader.head(one.files[0])
            except Unreadable:
                # Nobody knows what this checkpoint names, so every sidecar may be one of its.
                return []
            for name, _ in head.sidecars:
                old.pop(name, None)
        return list(old.values())


def _is_of_the_log(file: LogFile) -> bool:
    """A known name, or the checksum that Hadoop keeps beside one."""
    return names.parse(names.beside(file.relative)).kind is not LogKind.OTHER


def _names(paths: Iterable[str], match_key: str) -> bool:
    return any(Location.parse(path).match_key == match_key for path in paths)


def _same_time(found: datetime | None, listed_ms: int | None) -> bool:
    if found is None or listed_ms is None:
        return found is None and listed_ms is None
    return abs(retention.millis(found) - listed_ms) < _SAME_TIME_MS


def _log_sentence(native: DeltaState, file: LogFile) -> str:
    if file in native.segment.files:
        return f"version {native.version} is read from it"
    return f"the log of version {file.version} stays until a younger checkpoint is past delta.logRetentionDuration"
