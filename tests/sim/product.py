"""The product on the simulated world: how a process opens the table of a model, and runs one cycle on it.

Nothing of the product is replaced but its ports. The Iceberg catalog stands in for a REST server and its client.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ServerError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
)
from tests.builders.cycles import OneEngine
from tests.builders.surroundings import Alone, NoStoreRules
from tests.sim.engine import Known, PlainEngine
from tests.sim.formats import Model
from tests.sim.formats.iceberg import CommitRejected, IcebergModel
from tests.sim.mover import SimMover
from tests.sim.ports import Process, SimDeleter, SimState, SimStorage, SimWriter
from tests.sim.ways import USUAL, Ways
from tests.sim.world import Fault, Lost, Rules

from lakesweep.audit.records import Circumstances
from lakesweep.audit.trail import ChainWriter, Trail
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.delete_gate import GatedDeleter, TrashDeleter
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.daemon.shared_files import SharedFileIndex, first_segments, inside
from lakesweep.formats import registry as formats
from lakesweep.formats.iceberg.catalog import CommitStyle, Pointer
from lakesweep.formats.iceberg.commit_metadata import Stager
from lakesweep.formats.iceberg.expire import PlanHolds
from lakesweep.formats.iceberg.format import IcebergFormat
from lakesweep.formats.spec import DatasetSpec, Tools, UnpublishedRemover
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import CatalogUnavailable, LakesweepError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy, Deletion
from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.model.trash import RunTrash, default_trash
from lakesweep.ports.surroundings import Neighbours
from lakesweep.ports.table import Table, TableFormat, TableState

TENANT = TenantId("acme")
ARTIFACTS = Location.parse("s3://artifacts/lakesweep")
KEY = b"the key of the simulated audit trails"
ABOUT = Circumstances(
    trigger=Trigger(by=TriggeredBy.COMMAND, who="ada"),
    worker="host:1",
    fencing_token=1,
    settings_digest="5e77",
    version="0.1.0",
)


class _Naming:
    """How pyiceberg counts metadata files."""

    _parse_metadata_version = staticmethod(MetastoreCatalog._parse_metadata_version)


class SimCatalog:
    """What IcebergFormat asks of a catalog, from a REST server that applies commits."""

    can_write = True
    identity = "simulated"

    def __init__(self, model: IcebergModel, process: Process) -> None:
        self._model = model
        self._process = process

    async def tables(self, namespace: tuple[str, ...] | None) -> list[tuple[str, ...]]:
        below = namespace or ()

        def named() -> list[tuple[str, ...]]:
            names = sorted(tuple(name.split(".")) for name in self._model.catalog)
            return [name for name in names if name[: len(below)] == below]

        found: list[tuple[str, ...]] = await self._ask("tables", "", named)
        if namespace and not found:
            raise UnknownTable(f"the catalog has no namespace {'.'.join(namespace)}")
        return found

    async def pointer(self, identifier: tuple[str, ...]) -> Pointer:
        name = ".".join(identifier)

        def found(*, stale: bool = False) -> Pointer | None:
            table = self._model.catalog.get(name)
            if table is None:
                return None
            view, address = table.current, self._model.pointed_at(table)
            if stale:
                view = self._model.view_before(table) or view
                address = view.path
            if self._model.client:  # it knows an address, and nothing else
                return Pointer(metadata_location=address)
            return Pointer(
                metadata_location=address,
                properties=view.properties,
                snapshots=frozenset(view.snapshots),
                refs={ref_name: ref.snapshot_id for ref_name, ref in view.refs.items()},
            )

        pointer = await self._ask("pointer", name, found)
        if pointer is None:
            raise UnknownTable(f"the catalog has no table {name}")
        return pointer

    async def commit_style(self) -> CommitStyle:
        return CommitStyle.CLIENT if self._model.client else CommitStyle.SERVER

    async def no_swap(self) -> str | None:
        return None

    async def commit(
        self,
        identifier: tuple[str, ...],
        pointer: Pointer,
        requirements: Any,
        updates: Any,
        roots: Any,
        *,
        known: tuple[str, bytes] = ("", b""),  # the product's read is not simulated
    ) -> None:
        name = ".".join(identifier)
        try:
            call = await self._process.enter("catalog", "commit", name)
            base = pointer.metadata_location
            if name not in self._model.catalog:
                raise NoSuchTableError(name) if self._model.client else RESTError(f"Not Found: {name}")
            if self._model.client:
                base = await self._written(name, requirements, updates)
            try:
                self._apply(name, base, requirements, updates)
            except CommitRejected as exc:
                raise CommitFailedException(str(exc)) from exc
            await self._process.leave(call, "committed")
        except Fault as fault:
            raise (TimeoutError() if fault.kind == "timeout" else ServerError(fault.kind)) from fault

    async def _written(self, name: str, requirements: Sequence[Any], updates: Sequence[Any]) -> str:
        """As pyiceberg commits: look at what is there, write the new metadata file, swap the pointer if that is still
        what was looked at. Answers with that."""
        table = self._model.catalog[name]
        base = table.current
        metadata = TableMetadataUtil.parse_raw(base.stored.data.decode())
        for one in requirements:
            if isinstance(one, PlanHolds):
                one.validate(metadata)
        if self._model.more:
            current = IcebergTable(("db", "t"), metadata, base.path, None, None)  # type: ignore[arg-type]
            staged = Stager(_Naming(), None)(current, ("db", "t"), tuple(requirements), tuple(updates))  # type: ignore[arg-type]
            log = [(one.timestamp_ms, one.snapshot_id) for one in staged.metadata.snapshot_log]
            self._model.check_snapshot_log(table, log)
        await self._process.leave(await self._process.enter("storage", "put", f"metadata of {name}"))
        if self._model.catalog.get(name) is not table or table.current is not base:
            self._model.lose_race(table, base, self._process.name)
            raise CommitFailedException("the pointer has moved")
        return base.path

    def explain(self, exc: BaseException) -> str:
        return str(exc)

    async def aclose(self) -> None:
        pass

    def __str__(self) -> str:
        return "the simulated catalog"

    async def _ask(self, operation: str, target: str, answer: Any) -> Any:
        try:
            call = await self._process.enter("catalog", operation, target)
            found = answer()
            await self._process.leave(call, getattr(found, "metadata_location", ""))
        except Fault as fault:
            if fault.kind == "stale" and not self._process.world.planned:
                return answer(stale=True)
            raise CatalogUnavailable(f"injected: {fault.kind}") from fault
        return found

    def _apply(self, name: str, base: str, requirements: Sequence[Any], updates: Sequence[Any]) -> None:
        demands: dict[str, int] = {}
        uuid: str | None = None
        for one in requirements:
            if isinstance(one, AssertRefSnapshotId):
                demands[one.ref] = one.snapshot_id
            elif isinstance(one, AssertTableUUID):
                uuid = str(one.uuid)
        changes: dict[str, list[Any]] = {"refs": [], "snapshots": [], "statistics": []}
        for one in updates:
            if isinstance(one, RemoveSnapshotRefUpdate):
                changes["refs"].append(one.ref_name)
            elif isinstance(one, RemoveSnapshotsUpdate):
                changes["snapshots"] += one.snapshot_ids
            elif isinstance(one, RemoveStatisticsUpdate | RemovePartitionStatisticsUpdate):
                changes["statistics"].append(one.snapshot_id)
            else:
                raise TypeError(f"the simulated server knows no {type(one).__name__}")
        self._model.expire(name, base, demands, uuid, changes)


class SimIcebergFormat(IcebergFormat):
    """IcebergFormat with the simulated catalog; nothing else is different."""

    def __init__(self, spec: DatasetSpec, model: IcebergModel, process: Process) -> None:
        self._spec = spec
        self._storage = self._survey = SimStorage(process)
        self._namespace = ("db",)
        self._catalog = SimCatalog(model, process)  # type: ignore[assignment]
        self._places = {}


def open_format(model: Model, process: Process) -> TableFormat:
    """The dataset that the model's table is in."""
    root = Location.parse(model.tenant_root)
    common: dict[str, Any] = {"tenant": TENANT, "tenant_root": root, "dataset": "prod"}
    if isinstance(model, IcebergModel):
        return SimIcebergFormat(DatasetSpec(format=FormatName.ICEBERG, **common), model, process)
    places = {name: Location.parse(place) for name, place in model.places().items()}
    spec = DatasetSpec(format=FormatName(model.format), **common, **places, **model.settings())
    remover = SimUnpublishedRemover(process) if "partitions" in model.extras else UnpublishedRemover()
    return formats.open_format(
        spec, Tools(storage=SimStorage(process), clock=process, writer=SimWriter(process), remover=remover)
    )


