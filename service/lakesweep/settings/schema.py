"""Every setting, with its unit, its default and the reason for it. Contradictory settings cannot be constructed.

The text under each field is its documentation; `dist.toml` shows the same keys with the same defaults.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from lakesweep.model.location import Location
from lakesweep.model.requests import Prices
from lakesweep.settings import checks, stores
from lakesweep.settings.cleanup import OrphanCleanupSettings
from lakesweep.settings.observability import LoggingSettings, MetricsSettings, NotifySettings, TracingSettings
from lakesweep.settings.tenants import TenantSettings
from lakesweep.settings.values import (
    Address,
    Count,
    Days,
    Directory,
    Group,
    Interval,
    Listen,
    MemorySize,
    Price,
    Properties,
    ScratchPlace,
)


def user_state_directory() -> Path:
    """Where a user's programs keep what outlives them: $XDG_STATE_HOME/lakesweep or ~/.local/state/lakesweep."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".local" / "state") / "lakesweep"
    except RuntimeError:  # a container's user without a home directory
        return Path("/var/lib/lakesweep")


def _state_url(url: str) -> str:
    if not url.startswith(("postgresql://", "postgres://", "sqlite:///", "memory://")):
        raise PydanticCustomError("lakesweep", "must begin with postgresql://, sqlite:/// or memory://")
    return url


class ServiceSettings(Group):
    """`[service]`: where Lakesweep keeps its own files."""

    data_dir: Directory = Field(default_factory=user_state_directory)
    """Directory for the cache, scratch files and the SQLite state. By default $XDG_STATE_HOME/lakesweep or
    ~/.local/state/lakesweep. Outside every tenant's root."""
    artifacts: Address | None = None
    """Where plans, ledgers and audit records go: a directory, or an object-store location. All replicas share it, so
    that any of them can continue from what another has seen. By default `artifacts` inside data_dir. Outside every
    tenant's root."""

    audit_anchor: Address | None = None
    """A second place for the newest digest of each audit trail, such as a bucket with an object lock: what was anchored
    there cannot be rewritten unnoticed. Needs only the permission to create objects. By default none."""

    installation_key: str | None = Field(default=None, min_length=32, repr=False)
    """Secret text of 32 characters or more with which the service signs its own files, such as its cache. Give it in
    the environment, the same to all replicas. By default it is created once and kept in the state store, which replicas
    share."""

    keep_runs_days: Days = 90.0
    """Days for which finished runs are remembered, with their plans and journals. The audit trail is kept for ever."""


class StateSettings(Group):
    """`[state]`: what survives a restart."""

    url: Annotated[str, AfterValidator(_state_url), Field(json_schema_extra={"format": "state-url"})] | None = Field(
        default=None, repr=False
    )
    """postgresql://user:password@host/database for several replicas, sqlite:///FILE for one (four slashes before an
    absolute path), or memory:// to forget everything at the end. By default SQLite inside data_dir."""


class StorageSettings(Group):
    """`[storage]`: how the stores are reached."""

    max_metadata_bytes: Annotated[Count, Field(ge=1024 * 1024)] = 2 * 1024**3
    """Bytes that one object of a table's metadata may have, as it is stored and as it is decompressed. A table with a
    larger one is left alone as `indeterminate`."""
    call_timeout_seconds: Annotated[Count, Field(le=86_400)] = 300
    """Seconds for one call to a store, or one page of a listing. A disk that hangs must not block its table for
    ever."""


if not TYPE_CHECKING:  # the fields of single stores have no static types; see `settings.stores`
    StorageSettings = stores.add_settings(StorageSettings)


class SparkSettings(Group):
    """`[engine.spark]`: the Spark session, one for the whole process."""

    master: str = Field(default="local[*]", min_length=1)
    """Where Spark runs: local[*] inside this machine, spark://…, yarn or k8s://…. Not used when `remote` is set."""
    remote: str | None = Field(
        default=None, pattern=r"^sc://\S+$", json_schema_extra={"format": "connect-url"}, repr=False
    )
    """A Spark Connect server, sc://host:port, used instead of `master`."""
    scratch: ScratchPlace | None = None
    """Where a plan's intermediate rows go, writable by this service and all executors: a location in a store that
    Lakesweep supports (s3://…), which needs no Hadoop connector; any place that Spark itself can write to (hdfs://,
    s3a://, abfss://, gs://, dbfs:/); or a directory that all mount at the same path. By default `scratch` inside
    data_dir, which works for Spark on this machine. Outside every tenant's root."""
    conf: Properties = Field(default_factory=dict, repr=False)
    """Spark properties, such as spark.executor.memory = "4g"."""


class EngineSettings(Group):
    """`[engine]`: what finds orphans. Every engine gives the same plan."""

    kind: Literal["auto", "inprocess", "spark"] = "auto"
    """`inprocess` works inside this process, `spark` on a cluster; `auto` uses Spark for tables of `spark_above_files`
    files and more."""
    spark_above_files: Count = 10_000_000
    """Number of files from which `auto` uses Spark. Below that one process is done before a cluster has started."""
    memory_limit: MemorySize = "512MB"
    """Memory for the in-process join of one table; beyond it the join spills to data_dir. A run that takes four times
    as much in all (256 MiB at least), for its metadata and its listing too, is stopped and fails."""
    spark: SparkSettings = SparkSettings()
    """The Spark session."""


