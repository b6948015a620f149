"""A ghost as a table of which everything is an orphan: so one cycle plans it, checks it and sweeps it like any other.

It is deleted completely, exactly as approved, or not at all. When it is loaded, and again before each batch and
request, every possible claim is read again, and nothing may have been added or changed there since it was first
read; what is gone was deleted by the sweep itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakesweep.daemon import ghost_files, targets
from lakesweep.daemon.ghost_claims import claimed
from lakesweep.formats import markers
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import Indeterminate, Refused
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Outcome
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.references import References
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import ExpiringFiles, ReadSources, Shortlist, TableView

if TYPE_CHECKING:
    from lakesweep.daemon.ghosts import GhostSearch

RUNS_LOOKED_AT = 50
LISTED_WHOLE = 100_000
"""Files of a ghost up to which all of it is listed before each batch. Of a larger one only its metadata is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostView(TableView):
    """A ghost as it was found. It has no snapshots and nothing refers to its files."""

    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        del policy, now
        return ExpiryPlan(head=self.head)

    async def references(self, expiring: ExpiryPlan, before: TableView | None = None) -> References:
        """None: if another table uses one of its files, it is not a ghost."""
        del expiring, before
        return References(retained=(), expired=(), sources=())

    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:
        del expiring, found, read
        return ExpiringFiles(shortlist=Shortlist(roots=(), objects=()))

    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:
        """Looked for in its own listing, when it is loaded."""
        del paths
        return ()

    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        del unreferenced
        return None

    async def explain(self, source: Location) -> tuple[str, ...]:
        del source
        return ()