@dataclass(frozen=True)
class SimUnpublishedRemover(UnpublishedRemover):
    """What a commit that failed takes away again. Only files of its own."""

    process: Process

    def within(self, roots: Sequence[Location]) -> UnpublishedRemover:
        return self

    async def remove_unpublished(self, paths: Sequence[str]) -> None:
        world, name = self.process.world, self.process.name
        for path in paths:
            try:
                call = await self.process.enter("storage", "discard", path)
                stored = world.remove(path)
                if stored is not None and stored.who != name:
                    raise Lost(f"{name} discarded {path}, which it did not write")
                world.discarded.add(path)
                world.changed(path, name)
                await self.process.leave(call)
            except Fault:
                continue


def policy_of(rules: Rules, ways: Ways = USUAL) -> CleanupPolicy:
    """The product's policy from the story's rules."""
    return CleanupPolicy(
        deletion=Deletion.TRASH if ways.trash else Deletion.DELETE,
        listing_interval=None if ways.interval is None else timedelta(hours=ways.interval),
        dry_run=False,
        grace_period=timedelta(hours=rules.grace),
        max_snapshot_age=timedelta(hours=rules.max_snapshot_age),
        min_snapshots_to_keep=rules.min_snapshots,
        stream_state=timedelta(hours=rules.stream_state),
        confirm_after=timedelta(hours=rules.confirm_after),
        batch_size=rules.batch_size,
    )