class AdminSettings(Group):
    """`[admin]`: the service's HTTP API."""

    listen: Listen = "127.0.0.1:8484"
    """host:port of the API and the dashboard. Without tokens it must be a loopback address."""
    requests_per_second: Count = 20
    """Requests that one client address may make in the long run, and five seconds' worth of them at once. Behind a
    proxy all clients have one address."""


class DaemonSettings(Group):
    """`[daemon]`: how the service works through its tables."""

    max_tables: Count = 4
    """Tables cleaned at one time."""
    lease_seconds: Annotated[Count, Field(ge=5, le=3600)] = 60
    """Seconds for which a worker owns a table without a heartbeat; after that another replica may take it over."""
    max_listings: Count = 2
    """Tables listed and judged at one time, of those being cleaned. Each may take `engine.memory_limit`."""
    max_deletions: Count = 16
    """Deletion batches under way at one time, over all tables."""
    discovery_seconds: Count = 300
    """Seconds between two discoveries of new and dropped tables in catalogs and warehouses."""
    ghost_interval_hours: Interval | None = None
    """Hours between two searches of the service for directories of former tables that nobody claims. It reads every
    table of a tenant, reports what it finds (`lakesweep_ghost_bytes`, the report, the dashboard) and deletes nothing.
    If not set, only `lakesweep ghosts` searches."""
    max_cycle_hours: Annotated[Count, Field(le=8760)] = 24
    """Hours that one run of one table may take. Then it is cut off like a run whose lease was lost, and the next one
    continues."""
    shutdown_grace_seconds: Annotated[Count, Field(le=3600)] = 25
    """Seconds that the service may take to stop after SIGTERM. Keep it below what the container's runtime grants, 30 in
    Kubernetes by default."""


class PriceSettings(Group):
    """`[prices]`: what the stores charge, for the estimates of `plan`, `run` and `tables`. Nothing is decided by it.
    Requests to a local disk are free, except for those whose price is set here."""

    currency: Annotated[str, Field(min_length=1, max_length=8, pattern=r"^\S+$")] = "USD"
    """Currency of the prices. Only for display."""
    list_per_1000: Price = 0.005
    """A thousand LIST requests, each of up to a thousand objects."""
    get_per_1000: Price = 0.0004
    """A thousand GET requests."""
    head_per_1000: Price = 0.0004
    """A thousand HEAD requests."""
    put_per_1000: Price = 0.005
    """A thousand PUT, COPY and POST requests."""
    delete_per_1000: Price = 0.0
    """A thousand DELETE requests. S3 charges nothing for them."""
    read_per_gb: Price = 0.0
    """A GB (10^9 bytes) that is read. Free on S3 within one region, but not across regions or clouds."""
    storage_per_gb_month: Price = 0.023
    """A GB (10^9 bytes) stored for a month."""

    def of_requests(self, *, local: bool) -> Prices:
        """Defaults are an object store's; who sets a price for a mounted disk means it."""

        def price(name: str) -> float:
            return 0.0 if local and name not in self.model_fields_set else float(getattr(self, name))

        per_kind = {kind: price(f"{kind}_per_1000") for kind in ("list", "get", "head", "put", "delete")}
        return Prices(**per_kind, read_gb=price("read_per_gb"), currency=self.currency)


class Settings(Group):
    """The whole tree. `Settings()` is the defaults: enough to plan a bare location."""

    orphan_cleanup: OrphanCleanupSettings = OrphanCleanupSettings()
    """The rules for every table, unless a tenant, dataset or table says otherwise."""
    service: ServiceSettings = Field(default_factory=ServiceSettings)
    """Where Lakesweep keeps its own files."""
    state: StateSettings = StateSettings()
    """What survives a restart."""
    storage: StorageSettings = StorageSettings()
    """How the stores are reached."""
    engine: EngineSettings = EngineSettings()
    """What finds orphans."""
    admin: AdminSettings = AdminSettings()
    """The service's HTTP API."""
    metrics: MetricsSettings = MetricsSettings()
    """What Prometheus scrapes."""
    daemon: DaemonSettings = DaemonSettings()
    """How the service works through its tables."""
    prices: PriceSettings = PriceSettings()
    """What the stores charge, for estimates."""
    logging: LoggingSettings = LoggingSettings()
    """What is logged to standard error."""
    notify: NotifySettings = NotifySettings()
    """Who is notified of how runs ended."""
    tracing: TracingSettings = TracingSettings()
    """Where the traces of cycles go."""
    tenants: tuple[TenantSettings, ...] = ()
    """The tenants, and their catalogs and warehouses."""

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        """Check what no single key can know. All faults are raised together, each at the key it concerns."""
        faults = [
            InitErrorDetails(
                type=PydanticCustomError(checks.BETWEEN, "{message}", {"message": fault.message}),
                loc=fault.key,
                input=fault.value,
            )
            for fault in checks.faults(self)
        ]
        if faults:
            raise ValidationError.from_exception_data("Settings", faults)
        return self

    def tenant(self, name: str | None) -> TenantSettings | None:
        return next((tenant for tenant in self.tenants if tenant.id == name), None)

    @property
    def artifacts(self) -> Location:
        return Location.parse(self.service.artifacts or str(self.service.data_dir / "artifacts"))

    @property
    def state_url(self) -> str:
        return self.state.url or f"sqlite:///{self.service.data_dir / 'state.db'}"
