"""One Delta table behind the Table port. Decisions are in `expire` and `state`; this connects them to what was read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lakesweep.cleanup import without_listing
from lakesweep.formats import reads
from lakesweep.formats.delta import expire, lite, log, retention
from lakesweep.formats.delta.layout import DeltaLayout
from lakesweep.formats.delta.load import LogReader
from lakesweep.formats.delta.state import DeltaState
from lakesweep.formats.delta.uniform import UniformMetadata
from lakesweep.formats.delta.view import DeltaView
from lakesweep.formats.spec import UnpublishedRemover, remove_empty_directories
from lakesweep.model.errors import Indeterminate, NotFound
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import KnownContents, Storage
from lakesweep.ports.table import Shortlist, TableView, own_view


class VacuumMode(StrEnum):
    """Where candidates for deletion come from."""

    FULL = "full"
    """Everything stored below the table: also finds what no commit ever named."""
    LITE = "lite"
    """Only what commits still in the log have removed, as VACUUM LITE does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    """The choices for one dataset's tables."""

    vacuum_mode: VacuumMode = VacuumMode.FULL
    has_shallow_clones: bool = False
    """Shallow clones read this table's files, and nothing in its log says so: with this flag its data files stay
    and only its log is cleaned."""


_SAME_TIME_MS = 2000
"""A listing may give times more precisely than a look at one object does."""


class DeltaTable:
    """A handle for one cycle: everything is judged at the moment of its first load."""

    def __init__(
        self,
        ref: TableRef,
        root: Location,
        storage: Storage,
        clock: Clock,
        options: DeltaOptions | None = None,
        *,
        remover: UnpublishedRemover | None = None,
        contents: KnownContents | None = None,
    ) -> None:
        self.ref = ref
        self.executable = True
        self._root = root
        self._storage = storage
        self._clock = clock
        self._options = options or DeltaOptions()
        self.lite = self._options.vacuum_mode is VacuumMode.LITE
        self._remover = remover or UnpublishedRemover()
        self.reader = LogReader(storage, root, contents)
        self.iceberg = UniformMetadata(storage, root)
        self._as_of: datetime | None = None
        self._loaded: DeltaView | None = None
        self._shortlist: Shortlist | None = None
        self.stands_on: log.Checkpoint | None = None
        """What the log begins with after this cycle. While we delete what is below it, it must not go."""
        self.floor = GRACE_FLOOR
        """How long a removed file waits at least. An operator may allow less; a table's own property may not."""

    async def head(self) -> str:
        """A few looks at single objects while nothing is committed."""
        await self._check_ground()
        known = self._loaded
        # The log comes last: a commit of this table's own writers is the most likely thing to come in between.
        if known and await self._head_of(known.native) == known.head and await self._is_unchanged(known.native):
            return known.head
        return (await self.load()).head

    def read_anyway(self) -> None:
        """Also with features and properties that are not known here. What to delete does not matter then."""
        self.reader.reads_anyway, self.executable, self.lite = True, False, False

    def place(self) -> Location:
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

    async def become_lite(self, native: DeltaState) -> Shortlist:
        """Do as `vacuum_mode = "lite"` says for the rest of this cycle, unless the names are so many that the table is
        listed: a listing has to show that live files are there."""
        if self._shortlist is not None:
            return self._shortlist
        found = await lite.shortlist(self.reader, self._storage, native)
        if not without_listing.too_many(found, (self._root.as_directory(),)):
            self.lite, self._shortlist = True, found
        return found

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
        """Empty for as long as a removed file is kept. Only a full vacuum looks: it walks over the table."""
        if view.layout.keep_data or self.lite:
            return
        older_than = await self._moment() - max(GRACE_FLOOR, view.minimum_age)
        remover = self._remover.within(view.roots)
        await remove_empty_directories(remover, self._root, older_than, view.layout.is_data_directory)

    async def _moment(self) -> datetime:
        """The slower of the two clocks, asked once: a whole cycle judges at one moment."""
        if self._as_of is None:
            self._as_of = min(self._clock.now(), await self._storage.now())
        return self._as_of

    async def _head_of(self, native: DeltaState) -> str:
        """The version and the commit that made it: after a restored backup another one may have the same number. And
        the newest Iceberg metadata beside the log: what is committed to it counts as well."""
        newest = native.listing.commits[native.version]
        beside = [] if native.properties.iceberg_metadata else await self.iceberg.newest()
        digest = _digest(newest.size_bytes, newest.modified_ms, beside)
        return f"{native.version}@{native.segment.metadata.table_id}+{digest}"

    async def is_still_at(self, trace: str) -> bool:
        """Is the newest commit the same, and the next one not there? And the same Iceberg metadata beside the log."""
        version, digest = trace.partition("@")[0], trace.rpartition("+")[2]
        if not version.isdecimal():
            return False  # the table had another format then
        log_directory = self._root.join(log.LOG_DIRECTORY)
        numbers = int(version), int(version) + 1
        newest, following = [log_directory.join(log.commit_name(number)) for number in numbers]
        found, after = await self._storage.stat_together(newest, following)
        if found is None or found.modified_at is None or after is not None:
            return False
        beside, written = await self.iceberg.newest(), retention.millis(found.modified_at)
        # A listing of a disk rounds times up.
        return digest in {_digest(found.size_bytes, one, beside) for one in (written, written + 1)}

    async def _check_ground(self) -> None:
        for file in self.stands_on.files if self.stands_on else ():
            try:
                await self._storage.stat(Location.parse(file.path))
            except NotFound as exc:
                raise Indeterminate(
                    f"{file.path} is gone, and the log would begin with it: no older log file is deleted; find out "
                    "which other tool cleans this log"
                ) from exc

    async def _is_unchanged(self, native: DeltaState) -> bool:
        """Is the newest commit still the same, and the next one not there? Both in one step, after everything else: if
        asked one after the other, a table that is dropped and created again in between would show neither."""
        newest = native.listing.commits[native.version]
        following = self._root.join(log.LOG_DIRECTORY, log.commit_name(native.version + 1))
        if await reads.is_there(self._storage, following):  # by its name, for a store that does not list it
            return False
        found, after = await self._storage.stat_together(Location.parse(newest.path), following)
        if found is None or after is not None:
            return False
        return found.size_bytes == newest.size_bytes and _same_time(found.modified_at, newest.modified_ms)


def _digest(size_bytes: int, modified_ms: int | None, beside: object) -> str:
    return hashlib.sha256(repr((size_bytes, modified_ms, beside)).encode()).hexdigest()[:16]


def _same_time(found: datetime | None, listed_ms: int | None) -> bool:
    if found is None or listed_ms is None:
        return found is None and listed_ms is None
    return abs(retention.millis(found) - listed_ms) < _SAME_TIME_MS
