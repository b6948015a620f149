"""`[[tenants]]`: whose tables there are, where they live, and what is different for them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakesweep.model.files import AgeBy
from lakesweep.model.table import FormatName
from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.values import Address, Count, Group, Identifier, Properties


class LocalSettings(Group):
    """`[storage.local]`: files on this machine's disks and mounts."""

    age_by: AgeBy = AgeBy.CHANGE
    """How old a file is: `change` counts from the later of its modification and its last change of status (mtime,
    ctime), since `mv`, `cp -p`, `rsync -a` and restores bring files with an old mtime; `modification` counts from the
    mtime alone, for tests, demos and file systems whose ctime means nothing."""


class S3Settings(Group):
    """`[storage.s3]`: how S3 is reached. Keys come from the usual AWS chain only (environment, profile, web
    identity, instance role), never from this file."""

    endpoint_url: str | None = Field(default=None, pattern=r"^https?://\S+$", json_schema_extra={"format": "http-url"})
    """Where an S3-compatible store listens, such as http://minio:9000. Without it: AWS."""
    region: str | None = None
    """AWS region. Without it: what the AWS chain says."""
    path_style: bool = False
    """Address buckets as http://host/bucket/key instead of http://bucket.host/key; most other stores need it."""
    profile: str | None = None
    """Profile of the AWS configuration files to take credentials from."""
    max_connections: Count = 64
    """Connections to the store open at one time, shared by listing, reading and deleting."""
    listing_concurrency: Count = 16
    """List requests in flight for one table. Above 1 a large listing is divided by key; set 1 for a store that does not
    list in key order."""
    compare_etags: bool = True
    """Delete an object only if the store still has it under the etag that was listed. Stores that cannot compare delete
    without; switch it off for one whose listings show other etags than it compares."""


class S3Override(Group):
    """Some of the keys of `[storage.s3]`, for one tenant."""

    endpoint_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    max_connections: Count | None = None
    listing_concurrency: Count | None = None
    compare_etags: bool | None = None


class LocalOverride(Group):
    """Some of the keys of `[storage.local]`, for one tenant."""

    age_by: AgeBy | None = None


class TenantStorage(Group):
    """`[tenants.storage]`: what is different for one tenant's stores."""

    local: LocalOverride = LocalOverride()
    """Keys of `[storage.local]` that differ for this tenant; the others are inherited."""
    s3: S3Override = S3Override()
    """Keys of `[storage.s3]` that differ for this tenant; the others are inherited."""


class TableSettings(Group):
    """`[[tenants.datasets.tables]]`: what is different for one table. Tables need not be listed to be cleaned."""

    name: str = Field(min_length=1)
    """The table's name in its dataset, exactly as `lakesweep tables` shows it."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this table."""


class DatasetSettings(Group):
    """`[[tenants.datasets]]`: one catalog or warehouse whose tables are discovered anew in every cycle."""

    id: Identifier
    """Name of the dataset in targets, reports and metrics. Unique inside its tenant."""
    format: FormatName
    """Table format: `iceberg` needs `catalog`, `paimon` needs `warehouse`, `delta` needs `location`."""
    catalog: Properties | None = Field(default=None, repr=False)
    """Iceberg: the properties of a pyiceberg catalog (`type`, `uri`, `warehouse`, `credential`, …). `name` is the
    catalog's own name, by default the dataset's id. What is secret may come from the environment, where pyiceberg looks
    too: `PYICEBERG_CATALOG__PROD__CREDENTIAL` is the `credential` of the catalog `prod`."""
    namespace: str | None = Field(default=None, min_length=1)
    """Iceberg: the namespace whose tables belong to this dataset, those of namespaces inside it too; its levels are
    joined with dots. Without it: every namespace of the catalog."""
    warehouse: Address | None = None
    """Paimon: the warehouse directory, <warehouse>/<database>.db/<table>. Inside the tenant's root."""
    database: str | None = Field(default=None, min_length=1)
    """Paimon: the database whose tables belong to this dataset. Without it: every database of the warehouse."""
    location: Address | None = None
    """Delta: the directory whose children with a _delta_log are the tables. Inside the tenant's root."""
    vacuum_mode: Literal["full", "lite"] | None = None
    """Delta: `full`, the default, finds whatever is stored and unreferenced; `lite` deletes only what commits still
    in the log have removed, as VACUUM LITE does."""
    has_shallow_clones: bool | None = None
    """Delta: shallow clones read these tables' files and nothing in their logs says so. With `true` the data files
    stay and only the logs are cleaned. Default false."""
    inventory: Address | None = None
    """A ready file list that is read instead of listing: the manifest.json of an S3 Inventory, a Parquet file with the
    columns path, size and last_modified, or a folder, of which the newest complete inventory or all Parquet files are
    taken. It must cover the tables and be younger than their grace period."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this dataset."""
    tables: tuple[TableSettings, ...] = ()
    """Single tables for which something differs."""

    def table(self, name: str | None) -> TableSettings | None:
        """What is configured for one table, if anything is."""
        return next((table for table in self.tables if table.name == name), None)


class TenantSettings(Group):
    """`[[tenants]]`: one owner of tables, shut in below one root."""

    id: Identifier
    """Name of the tenant in targets, reports and metrics."""
    root: Address
    """The place that holds all of the tenant's tables. Nothing outside is ever touched; no two roots overlap."""
    allow_read: tuple[Address, ...] = ()
    """Places outside the root where metadata of the tenant's tables may be read, never written or deleted. Without an
    entry here a table whose metadata names a manifest or log outside of the root is left alone as `indeterminate`."""
    storage: TenantStorage = TenantStorage()
    """What is different for this tenant's stores."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this tenant."""
    datasets: tuple[DatasetSettings, ...] = ()
    """The tenant's catalogs and warehouses."""

    def dataset(self, name: str | None) -> DatasetSettings | None:
        """The dataset of that id, if there is one."""
        return next((dataset for dataset in self.datasets if dataset.id == name), None)
