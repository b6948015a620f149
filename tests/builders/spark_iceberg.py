"""A zoo of real tables, each written by Spark with Iceberg's own runtime, each with one way to keep files.

Every builder leaves a history of several snapshots, some of which a short retention expires. Files that no
snapshot names come from Iceberg itself (replaced metadata, already expired history); tests plant others.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.peers.spark import SharedCatalog
from tests.peers.spark_table import SparkTable, pause, write_equality_delete

MERGE_ON_READ = (
    "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read','write.merge.mode'='merge-on-read'"
)


def format_v1(table: SparkTable) -> None:
    """Version 1: no sequence numbers, no delete files, content fields absent."""
    table.create("'format-version'='1'")
    table.insert(0)
    table.insert(10)
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.insert(20)


def upgraded_from_v1(table: SparkTable) -> None:
    """Version 1 manifests that live on in a version 2 table."""
    table.create("'format-version'='1'")
    table.insert(0)
    table.insert(10)
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='2', {MERGE_ON_READ})")
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.insert(20)


def copy_on_write(table: SparkTable) -> None:
    """Replaced data files: only old snapshots name them."""
    table.create(partitioned_by="day")
    table.insert(0)
    table.sql("UPDATE {t} SET name = 'changed' WHERE id = 2")
    table.sql("DELETE FROM {t} WHERE id = 3")
    table.insert(10)
    table.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE day = 0")


def position_deletes(table: SparkTable) -> None:
    """Merge-on-read: delete files and delete manifests."""
    table.create(f"'format-version'='2', {MERGE_ON_READ}", partitioned_by="day")
    table.insert(0, 8)
    table.sql("DELETE FROM {t} WHERE id = 2")
    table.sql("DELETE FROM {t} WHERE id = 3")
    table.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    table.sql("UPDATE {t} SET name = 'changed' WHERE id = 5")


def equality_deletes(table: SparkTable) -> None:
    """Deletes by value. Spark reads but never writes them, so Iceberg's Java writer does."""
    table.create(f"'format-version'='2', {MERGE_ON_READ}")
    table.insert(0, 8)
    write_equality_delete(table, 2)
    table.insert(10)
    write_equality_delete(table, 3)
    table.sql("DELETE FROM {t} WHERE id = 11")


def deletion_vectors(table: SparkTable) -> None:
    """Version 3: many deletion vectors share one Puffin file."""
    table.create(f"'format-version'='3', {MERGE_ON_READ}", partitioned_by="day")
    table.insert(0, 8)
    table.insert(10, 8)
    table.sql("DELETE FROM {t} WHERE id IN (1, 2, 11, 12)")
    table.sql("DELETE FROM {t} WHERE id = 3")
    table.sql("UPDATE {t} SET name = 'changed' WHERE id = 14")
    table.insert(20)


def upgraded_to_v3(table: SparkTable) -> None:
    """Position deletes of version 2 that stay valid beside deletion vectors."""
    table.create(f"'format-version'='2', {MERGE_ON_READ}")
    table.insert(0, 8)
    table.insert(10, 8)
    table.sql("DELETE FROM {t} WHERE id IN (1, 11)")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    table.sql("DELETE FROM {t} WHERE id = 2")


def partition_evolution(table: SparkTable) -> None:
    """Manifests of three partition specs in one snapshot."""
    table.create()
    table.insert(0)
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD day")
    table.insert(10)
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    table.insert(20)
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD day")
    table.insert(30)
    table.sql("DELETE FROM {t} WHERE id = 1")


def hidden_partition_names(table: SparkTable) -> None:
    """Directories that begin with `_` but belong to partition fields, of an old and of the current spec."""
    table.create(partitioned_by="_kind")
    table.insert(0)
    table.sql("ALTER TABLE {t} REPLACE PARTITION FIELD _kind WITH truncate(1, _kind)")
    table.insert(10)
    table.sql("DELETE FROM {t} WHERE _kind = 'k0'")
    table.insert(20)


def odd_partition_values(table: SparkTable) -> None:
    """Partition directories with escaped characters in their names."""
    table.create(partitioned_by="name")
    for value in ("a b", "a:b", "a%b", "a/b", "a#b?c", "ü+é"):
        table.sql(f"INSERT INTO {{t}} VALUES (1, '{value}', 1, 'k')")
    table.sql("DELETE FROM {t} WHERE name = 'a:b'")
    table.insert(20)


def statistics(table: SparkTable) -> None:
    """Table and partition statistics of an old and of the newest snapshot."""
    table.create(partitioned_by="day")
    table.insert(0)
    table.call("compute_table_stats")
    table.call("compute_partition_stats")
    table.insert(10)
    table.insert(20)
    table.call("compute_table_stats")
    table.call("compute_partition_stats")


