"""One Delta table behind the Table port. Decisions are in `expire` and `tail`; this joins them to what was read."""

from __future__ import annotations

import hashlib
from datetime import datetime

from lakesweep.formats.delta import expire, lite, log, names, retention
from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.delta.load import LogReader
from lakesweep.formats.delta.log import Checkpoint
from lakesweep.formats.delta.options import DeltaOptions, VacuumMode
from lakesweep.formats.delta.state import DeltaState
from lakesweep.formats.delta.uniform import IcebergNeighbour
from lakesweep.formats.delta.view import DeltaView
from lakesweep.formats.unpublished_files import LeaveAll, Tidy
from lakesweep.model.errors import Indeterminate, NotFound
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import Shortlist, TableView, own_view

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
        self.lite = self._options.vacuum_mode is VacuumMode.LITE
        self._tidy = tidy or LeaveAll()
        self.reader = LogReader(storage, root)
        self.iceberg = IcebergNeighbour(storage, root)
        self._as_of: datetime | None = None
        self._loaded: DeltaView | None = None
        self._shortlist: Shortlist | None = None
        self.stands_on: Checkpoint | None = None
        """What the log begins with after this cycle. While we delete what is below it, it must not go."""
        self.floor = GRACE_FLOOR
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

    async def load(self) -> DeltaView:
        native = await self.reader.load(self._moment)
        metadata = native.segment.metadata
        if self.lite and self._shortlist is None:
            self._shortlist = await lite.shortlist(self.reader, self._storage, native)
        self._loaded = DeltaView(
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
            table=self,
        )
        return self._loaded

    async def load_at(self, head: str, now_view: TableView) -> DeltaView | None:  # noqa: ARG002  # the port's
        """Expiry commits nothing, so no earlier state is ever needed."""
        return None

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableView, ExpiryPlan]:
        """Nothing to commit: a version is gone when its log files are."""
        await fence.check()
        return view, view.plan_expiry(policy, now)

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:  # noqa: ARG002  # looks anew
        """Health check: the newest version can still be rebuilt from what is left, if it could before: a checkpoint
        without its own commit is readable all the same. Then directories that nobody uses any more go."""
        before = own_view(DeltaView, view)
        listing = await self.reader.listing()
        if log.earliest_reliable(listing) is None and log.earliest_reliable(before.native.listing) is not None:
            raise Indeterminate(
                f"{self._root}: after the cleanup no complete checkpoint leads to version {listing.latest_version} "
                "without a gap: restore the log before anything else"
            )
        await self._remove_old_empty_directories(before)

    async def _remove_old_empty_directories(self, view: DeltaView) -> None:
        """Those that have been empty for as long as a removed file is kept. Only a full vacuum looks for them: it
        takes a walk over the whole table."""
        if view.layout.keep_data or self.lite:
            return
        older_than = await self._moment() - max(GRACE_FLOOR, view.minimum_age)
        tidy = self._tidy.within(view.roots)
        found = await tidy.empty_directories(self._root, older_than)
        ours = [path for path in found if view.layout.is_data_directory(path)]
        if ours:
            await tidy.remove_empty_directories(self._root, ours)

    async def _moment(self) -> datetime:
        """The slower of the two clocks, asked once: a whole cycle judges at one moment."""
        if self._as_of is None:
            self._as_of = min(self._clock.now(), await self._storage.now())
        return self._as_of

    async def _head_of(self, native: DeltaState) -> str:
        """The version of the table, and where Iceberg metadata lies beside the log which of it is the newest: what is
        committed to it counts as well."""
        head = f"{native.version}@{native.segment.metadata.table_id}"
        beside = [] if native.properties.iceberg_metadata else await self.iceberg.newest()
        if not beside:
            return head
        return f"{head}+{hashlib.sha256(repr(beside).encode()).hexdigest()[:16]}"

    async def _check_ground(self) -> None:
        for file in self.stands_on.files if self.stands_on else ():
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


def _same_time(found: datetime | None, listed_ms: int | None) -> bool:
    if found is None or listed_ms is None:
        return found is None and listed_ms is None
    return abs(retention.millis(found) - listed_ms) < _SAME_TIME_MS
