"""Tables that Spark wrote with Iceberg's own runtime: our plan is the independent count, our expiry is Iceberg's.

The judges are Iceberg's Java code (which snapshots go, which files are orphans, which rows are read) and counts of
the metadata by pyiceberg. Retention is applied three ways: all but the newest, all but three, and by age alone.
"""

import pytest
from tests.builders.spark_iceberg import ZOO
from tests.interop import judge
from tests.interop.product import Retention, everything_old, frozen_now
from tests.peers import aging, oracle
from tests.peers.spark import ON_SPARK

from lakesweep.model.run import Outcome

pytestmark = ON_SPARK

NO_COMMIT = {"deletion_vectors", "upgraded_to_v3"}
"""Version 3 in a catalog where the client writes the metadata: pyiceberg cannot, so no snapshot goes there."""


def halfway(table):
    """By age alone: what was committed before the middle of the history may go."""
    rows = table.sql("SELECT unix_millis(committed_at) AS at FROM {t}.snapshots ORDER BY committed_at")
    return Retention(clock=frozen_now(), older_than_ms=rows[len(rows) // 2].at)


RETENTIONS = {
    "newest": lambda table: everything_old(),
    "three": lambda table: everything_old(retain_last=3),
    "age": halfway,
}


@pytest.mark.parametrize("name", ZOO)
async def test_the_plan_matches_an_independent_count_and_iceberg(look_at, product, name):
    table = look_at(name)
    for retention in (make(table) for make in RETENTIONS.values()):
        await judge.check_plan(table, product(table), retention, commits=name not in NO_COMMIT)


@pytest.mark.parametrize("name", ZOO)
async def test_after_a_run_spark_reads_all_rows_and_finds_no_orphans(littered, product, name):
    table = littered(name)
    retention = everything_old(retain_last=2)

    await judge.check_run(table, product(table), retention, commits=name not in NO_COMMIT)

    again = await product(table).execute(table.name, retention)
    assert again.run.outcome is Outcome.DONE
    assert again.run.expired_snapshots == ()
    assert oracle.orphans(table, table.root) == frozenset()


async def test_strays_in_partitions_with_hidden_names_go_and_lookalikes_stay(build, product):
    table = build("hidden_partition_names")
    aging.age(table.root)
    data = f"{table.root}/{table.name}/data"
    old_spec = aging.plant(data, "_kind=k0/00000-0-stray-00001.parquet")
    new_spec = aging.plant(data, "_kind_trunc_1=k/00000-0-stray-00002.parquet")
    aging.plant(data, "_kind/00000-0-hidden-00001.parquet", "_kind_trunc=k/00000-0-hidden-00002.parquet")

    seen = await product(table).plan(table.name, Retention(clock=frozen_now(), older_than_ms=0))

    assert seen.files.unreferenced == old_spec | new_spec
    assert oracle.orphans(table, table.root) == old_spec | new_spec


async def test_the_retention_of_the_table_itself_wins(build, product):
    table = build("format_v1")
    properties = "'history.expire.max-snapshot-age-ms'='1', 'history.expire.min-snapshots-to-keep'='2'"
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})")
    going = oracle.snapshots_to_expire(table)

    seen = await product(table).plan(table.name, Retention(clock=frozen_now(), older_than_ms=0, retain_last=1))

    assert len(going) == 2
    assert seen.going == going


async def test_a_ref_past_its_own_age_leaves_with_its_snapshots(build, product):
    table = build("copy_on_write")
    first, second = (row[0] for row in table.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at LIMIT 2"))
    for name, snapshot, age_ms in (("short", first, 1), ("long", second, 10**12)):
        table.sql(f"ALTER TABLE {{t}} CREATE TAG {name} AS OF VERSION {snapshot}")
        table.catalog.java_table(table.identifier).manageSnapshots().setMaxRefAgeMs(name, age_ms).commit()
    rows = oracle.rows(table, ["main", "long"])
    retention = everything_old()
    going = oracle.snapshots_to_expire(table, older_than_ms=retention.older_than_ms, retain_last=1)

    seen = await product(table).execute(table.name, retention)

    assert first in going
    assert second not in going
    assert frozenset(map(int, seen.run.expired_snapshots)) == going
    assert seen.run.expiry.drop_refs == ("short",)
    assert set(oracle.refs(table)) == {"main", "long"}
    assert oracle.rows(table, rows) == rows


async def test_a_table_that_forbids_cleaning_is_refused(build, product):
    table = build("format_v1")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled'='false')")

    seen = await product(table).execute(table.name, everything_old())

    assert seen.run.outcome is Outcome.REFUSED
    assert "gc.enabled" in seen.run.reason
    assert len(oracle.snapshots(table)) == 4
