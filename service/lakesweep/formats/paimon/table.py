"""One Paimon table behind the Table port. A handle serves one cycle.

Expiring a snapshot is no commit in Paimon: it is the deletion of its files. So what `commit_expiry` commits is the
handle's own decision: from then on this handle no longer counts those snapshots as retained, unless a consumer, tag or
branch takes them back. The sweep closes them first: their own files go before any other, so that nobody can open a
snapshot that is losing its data. If the cycle dies before that, the next one finds them where they were and decides
anew; if after it, what they alone named is found as orphans. Dropping partitions is a real commit, and comes first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog

from lakesweep.cleanup.write_gate import GatedWriter
from lakesweep.formats.paimon import drop, load, newest, reader, retention
from lakesweep.formats.paimon.commit import Committer, misplaced, pending_without_base
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader, Vanished
from lakesweep.formats.paimon.options import read_options
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.references import ReferenceReader
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role, first_misplaced, without_base
from lakesweep.formats.paimon.state import PaimonState, ReleasedSnapshots
from lakesweep.formats.paimon.view import LOOKS, PaimonView
from lakesweep.formats.spec import UnpublishedRemover, remove_empty_directories
from lakesweep.model.errors import Indeterminate, LakesweepError, NotFound, Refused, StorageError, Unreadable
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import KnownContents, Storage, Writer
from lakesweep.ports.table import TableView, own_view

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class PaimonTable:
    """A handle on one table directory."""

    ref: TableRef
    location: Location
    storage: Storage
    tenant_root: Location
    writer: Writer | None = None
    remover: UnpublishedRemover = field(default_factory=UnpublishedRemover)
    checked: MutableMapping[str, datetime] = field(default_factory=dict)
    """When partitions were last dropped, by table: shared by all handles of one process."""
    executable: bool = True
    contents: KnownContents | None = None

    def __post_init__(self) -> None:
        if self.writer is not None:
            self.writer = GatedWriter(self.writer, (self.location,))
        self.files = TableFiles(storage=self.storage, location=self.location, contents=self.contents)
        self.lists = ListReader(self.files)
        self.reference_reader = ReferenceReader(self.files, self.lists)
        self.released = ReleasedSnapshots()
        self.offered: frozenset[str] | None = None
        """What the last references let go of files for: nothing else may be released."""
        self.emptied: tuple[str, ...] = ()
        self._known: dict[str, PaimonSnapshot] = {}
        self._table_id: str | None = None
        self._closed = False

    async def head(self) -> str:
        """Identity of everything that protects files, from listings and the latest snapshot."""
        why = f"{self.location} received a commit while it was being read"
        for _ in range(LOOKS):
            listing = await reader.list_log(self.files)
            try:
                head = await reader.head_of(self.files, listing, without=self.released.names)
            except NotFound as exc:
                why = str(exc)  # the latest snapshot was rolled back between the listing and the read
            else:
                if not await reader.has_changed_since(self.files, listing):
                    return head
        raise Indeterminate(f"{why}, {LOOKS} times in a row: the table changes too fast")

    def place(self) -> Location:
        return self.location

    async def is_still_at(self, trace: str) -> bool:
        """By the newest snapshot, consumers and schemas. What tags, branches or changelogs free, a listing finds."""
        return await reader.is_still_at(self.files, trace)

    async def load(self) -> PaimonView:
        looks = 0
        while True:
            looks += 1
            try:
                native = await self._with_partitions()
                return await load.table_view(self, native)
            except Vanished:
                if looks == LOOKS:
                    raise

    async def load_at(self, head: str, now_view: TableView) -> PaimonView | None:  # noqa: ARG002
        """Nothing is committed away: a snapshot is there until its file is deleted, and then its files are orphans."""
        return None

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[PaimonView, ExpiryPlan]:
        """Drop partitions, leave changelogs behind where they outlive snapshots, and release the snapshots."""
        dropped = await self._drop_partitions(own_view(PaimonView, view).native, now, fence)
        fresh = await self.load()
        planned = fresh.plan_expiry(policy, now)
        going = retention.resolve(fresh.native, planned)
        if self.offered is not None:
            going = [snapshot for snapshot in going if snapshot.key in self.offered]
        await fence.check()
        if fresh.native.options.decoupled:
            left = await self._leave_changelogs(fresh.native.log, [one for one in going if one.role is Role.SNAPSHOT])
            going = [one for one in going if one.role is not Role.SNAPSHOT or one.id in left]
        expired = tuple(retention.as_model(snapshot, fresh.native) for snapshot in going)
        self.released.add(going, fresh.native.log)
        committed = replace(
            planned,
            expire=expired,
            partitions=tuple(partition.path for partition in dropped),
            partition_files=sum((partition.holds for partition in dropped), Tally()),
        )
        return await self.load(), committed

    def closing_note(self, *, begun: bool = False) -> str:
        closing_note = self.released.begun if begun else self.released.snapshots
        documents = [dict(one.document) for one in closing_note]
        return json.dumps({"table": self._table_id, "snapshots": documents}) if documents else ""

    def sending(self, paths: Sequence[str]) -> None:
        if not self._closed:  # from then on only other files go, perhaps millions
            self.released.send(paths)

    async def reopen(self, closing_note: str) -> None:
        """As `_put_back`, for a run that can no longer do it. Its data files went only after its look at the table."""
        if reader.numbers(await self.files.names(Role.SNAPSHOT), Role.SNAPSHOT):
            return
        noted, hint = json.loads(closing_note), await newest.latest_hint(self.files)
        wanted = next((one for one in noted["snapshots"] if one["id"] == hint), None)
        if wanted is not None and await self._is(noted["table"]):
            await self._restore(wanted)
            _log.warning("snapshot_put_back", table=self.location.raw, snapshot=hint)

    async def closed(self) -> None:
        """The expired snapshots' own files are gone. One that is still there, whatever kept it, gets all of its files
        back; and the hints for other readers show where history begins now. If none is left, one is put back."""
        self._closed = True
        roles = self.released.roles
        listed = {role: await self.files.names(role) for role in roles}
        if Role.SNAPSHOT in listed and not reader.numbers(listed[Role.SNAPSHOT], Role.SNAPSHOT):
            await self._put_back(Unreadable(self.files.at(Role.SNAPSHOT).raw, "no snapshot file is listed"))
        back = self.released.take_back((role, one.name) for role in roles for one in listed[role])
        if back:
            _log.warning("expired_snapshots_still_there", snapshots=[one.label for one in back])
        await self._update_hints(roles)

    async def reopened(self) -> None:
        """Readers refuse a snapshot below the EARLIEST hint, and Paimon's own expiry never looks there."""
        await self._update_hints((Role.SNAPSHOT, Role.CHANGELOG))

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        """Update the hints where history begins for other readers, and remove unused directories."""
        await self._update_hints(retention.roles_of(expiring))
        if self.emptied:
            await self.remover.within(view.roots).remove_empty_directories(view.location, self.emptied)
        await self._remove_old_empty_directories(own_view(PaimonView, view))

    async def _update_hints(self, roles: Iterable[Role]) -> None:
        for role in roles:
            numbers = reader.numbers(await self.files.names(role), role)
            if numbers:
                await self._write_hint(role, "EARLIEST", numbers[0])

    async def _remove_old_empty_directories(self, view: PaimonView) -> None:
        """Long empty ones. One emptied just now stays: a writer may have made it for the file it is about to write."""
        older_than = await self.storage.now() - GRACE_FLOOR
        remover = self.remover.within(view.roots)
        for root in view.roots:
            await remove_empty_directories(remover, root, older_than, view.layout.is_data_directory)

    async def compact_manifests(self, now: datetime, fence: Fence) -> PaimonSnapshot | None:
        return await drop.compact_manifests(self._committer(), self._native, fence=fence, now=now)

    async def places(self) -> tuple[Location, ...]:
        """Every directory this table may keep files in, for finding overlaps."""
        schemas = await reader.read_schemas(self.files)
        return (self.location.as_directory(), *load.external_places(schemas, self.location, self.tenant_root))

    async def _native(self) -> PaimonState:
        try:
            log = await reader.read_log(self.files, without=self.released.names, known=self._known)
        except (Refused, Unreadable) as exc:
            await self._put_back(exc)
            raise
        self.released.keep_if_rolled_back(log)
        options, checked_at = read_options(log.schemas[-1].options), self.checked.get(self.location.raw)
        native = PaimonState(log=log, options=options, partitions_checked_at=checked_at, released=self.released.keys)
        self.released.check_not_needed(native)
        if (ours := first_misplaced(native.snapshots)) is not None:
            raise Indeterminate(misplaced(ours))
        if (ours := without_base(log.snapshots, log.latest_hint)) is not None:
            raise Indeterminate(pending_without_base(ours, log.snapshots[-1]))
        self._table_id = log.table_id
        return native

    async def _put_back(self, trouble: LakesweepError) -> None:
        """If a rollback to a snapshot was under way while this run closed it, none is left. What the hint names and we
        took away belongs there again. What others took is not ours to put back: the hint alone proves no rollback."""
        if not self.released.keys or reader.numbers(await self.files.names(Role.SNAPSHOT), Role.SNAPSHOT):
            return
        hint = await newest.latest_hint(self.files)
        wanted = next((one for one in self.released.begun if one.id == hint), None)
        if wanted is None or not await self._is(self._table_id):
            return
        await self._restore(wanted.document)
        raise Indeterminate(
            f"{wanted.label} was expired by this run while somebody rolled the table back to it, and no snapshot was "
            f"left ({trouble}): it was restored, and nothing more was deleted"
        ) from trouble

    async def _restore(self, document: Mapping[str, Any]) -> None:
        place = self.files.at(Role.SNAPSHOT, f"snapshot-{document['id']}")
        await self._writing().put(place, json.dumps(document, indent=2).encode(), create_only=True)

    async def _with_partitions(self) -> PaimonState:
        native = await self._native()
        return await load.with_partitions(native, self.lists, self.files)

    async def _drop_partitions(self, native: PaimonState, now: datetime, fence: Fence) -> list[Partition]:
        due = retention.due_partitions(native, now).partitions
        size = native.options.partitions.batch_size
        dropped: list[Partition] = []
        for start in range(0, len(due), size):
            batch = due[start : start + size]
            dropped += await drop.drop_partitions(
                self._committer(), self.lists, self._with_partitions, batch, fence=fence, now=now
            )
        if due:
            self.checked[self.location.raw] = now
        return dropped

    async def _leave_changelogs(self, log: reader.Log, snapshots: Sequence[PaimonSnapshot]) -> frozenset[int]:
        """Copy snapshots into `changelog/`, oldest first. An older changelog of the same id is of a rolled-back one.
        Returns the ids of those that may go: if one no longer reads as before (rolled back, expired, or a short
        read), it and those behind it stay."""
        left: dict[int, Location] = {}
        for snapshot in snapshots:
            if not await reader.still_stands(self.files, snapshot):
                break
            left[snapshot.id] = self.files.at(Role.CHANGELOG, f"changelog-{snapshot.id}")
            document = json.dumps(snapshot.document, indent=2).encode()
            await self._writing().put(left[snapshot.id], document, create_only=False)
        await self._check_not_replaced(log, left.values())
        if left:
            await self._write_hint(Role.CHANGELOG, "LATEST", max(left))
        return frozenset(left)

    async def _check_not_replaced(self, log: reader.Log, written: Iterable[Location]) -> None:
        """What was written for a table must not stay for another one that is or will be created in its place."""
        if await self._is(log.table_id):
            return
        await self.remover.within((self.location,)).remove_unpublished([place.raw for place in written])
        raise Refused(RefusalCode.TABLE_CHANGED, "the table was dropped while its snapshots were to expire")

    async def _is(self, table_id: str | None) -> bool:
        """Is it still that table, and not another one in its place?"""
        schemas = reader.numbers(await self.files.names("schema"), "schema")
        return bool(schemas) and await reader.table_id(self.files, schemas[0]) == table_id

    async def _write_hint(self, directory: str, hint: str, number: int) -> None:
        """For other readers: a hint that cannot be written does no harm."""
        if self.writer is None:
            return
        try:
            await self.writer.put(self.files.at(directory, hint), str(number).encode(), create_only=False)
        except StorageError as exc:
            _log.warning("hint_not_written", directory=directory, hint=hint, why=str(exc))

    def _committer(self) -> Committer:
        return Committer(self.files, self.lists, self._writing(), self.remover.within((self.location,)))

    def _writing(self) -> Writer:
        if self.writer is None:
            raise Refused(RefusalCode.NO_WRITER, f"{self.ref} was opened for reading only")
        return self.writer
