"""The run that a restore takes back: its table and stores by the settings of now, what can be found of its files, and
what a restore cannot do by itself. Reads only."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakesweep.cleanup.restore_entries import ANOTHER_TABLE
from lakesweep.cleanup.restore_finder import Finder, Taken, why_nothing
from lakesweep.daemon.ghost_table import RUNS_LOOKED_AT
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import LakesweepError, Refused, UnknownRun, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun, Outcome, Restored
from lakesweep.model.run_document import Run
from lakesweep.model.store_rules import Versioning
from lakesweep.model.table import BARE_TENANT, FACTS, TableRef, TenantId, is_ghost
from lakesweep.model.trash import RunTrash
from lakesweep.ports.table import Table

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class TakenRun:
    """One run, as it is recorded now."""

    app: App
    document: Run

    @classmethod
    async def known(cls, app: App, run_id: str) -> TakenRun:
        document = await app.state.get_run(run_id)
        if document is None:
            raise UnknownRun(f"there is no run {run_id!r}: `lakesweep runs` shows them")
        if document["restored"] is not None:
            of = document["restored"]["run_id"]
            raise Refused(
                RefusalCode.NOTHING_TO_RESTORE, f"run {run_id} deleted nothing: it restored the files of run {of}"
            )
        return cls(app=app, document=document)

    @property
    def ref(self) -> TableRef:
        tenant, dataset, name = self.document["table"].split("/", 2)
        return TableRef(tenant=TenantId(tenant), dataset=dataset, name=name, format=self.document["format"])

    @property
    def root(self) -> Location:
        """The tenant's root as the settings have it now; that of a bare location as its run had it."""
        tenant = self.app.settings.tenant(self.ref.tenant)
        if tenant is not None:
            return Location.parse(tenant.root)
        if self.ref.tenant != BARE_TENANT:
            raise UnknownTable(f"{self.document['table']}: its tenant is no longer configured, so nothing is restored")
        trash = self.document["trash"]
        return Location.parse(trash["root"] if trash else self.document["location"] or "/")

    @property
    def owner(self) -> str:
        """The tenant whose stores are used: of a bare location the one whose root it is in."""
        if self.ref.tenant != BARE_TENANT:
            return self.ref.tenant
        around = (one for one in self.app.settings.tenants if Location.parse(one.root).overlaps(self.root))
        return next((one.id for one in around), "")

    async def finder(self, patterns: Sequence[str]) -> Finder:
        app, ref, root, run_id = self.app, self.ref, self.root, self.document["run_id"]
        header = await app.state.get_plan(run_id)
        if is_ghost(ref.label):
            await self._refuse_taken_place()
        taken = Taken(
            run_id=run_id,
            root=root,
            plan=header,
            batches=await app.state.journal(run_id),
            trash=self._trash(root),
            markers=await self._delete_markers(),
            versioned=self._may_have_versions(root),
        )
        bare = root if ref.tenant == BARE_TENANT else None
        return Finder(
            taken=taken,
            patterns=patterns,
            storage=app.adapters.storage(self.owner, bare, taken.trash.place if taken.trash else None),
            artifacts=app.artifacts,
            another_table=self._another_table if self.document["table_uuid"] else None,
        )

    async def open_table(self) -> Table:
        """As a cycle opens it; by its place if no dataset has it."""
        app, ref = self.app, self.ref
        tenant = app.settings.tenant(ref.tenant)
        dataset = tenant.dataset(ref.dataset) if tenant else None
        if tenant is not None and dataset is not None:
            works = await app.discovery.discover(tenant, dataset, glob.escape(ref.label))
        else:
            works = await app.resolve(self.document["location"] or "", format=ref.format, root=self.root.raw)
        work = next(iter(works), None)
        if work is None or work.table is None:
            raise (work.problem if work else None) or UnknownTable(f"{ref} was not found: configure its dataset")
        return work.table

    async def _another_table(self) -> str | None:
        """Why the table at this place is not the one that the run changed; None if it is."""
        try:
            table = await self.open_table()
            now = await table.load()
        except LakesweepError as exc:
            return f"the table cannot be read, so it is unknown whose log it is now: {exc}"
        return None if now.table_uuid == self.document["table_uuid"] else ANOTHER_TABLE

    def _trash(self, root: Location) -> RunTrash | None:
        trash, run_id = self.document["trash"], self.document["run_id"]
        if trash is None:
            return None
        if Location.parse(trash["root"]) != root:
            raise Refused(
                RefusalCode.TRASH_PLACE,
                f"run {run_id} moved files out of {trash['root']}, but the tenant's root is {root} now: "
                "set that back, then restore",
            )
        return RunTrash(place=Location.parse(trash["place"]), root=root, run_id=run_id)

    async def _delete_markers(self) -> dict[str, str]:
        """Those of this very run, as its audit trail names them."""
        found: dict[str, str] = {}
        records = self.app.trails.inspector().records(self.document["run_id"], self.ref.label)
        try:
            async with aclosing(records):
                async for _, record in records:
                    if record["record"] == "deleted" and record.get("delete_marker"):
                        found[record["path"]] = record["delete_marker"]
        except UnknownTable:
            return {}
        return found

    def _may_have_versions(self, root: Location) -> bool:
        """Where that is not known it may, unless the run had a trash."""
        store = self.document["store"]
        versioning = store["versioning"] if store else Versioning.UNKNOWN
        if versioning == Versioning.UNKNOWN:
            return not root.is_local and self.document["trash"] is None
        return versioning != Versioning.OFF

    async def _refuse_taken_place(self) -> None:
        """Refused if anything lies where a ghost was that is not a file of its own: a table that was made there since
        would find the ghost's metadata among its own. Names that no format writes were left there, and count for
        nothing."""
        place = Location.parse(self.document["location"] or "")
        sizes = await self._own_sizes()
        layout = GhostLayout(root=place.as_directory().raw, format=self.document["format"])
        async with aclosing(self.app.adapters.storage(self.owner).list(place)) as pages:
            async for page in pages:
                columns = (page.column(name).to_pylist() for name in ("path", "size_bytes"))
                for path, size in zip(*columns, strict=True):
                    is_left = layout.classify(path).foreign and not layout.foreign_name([path])
                    if sizes.get(path) != size and not is_left:
                        raise Refused(
                            RefusalCode.FOREIGN_TABLE,
                            f"{place} is in use by something else ({path} was not the ghost's): nothing is restored "
                            "there",
                        )

    async def _own_sizes(self) -> dict[str, int]:
        """Sizes by path, from every plan of the ghost whose execution began: an interrupted run leaves the rest to the
        next one."""
        state, artifacts = self.app.state, self.app.artifacts
        sizes: dict[str, int] = {}
        seen: set[str] = set()
        for run in await state.list_runs(table=self.document["table"], limit=RUNS_LOOKED_AT):
            plan = await state.get_plan(run["run_id"])
            if plan is None or plan.digest in seen or not await state.journal(run["run_id"]):
                continue
            seen.add(plan.digest)
            at = 0
            while rows := await artifacts.page(plan.rows_path, at, _ROWS_AT_ONCE):
                sizes |= {row.path: row.size_bytes for row in rows}
                at += len(rows)
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What came of a restore."""

    result: Restored
    paused: bool
    run: CleanupRun | None
    """None of a dry run."""
    taken: Run
    """The run whose files are restored."""
    head_stands: bool = True
    """Is the metadata still there that the run began with?"""

    @property
    def why_nothing_restored(self) -> str | None:
        """Why nothing can be brought back, if so."""
        return why_nothing(self.result, dry_run=self.of_dry_run)

    @property
    def of_dry_run(self) -> bool:
        return self.taken["outcome"] == Outcome.DRY_RUN

    @property
    def remark(self) -> str | None:
        return remark(self.taken, head_stands=self.head_stands)


def remark(taken: Run, *, head_stands: bool) -> str | None:
    """What a restore cannot do by itself, and how a person does it."""
    expired, head = taken["expired_snapshots"], _head_of_expired(taken)
    if head is None:
        return None
    name = taken["table"].split("/", 2)[2]
    more = ", …" if len(expired) > 3 else ""
    found = f"the metadata no longer has the expired snapshots ({', '.join(expired[:3])}{more})"
    if not head_stands:
        return f"{found}, and {head}, which had them, is gone: without a copy of it they cannot be registered again"
    return (
        f"{found}; {head} still has them, and this registers it under another name: "
        f"CALL catalog.system.register_table(table => '{name}_restored', metadata_file => '{head}')"
    )


async def look_for_head(taken: Run, finder: Finder) -> bool:
    """If that is unknown, it is assumed to be there."""
    head = _head_of_expired(taken)
    try:
        return head is None or await finder.stands(head)
    except LakesweepError:
        return True


def _head_of_expired(taken: Run) -> str | None:
    """The metadata that has the snapshots which the run expired, in formats whose metadata is whole."""
    whole = FACTS[taken["format"]].whole_metadata and taken["expired_snapshots"]
    return taken["head"] or None if whole else None