@dataclass(kw_only=True)
class GhostTable:
    """A Table for one cycle over one ghost."""

    ref: TableRef
    location: Location
    """With a slash at the end."""
    format: FormatName | None
    """None where only data files are left."""
    hunt: GhostSearch
    grace: timedelta
    executable: bool = True
    _seen: frozenset[int] | None = None
    """All objects as they were when it was first looked at."""
    _elsewhere: tuple[Location, ...] = ()
    """Places that its own metadata names."""
    _uuid: str | None = None
    _view: TableView | None = None
    """What its own metadata contains, if it can be read."""

    def place(self) -> Location | None:
        return self.location

    async def head(self) -> str:
        """The same as long as it is a ghost: nobody claims it and nothing has come. Raises Refused when it is none."""
        await self._refuse_claimed()
        if self._seen is not None:
            await self._refuse_new_objects(self._seen)
            # Listing may take long.
            await self.hunt.claims_reader.refuse_claimed_place((self.location, *self._elsewhere))
        return self._identity

    async def load(self) -> TableView:
        await self._refuse_claimed(read=True)
        await self._refuse_links()
        seen = await self._look()
        if self._seen is None:
            self._seen = seen
        elif not seen <= self._seen:
            raise self._changed()
        return GhostView(
            ref=self.ref,
            head=self._identity,
            table_uuid=None,
            location=self.location,
            roots=(targets.without_slash(self.location),),
            snapshots=(),
            layout=self._layout,
            minimum_age=self.grace,
            estimated_files=len(seen),
            goes_whole=True,
        )

    async def load_at(self, head: str, now_view: TableView) -> TableView | None:
        del head, now_view
        return None

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableView, ExpiryPlan]:
        del policy, now, fence
        raise Indeterminate(f"{view.ref} is a ghost: nothing expires there")

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        del view, expiring

    @property
    def _layout(self) -> GhostLayout:
        return GhostLayout(root=self.location.as_directory().raw, format=self.format)

    @property
    def _identity(self) -> str:
        name = f"{self.location.raw}|{self.format}|{self._uuid}"
        return f"ghost-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    async def _refuse_claimed(self, *, read: bool = False) -> None:
        """Read all claims. With `read`, also read its own metadata, which a sweep deletes first."""
        claims_reader = self.hunt.claims_reader
        claims = await claims_reader.read()
        if read and self.format is not None:
            metadata = await self.hunt.read(self.location, self.format, claims)
            if metadata.owned:
                raise claimed(
                    self.location,
                    "its metadata is that of a known table, of a known table's former location, or of a view",
                )
            if metadata.problem and not await self._was_begun():
                raise Indeterminate(
                    f"the metadata of {self.location} cannot be read, so it is unknown whose it was: {metadata.problem}"
                )
            self._view = metadata.state
            self._elsewhere = metadata.roots or self._elsewhere
            self._uuid = metadata.uuid or self._uuid
        if self._uuid in claims.uuids:
            raise claimed(self.location, "another table has the same uuid")
        await claims_reader.refuse_used(self.location, claims, elsewhere=self._elsewhere)

    async def _was_begun(self) -> bool:
        """Has an earlier run of ours begun to delete it? Then its metadata need not be whole."""
        state = self.hunt.app.state
        for run in await state.list_runs(table=self.ref.label, limit=RUNS_LOOKED_AT):
            if await state.journal(run["run_id"]):
                # After one that took all of it, or brought it back, what is there is somebody's again.
                return run["outcome"] is not Outcome.DONE and run["restored"] is None
        return False

    async def _refuse_links(self) -> None:
        found = await self.hunt.storage.irregular(self.location)
        if found:
            raise Refused(
                RefusalCode.FOREIGN_TABLE,
                f"{found[0]} is a link or another special file, whose target is unknown: remove it, otherwise "
                f"nothing in {self.location} is deleted",
            )

    async def _look(self) -> frozenset[int]:
        """Everything that is there, all of it old and of one table."""
        oldest = min(self.hunt.app.clock.now(), await self.hunt.storage.now()) - self.grace
        await self.hunt.refuse_lately_known(self.location, oldest)
        seen: set[int] = set()
        layout, used = self._layout, self.hunt.claims_reader.used_names()
        directories: dict[str, str] = {}
        async for path, size, modified, etag in _objects(self.hunt.storage, self.location):
            if modified is None or modified >= oldest:
                raise Refused(
                    RefusalCode.GHOST_YOUNG,
                    f"{path} changed at {modified or 'an unknown time'}, within ghost_grace_hours "
                    f"({self.grace / timedelta(hours=1):g} h): somebody may still write there, so all of "
                    f"{self.location} stays",
                )
            if layout.foreign_name([path]):
                raise Refused(
                    RefusalCode.FOREIGN_TABLE,
                    f"{path} belongs to another table or to the trash inside {self.location}: nothing there is deleted",
                )
            above, _, name = path[len(layout.root) :].rpartition("/")
            if name in used:
                raise claimed(
                    self.location, f"{path} has the name of a file that {used[name]} uses, perhaps by another address"
                )
            if layout.classify(path).kind == "data":
                directories.setdefault(above, path)
            seen.add(hash((path, size, modified, etag)))
        await self._refuse_foreign(directories)
        return frozenset(seen)

    async def _refuse_foreign(self, directories: dict[str, str]) -> None:
        """One that an earlier run began to delete was checked when it was complete; its metadata says less by now."""
        found = await ghost_files.foreign(self.hunt.storage, self._view, self._layout, directories)
        if found and not await self._was_begun():
            raise Refused(
                RefusalCode.FOREIGN_TABLE,
                f"{found} is in a directory that the metadata of {self.location} does not name, so it may belong to "
                f"something else: move it away, otherwise nothing in {self.location} is deleted",
            )

    async def _refuse_new_objects(self, seen: frozenset[int]) -> None:
        places = [self.location]
        if len(seen) > LISTED_WHOLE:
            places = [self.location.join(name).as_directory() for name in markers.SIGNS.all_directories]
        for place in places:
            async for row in _objects(self.hunt.storage, place):
                if hash(row) not in seen:
                    raise self._changed(row[0])

    def _changed(self, what: str | None = None) -> Refused:
        first = f" (first {what})" if what else ""
        return Refused(
            RefusalCode.TABLE_CHANGED,
            f"files in {self.location} were added or changed since it was planned{first}: somebody uses it, so "
            "nothing more of it is deleted",
        )


async def _objects(storage: Storage, place: Location) -> AsyncIterator[tuple[str, int, datetime | None, str | None]]:
    async with aclosing(storage.list(place)) as pages:
        async for page in pages:
            columns = (page.column(name).to_pylist() for name in ("path", "size_bytes", "modified_at", "etag"))
            for row in zip(*columns, strict=True):
                yield row
