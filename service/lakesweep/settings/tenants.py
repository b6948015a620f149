"""`[[tenants]]`: the owners of tables, where the tables are, and which settings differ for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakesweep.model.table import FormatName
from lakesweep.settings import stores
from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.values import Address, Count, Group, Identifier, Properties


class TenantStorage(Group):
    """`[tenants.storage]`: what is different for one tenant's stores."""


if not TYPE_CHECKING:  # the fields of single stores have no static types; see `settings.stores`
    TenantStorage = stores.add_overrides(TenantStorage)


class TableSettings(Group):
    """`[[tenants.datasets.tables]]`: what is different for one table. Tables need not be listed to be cleaned."""

    name: str = Field(min_length=1)
    """The table's name in its dataset, exactly as `lakesweep tables` shows it."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this table."""


class DatasetSettings(Group):
    """`[[tenants.datasets]]`: one catalog or warehouse whose tables are discovered again in every cycle."""

    id: Identifier
    """Name of the dataset in targets, reports and metrics. Unique inside its tenant."""
    format: FormatName
    """Table format: `iceberg` needs `catalog`, `paimon` needs `warehouse`, `delta` needs `location`."""
    catalog: Properties | None = Field(default=None, repr=False)
    """Iceberg: the properties of a pyiceberg catalog (`type`, `uri`, `warehouse`, `credential`, …). `name` is the
    catalog's own name, by default the dataset's id. Secrets may come from the environment, where pyiceberg looks too:
    `PYICEBERG_CATALOG__PROD__CREDENTIAL` is the `credential` of the catalog `prod`."""
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
    """An existing list of files that is read instead of listing: the manifest.json of an S3 Inventory, a Parquet file
    with the columns path, size and last_modified, or a folder, of which the newest complete inventory or all Parquet
    files are taken. It must cover the tables and be younger than their grace period."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this dataset."""
    tables: tuple[TableSettings, ...] = ()
    """Single tables for which something differs."""

    @property
    def places(self) -> dict[str, str]:
        """Where its tables are, by the key that says so. A new key of this kind goes here."""
        given = {"warehouse": self.warehouse, "location": self.location}
        return {key: place for key, place in given.items() if place is not None}

    def table(self, name: str | None) -> TableSettings | None:
        return next((table for table in self.tables if table.name == name), None)


class TenantSettings(Group):
    """`[[tenants]]`: one owner of tables, confined to one root."""

    id: Identifier
    """Name of the tenant in targets, reports and metrics."""
    root: Address
    """The location of all of the tenant's tables. Nothing outside is ever touched; no two roots overlap."""
    allow_read: tuple[Address, ...] = ()
    """Places outside the root where metadata of the tenant's tables may be read, never written or deleted. Without an
    entry here a table whose metadata names a manifest or log outside of the root is left alone as `indeterminate`."""
    requests_per_day: Count | None = None
    """Requests that the service may send to stores for this tenant's tables in a day (UTC). Beyond it tables wait for
    the next day: the most wasteful ones go first, and the log says which wait (`tables_postponed`). If not set, there
    is no limit."""
    storage: TenantStorage = TenantStorage()
    """What is different for this tenant's stores."""
    orphan_cleanup: CleanupOverride = CleanupOverride()
    """Keys of `[orphan_cleanup]` that differ for this tenant."""
    datasets: tuple[DatasetSettings, ...] = ()
    """The tenant's catalogs and warehouses."""

    def dataset(self, name: str | None) -> DatasetSettings | None:
        return next((dataset for dataset in self.datasets if dataset.id == name), None)
