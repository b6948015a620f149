"""The judges before they judge: two independent counts of every table agree, and Iceberg's own tools agree too."""

import time

import pytest
from tests.builders.spark_iceberg import ZOO
from tests.peers import aging, independent, oracle
from tests.peers.spark import ON_SPARK

pytestmark = ON_SPARK


@pytest.mark.parametrize("name", ZOO)
def test_pyiceberg_and_spark_count_the_same_files(look_at, name):
    table = look_at(name)
    loaded = table.catalog.python().load_table(table.identifier)
    counted = independent.by_pyiceberg(loaded)

    assert counted == independent.by_spark(table)
    assert len(counted.snapshots) > 1
    stored = independent.stored_locally(table.root, older_than=time.time())
    missing = counted.files() - stored.files
    assert {path.rpartition("/")[2] for path in missing} <= {"version-hint.text"}


@pytest.mark.parametrize("name", ZOO)
def test_the_count_of_unreferenced_files_is_what_iceberg_finds(look_at, name):
    table = look_at(name)
    loaded = table.catalog.python().load_table(table.identifier)

    stored = independent.stored_locally(table.root, older_than=time.time() - aging.DAY)
    expected = independent.by_pyiceberg(loaded).expected(stored, hidden=independent.hidden_by(loaded))

    assert sum("stray" in path for path in expected.unreferenced) == 3
    assert oracle.orphans(table, table.root) == expected.unreferenced


def test_tags_branches_and_the_newest_snapshot_never_expire(look_at):
    table = look_at("tags_and_branches")
    refs = oracle.refs(table)

    gone = oracle.snapshots_to_expire(table, older_than_ms=time.time_ns() // 1_000_000 + 1000, retain_last=1)

    assert set(refs) == {"main", "release/1", "audit", "side"}
    assert gone
    assert not gone & set(refs.values())
    assert gone < oracle.snapshots(table)


def test_rows_can_be_read_at_every_snapshot_tag_and_branch(look_at):
    table = look_at("tags_and_branches")
    refs = oracle.refs(table)

    read = oracle.rows(table, [*oracle.snapshots(table), *refs])

    assert all(read[ref] == read[snapshot] for ref, snapshot in refs.items())
    assert {len(found) for found in read.values()} > {4, 8}
