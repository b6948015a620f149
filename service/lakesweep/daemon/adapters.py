"""Turn settings into adapters: stores, formats, engines. Opened lazily, once per tenant or dataset."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.delete_gate import GatedDeleter, TrashDeleter
from lakesweep.daemon import memory
from lakesweep.daemon.unpublished_files import GatedUnpublishedRemover
from lakesweep.engines import registry as engines
from lakesweep.engines.inventory import lists as inventories
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.formats import bounds, markers
from lakesweep.formats import registry as formats
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model import run_document
from lakesweep.model.location import Location
from lakesweep.model.run import EngineChoice
from lakesweep.model.table import FormatName, TenantId
from lakesweep.model.trash import RunTrash
from lakesweep.ports.clock import Clock
from lakesweep.ports.deleter import Deleter, Mover
from lakesweep.ports.engine import Engine
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.ports.table import Table, TableFormat, TableState
from lakesweep.settings import stores
from lakesweep.settings.cascade import trash_places
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.storage import registry as storages
from lakesweep.storage.adaptive_limiter import Gate, delete_gate
from lakesweep.storage.local.settings import LocalOptions
from lakesweep.storage.read_cache import ListedContents, ReadCache, RecentObjects
from lakesweep.storage.spec import Confine, StorageSpec

K = TypeVar("K", bound=Hashable)


class _Closes(Protocol):
    async def aclose(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class Adapters:
    """The adapters of one set of settings. Nothing is opened before it is requested."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        bounds.allow(settings.storage.max_metadata_bytes, memory=memory.of_a_run(settings))
        self._closing = AsyncExitStack()
        self._specs: dict[str, StorageSpec] = {}
        self._reading_specs: dict[str, StorageSpec] = {}
        self._storages: dict[StorageSpec, Storage] = {}
        self._caches: dict[str, FingerprintCache | None] = {}
        self._recent = RecentObjects()
        self._writers: dict[StorageSpec, Writer] = {}
        self._rules: dict[StorageSpec, StoreRulesReader] = {}
        self._paces: dict[str, Gate] = {}
        self._engines: dict[tuple[str, Location | None], Engine] = {}
        self._spark_engines: dict[tuple[str, Location | None], Engine] = {}
        spark = settings.engine.spark
        self._spark_config = engines.spark_config(spark.master, spark.remote, spark.conf, spark.scratch)
        self._formats: dict[tuple[str, str], TableFormat] = {}
        self.cache_key: bytes | None = None
        """Signs the engines' cache. None: no cache."""

    async def aclose(self) -> None:
        await self._closing.aclose()

    def format(self, tenant: TenantSettings, dataset: DatasetSettings) -> TableFormat:
        key = (tenant.id, dataset.id)
        if key not in self._formats:
            spec = DatasetSpec(
                tenant=TenantId(tenant.id),
                tenant_root=Location.parse(tenant.root),
                dataset=dataset.id,
                format=dataset.format,
                catalog=dict(dataset.catalog or {}),
                namespace=dataset.namespace,
                warehouse=Location.parse(dataset.warehouse) if dataset.warehouse else None,
                database=dataset.database,
                location=Location.parse(dataset.location) if dataset.location else None,
                vacuum_mode=dataset.vacuum_mode or "full",
                has_shallow_clones=bool(dataset.has_shallow_clones),
            )
            tools = self._tools(tenant.id, spec.tenant_root, self.storage(tenant.id), self._survey(tenant.id))
            self._formats[key] = formats.open_format(spec, tools)
        return self._formats[key]

    def _tools(self, tenant: str, root: Location, storage: Storage, survey: Storage | None = None) -> Tools:
        return Tools(
            storage=storage,
            clock=self._clock,
            writer=self.writer(tenant, root),
            remover=self._remover(tenant, root),
            survey=survey,
            contents=ListedContents(lambda: self.cache(tenant)),
        )

    def _storage_spec(self, tenant: str) -> StorageSpec:
        """Put together once: every cycle asks several times, and settings never change."""
        if tenant not in self._specs:
            self._specs[tenant] = StorageSpec(
                stores=tuple(one.options() for one in stores.for_tenant(self._settings, tenant).values()),
                call_timeout_seconds=self._settings.storage.call_timeout_seconds,
                max_bytes=self._settings.storage.max_metadata_bytes,
            )
        return self._specs[tenant]

    def _own_spec(self) -> StorageSpec:
        """What the service keeps on its own disk is no request of a run."""
        spec = self._storage_spec("")
        uncounted = (replace(one, counted=False) if isinstance(one, LocalOptions) else one for one in spec.stores)
        return replace(spec, stores=tuple(uncounted))

    def own_storage(self) -> Storage:
        return self._opened_storage(self._own_spec())

    def own_writer(self) -> Writer:
        return self._opened_writer(self._own_spec())

    def storage(self, tenant: str, *more: Location | None) -> Storage:
        """Reading for one tenant: there, and where the operator allowed it. `more` are the root of a bare location and
        the trash of a run that is restored."""
        return self._opened_storage(self._reading(tenant, *more), self._read_cache(tenant))

    async def credentials(self, tenant: str, root: Location) -> str | None:
        """Where one tenant's credentials come from, as text; None if its store needs none."""
        return await storages.credentials(self._storage_spec(tenant), root)

    def writer(self, tenant: str, root: Location) -> Writer:
        """Writing whole objects below one root, with one tenant's way to S3."""
        return self._opened_writer(replace(self._storage_spec(tenant), confine=Confine(places=(root,))))

    def rules(self, tenant: str) -> StoreRulesReader:
        spec = self._storage_spec(tenant)
        return self._opened(self._rules, spec, lambda: storages.open_rules(spec))

    def _survey(self, tenant: str) -> Storage:
        """The same as `storage`, and metadata files of a catalog's other tables, wherever the tenant's keys reach."""
        spec = self._reading(tenant)
        if spec.confine is not None:
            spec = replace(spec, confine=replace(spec.confine, survey=markers.ICEBERG_SUFFIXES))
        return self._opened_storage(spec, self._read_cache(tenant))

    def _reading(self, tenant: str, *more: Location | None) -> StorageSpec:
        given = [place for place in more if place is not None]
        if given:
            return self._new_reading(tenant, given)
        if tenant not in self._reading_specs:
            self._reading_specs[tenant] = self._new_reading(tenant, [])
        return self._reading_specs[tenant]

    def _new_reading(self, tenant: str, more: Sequence[Location]) -> StorageSpec:
        settings = self._settings.tenant(tenant)
        places = list(more)
        if settings is not None:
            places += [Location.parse(text) for text in (settings.root, *settings.allow_read)]
            places += trash_places(self._settings, settings)
            lists = [Location.parse(one.inventory) for one in settings.datasets if one.inventory]
            places += [place for address in lists for place in inventories.places(address)]
        return replace(self._storage_spec(tenant), confine=Confine(places=tuple(dict.fromkeys(places))))

    def _read_cache(self, tenant: str) -> ReadCache:
        return ReadCache(
            immutable_names=markers.IMMUTABLE_LISTS,
            open=lambda: self.cache(tenant),
            recent_names=markers.IMMUTABLE_MANIFESTS,
            recent=self._recent,
            reader=tenant,
        )

    def cache(self, tenant: str) -> FingerprintCache | None:
        """The cache that the tenant's engines use, for what formats read themselves."""
        if tenant not in self._caches and self.cache_key is not None:
            data_dir, scope = self._settings.service.data_dir, self._cache_scope(tenant)
            self._caches[tenant] = engines.open_cache(data_dir, scope, self.cache_key)
        return self._caches.get(tenant)

    def _opened_storage(self, spec: StorageSpec, cache: ReadCache | None = None) -> Storage:
        return self._opened(self._storages, spec, lambda: storages.open_storage(spec, cache))

    def _opened_writer(self, spec: StorageSpec) -> Writer:
        return self._opened(self._writers, spec, lambda: storages.open_writer(spec))

    def _opened(self, opened: dict[K, C], key: K, make: Callable[[], C]) -> C:
        """Opened once, and closed with all others."""
        if key not in opened:
            opened[key] = make()
            self._closing.push_async_callback(opened[key].aclose)
        return opened[key]

    def _remover(self, tenant: str, root: Location, table_roots: Sequence[Location] = ()) -> GatedUnpublishedRemover:
        spec = self._storage_spec(tenant)
        return GatedUnpublishedRemover(
            lambda: storages.open_deleter(spec), root, table_roots, spec.options(LocalOptions).age_by
        )

    def deleter(
        self,
        tenant: str,
        tenant_root: Location,
        state: TableState,
        concurrency: int,
        count: Callable[[int], None],
        *,
        trash: RunTrash | None = None,
    ) -> Deleter:
        """Deleting, confined by the gate of one tenant and one table. `count` is called with the size of every batch.
        With a trash it moves.

        A tenant's deleters share their pace: a store that throttles the sweep of one table throttles all of them.
        """
        spec = replace(self._storage_spec(tenant), delete_concurrency=concurrency)
        inner = storages.open_deleter(spec, gate=self._gate(tenant))
        if trash is not None:
            inner = TrashDeleter(storages.open_mover(spec, gate=self._gate(tenant)), inner, trash)
        return GatedDeleter(inner, tenant_root=tenant_root, table_roots=state.roots, count=count)

    def trash_deleter(self, tenant: str, place: Location, runs: Sequence[str]) -> Deleter:
        """Deleting in a tenant's trash: in the directories of these runs, and nowhere else."""
        inner = storages.open_deleter(self._storage_spec(tenant), gate=self._gate(tenant))
        return GatedDeleter(inner, tenant_root=place, table_roots=[place.join(run) for run in runs])

    async def remove_empty(self, tenant: str, place: Location, directory: Location) -> None:
        """Remove a directory of the trash and those in it, as far as they are empty."""
        remover = self._remover(tenant, place, (place,))
        inside = await remover.empty_directories(directory, datetime.max.replace(tzinfo=UTC))
        await remover.remove_empty_directories(place, [*inside, directory.raw])

    def mover(self, tenant: str) -> Mover:
        """Moving, at the tenant's pace. `cleanup.restore` decides what may be moved, and where to."""
        return storages.open_mover(self._storage_spec(tenant), gate=self._gate(tenant))

    def _gate(self, tenant: str) -> Gate:
        if tenant not in self._paces:
            settings = self._settings
            most = max(settings.daemon.max_deletions, settings.orphan_cleanup.max_concurrent_deletions)
            self._paces[tenant] = delete_gate(most)
        return self._paces[tenant]

    def inprocess(self, tenant: str, root: Location | None = None) -> Engine:
        """The engine inside this process. `root` is a bare location's."""
        return self._opened(
            self._engines,
            (tenant, root),
            lambda: engines.open_inprocess(
                storage=self.storage(tenant, root),
                decoder=self._decoder,
                data_dir=self._settings.service.data_dir,
                memory_limit=self._settings.engine.memory_limit,
                cache_scope=self._cache_scope(tenant),
                cache_key=self.cache_key,
            ),
        )

    def spark(self, tenant: str, root: Location | None = None) -> Engine:
        """The engine on Spark. All tenants share its session; its executors are confined like this process."""
        return self._opened(
            self._spark_engines,
            (tenant, root),
            lambda: engines.open_spark(
                storage=self.storage(tenant, root),
                spec=self._reading(tenant, root),
                decoder=self._decoder,
                data_dir=self._settings.service.data_dir,
                config=self._spark_config,
                scratch_spec=self._storage_spec(""),
                discard=self._discard_scratch,
                cache_scope=self._cache_scope(tenant),
                cache_key=self.cache_key,
            ),
        )

    async def tidy_scratch(self) -> None:
        """Remove what killed processes left of their plans. Raises EngineFailed."""
        await engines.tidy_scratch(
            data_dir=self._settings.service.data_dir,
            config=self._spark_config,
            scratch_spec=self._storage_spec(""),
            discard=self._discard_scratch,
        )

    @property
    def _decoder(self) -> Callable[[FormatName], Decode]:
        return partial(formats.decoder, max_bytes=self._settings.storage.max_metadata_bytes)

    def _cache_scope(self, tenant: str) -> str:
        identities = (one.identity for one in stores.for_tenant(self._settings, tenant).values())
        return "|".join((tenant, *identities))

    def choose_engine(
        self, tenant: str, state: TableState, runs: Sequence[run_document.Run], root: Location | None = None
    ) -> tuple[Engine, EngineChoice]:
        """Which engine plans a table, and why. `runs` are its latest, newest first; `root` is a bare location's."""
        kind = self._settings.engine.kind
        choice = engines.choose(
            kind=kind,
            spark_above_files=self._settings.engine.spark_above_files,
            estimate=engines.estimate(state, runs),
            available=engines.available(self._spark_config) if kind == "auto" else engines.ALL,
        )
        engine = self.spark(tenant, root) if choice.kind == engines.SPARK else self.inprocess(tenant, root)
        return engine, choice

    def artifacts(self) -> Artifacts:
        """Where plans and ledgers are kept: a directory, or a working directory with copies in an object store."""
        place = self._settings.artifacts
        if place.is_local:
            return Artifacts(Path(place.path))
        working = self._settings.service.data_dir / "artifacts"
        return Artifacts(
            working, shared=place, storage=self.own_storage(), writer=self.own_writer(), discard=self.remove_own
        )

    async def remove_own(self, paths: Sequence[str], place: Location | None = None) -> None:
        """Remove files of the service's own, by default of its artifacts. Never raises, and reaches no other place."""
        place = place or self._settings.artifacts
        await self._remover("", place, (place,)).remove_unpublished(paths)

    async def _discard_scratch(self, paths: Sequence[str]) -> None:
        """Remove what a plan on Spark left in a store of ours."""
        await self.remove_own(paths, Location.parse(self._spark_config.scratch or ""))

    async def bare_table(self, location: Location, format: FormatName | None, root: Location, tenant: str) -> Table:
        tools = self._tools(tenant, root, self.storage(tenant, root))
        return await formats.open_location(location, format, tools, root)