def object_storage(table: SparkTable) -> None:
    """Hashed data paths, outside the table's location but inside the tenant's root."""
    table.create(
        f"'format-version'='2','write.object-storage.enabled'='true','write.data.path'='{table.root}/objects'",
        partitioned_by="day",
    )
    table.insert(0)
    table.insert(10)
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.insert(20)


def metadata_elsewhere(table: SparkTable) -> None:
    """Metadata that moved to another place in the middle of the history."""
    table.create()
    table.insert(0)
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.metadata.path'='{table.root}/logbook')")
    table.insert(10)
    table.insert(20)


def tags_and_branches(table: SparkTable) -> None:
    """Old snapshots held by a tag, a branch with its own commits, and a branch with its own retention."""
    table.create()
    table.insert(0)
    first = table.newest()
    table.insert(10)
    table.sql(f"ALTER TABLE {{t}} CREATE TAG `release/1` AS OF VERSION {first}")
    table.sql("ALTER TABLE {t} CREATE BRANCH audit WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    table.insert(50, into="{t}.branch_audit")
    table.insert(60, into="{t}.branch_audit")
    table.sql("DELETE FROM {t} WHERE id < 4")
    table.sql("ALTER TABLE {t} CREATE BRANCH side")
    table.insert(70, into="{t}.branch_side")
    table.insert(20)


def staged_and_picked(table: SparkTable) -> None:
    """Write-audit-publish: one staged commit is published by cherry-pick, another one never is."""
    table.create("'format-version'='2','write.wap.enabled'='true'")
    table.insert(0)
    with table.spark_conf("spark.wap.id", "published"):
        table.insert(10)
        staged = table.newest()
    with table.spark_conf("spark.wap.id", "forgotten"):
        table.insert(20)
    table.insert(30)
    table.call("cherrypick_snapshot", f"snapshot_id => {staged}")
    table.insert(40)


def rolled_back(table: SparkTable) -> None:
    """Snapshots that are nobody's ancestors any more."""
    table.create()
    table.insert(0)
    table.insert(10)
    good = table.newest()
    table.insert(20)
    table.sql("DELETE FROM {t} WHERE id < 4")
    table.call("rollback_to_snapshot", f"snapshot_id => {good}")
    table.insert(30)


def rewritten(table: SparkTable) -> None:
    """Compacted data and merged manifests, and a history that Iceberg itself has expired once already."""
    table.create(partitioned_by="day")
    for first in (0, 10, 20, 30, 40):
        table.insert(first)
    table.call("rewrite_manifests")
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    moment = pause()
    table.insert(50)
    table.insert(60)
    older = f"older_than => TIMESTAMP_MILLIS({moment})"
    table.call("expire_snapshots", f"{older}, retain_last => 3")


def gzip_metadata(table: SparkTable) -> None:
    """Compressed metadata files, with a short log: older ones are left behind."""
    table.create(
        "'format-version'='2','write.metadata.compression-codec'='gzip','write.metadata.previous-versions-max'='1'"
    )
    for first in (0, 10, 20, 30):
        table.insert(first)


def hadoop_names(table: SparkTable) -> None:
    """`v1.metadata.json` and a version hint: made in a Hadoop catalog, then registered in the shared one."""
    spark = table.catalog.spark
    plain = f"{table.catalog.name}_hadoop"
    spark.conf.set(f"spark.sql.catalog.{plain}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{plain}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{plain}.warehouse", table.catalog.warehouse)
    there = f"{plain}.{table.identifier}"
    spark.sql(f"CREATE TABLE {there} (id bigint, name string, day int, _kind string) USING iceberg")
    table.insert(0, into=there)
    table.insert(10, into=there)
    table.sql(
        "CALL {c}.system.register_table(table => '{id}', "
        f"metadata_file => '{table.root}/{table.name}/metadata/v3.metadata.json')"
    )
    table.insert(20)
    table.insert(30)


ZOO: dict[str, Callable[[SparkTable], None]] = {
    build.__name__: build
    for build in (
        format_v1,
        upgraded_from_v1,
        copy_on_write,
        position_deletes,
        equality_deletes,
        deletion_vectors,
        upgraded_to_v3,
        partition_evolution,
        hidden_partition_names,
        odd_partition_values,
        statistics,
        object_storage,
        metadata_elsewhere,
        tags_and_branches,
        staged_and_picked,
        rolled_back,
        rewritten,
        gzip_metadata,
        hadoop_names,
    )
}


def build(catalog: SharedCatalog, name: str, *, namespace: str | None = None) -> SparkTable:
    """One table of the zoo in a namespace of its own."""
    table = SparkTable(catalog=catalog, namespace=namespace or f"zoo_{name}", name=name)
    table.sql(f"CREATE NAMESPACE IF NOT EXISTS {{c}}.{table.namespace}")
    ZOO[name](table)
    return table