def table_ref(model: Model) -> TableRef:
    """The product's name of the model's table."""
    return TableRef(tenant=TENANT, dataset="prod", name="t", format=FormatName(model.format))


def trash_of(model: Model, run_id: str) -> RunTrash:
    """Where a run moves its files to, if it moves them."""
    root = Location.parse(model.tenant_root)
    return RunTrash(place=default_trash(root), root=root, run_id=run_id)


def trail(process: Process, state: SimState, label: str, run_id: str) -> Trail:
    """The audit trail of a run."""
    chain = ChainWriter(
        artifacts=ARTIFACTS,
        table=label,
        run_id=run_id,
        key=KEY,
        storage=SimStorage(process),
        writer=SimWriter(process),
        state=state,
        clock=process,
    )
    return Trail(chain=chain, about=ABOUT)


class AlwaysOurs:
    """A lease that nobody can take: replicas are `service.py`'s."""

    def __init__(self, token: int = 1) -> None:
        self.token = token

    async def check(self) -> None:
        return None

    def check_time(self) -> None:
        return None


_SCRATCH = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="lakesweep-sim-")
"""Plans are files. They are small, and in memory."""


def _scratch() -> Path:
    """Of this process: those that hunt mutants are forked, and must not clear away each other's plans."""
    return Path(_SCRATCH.name, str(os.getpid()))


@dataclass
class Runner:
    """Runs cycles of one process, one after the other, on one state store."""

    model: Model
    process: Process
    store: Any
    runs: int = 0
    decoded: Known = field(default_factory=dict)
    scratch: Path = field(default_factory=_scratch)
    ways: Ways = USUAL

    @property
    def run_id(self) -> str:
        """Of the newest run."""
        return f"run-{self.runs:04d}"

    async def cycle(self, listing: ListingMode = ListingMode.ALWAYS, *, execute: bool = True) -> CleanupRun:
        """One cycle. What kills the process gets out of here."""
        self.runs += 1
        process, model = self.process, self.model
        model.cycle_begins()
        run_id = self.run_id
        storage, state = SimStorage(process), SimState(self.store, process)
        source = open_format(model, process)
        ref = table_ref(model)
        table = await source.open(ref)
        rows = self.scratch / "plans" / f"{run_id}.parquet"
        tenant_root = Location.parse(model.tenant_root)
        engine = PlainEngine(storage=storage, decoder=formats.decoder, known=self.decoded)
        lease = await self.store.acquire_lease(ref.label, process.name, timedelta(days=3650))
        trash = trash_of(model, run_id) if self.ways.trash else None
        ports = Ports(
            table=table,
            storage=storage,
            choose_engine=OneEngine(engine).choose,
            open_deleter=SimDeleters(process, tenant_root, trash).open,
            state=state,
            audit=trail(process, state, ref.label, run_id),
            clock=process,
            artifacts=Artifacts(self.scratch),
            surroundings=SimSurroundings(source, table, storage),
            rules=NoStoreRules(),
        )
        context = RunContext(
            run_id=run_id,
            tenant_root=tenant_root,
            policy=policy_of(process.world.rules, self.ways),
            execute=execute,
            fence=AlwaysOurs(lease.token),
            rows_path=str(rows),
            listing=listing,
            trash=trash,
        )
        cycle = Cycle(ports, context)
        try:
            return await cycle.run()
        finally:
            await self.store.release_lease(lease)

    def aclose(self) -> None:
        """Remove the plans of the story."""
        if self.scratch.is_dir():
            for directory in os.scandir(self.scratch):
                for file in os.scandir(directory):
                    Path(file).unlink()


@dataclass(frozen=True)
class SimDeleters:
    """Simulated deleters behind the product's own gate."""

    process: Process
    tenant_root: Location
    trash: RunTrash | None

    def open(self, state: TableState) -> GatedDeleter:
        inner: Any = SimDeleter(self.process)
        if self.trash is not None:
            inner = TrashDeleter(SimMover(self.process), inner, self.trash)
        return GatedDeleter(inner, tenant_root=self.tenant_root, table_roots=state.roots)


class SimSurroundings(Alone):
    """The tables around, as the service asks for them."""

    def __init__(self, source: TableFormat, table: Table, storage: SimStorage) -> None:
        self._source, self._table = source, table
        self._borrowed = SharedFileIndex(storage)
        self._places: Mapping[TableRef, tuple[Location, ...]] = {}

    async def neighbours(self) -> Neighbours:
        try:
            self._places = await self._source.locations()
        except LakesweepError as exc:
            return Neighbours(places=self._places, problem=str(exc))
        return Neighbours(places=self._places)

    async def shared_files(self, state: TableState, *, own_later: bool = False) -> Mapping[str, Sequence[str]]:
        del own_later  # it is never read here
        others = [ref for ref in self._places if ref != self._table.ref]
        if not others:
            return {}
        begins = first_segments(place for where in self._places.values() for place in where)
        tables = [await self._source.open(ref) for ref in others]
        found = inside(await self._borrowed.of(tables, begins), state.roots, self._table.ref)
        return {ref.label: paths for ref, paths in found.items()}
