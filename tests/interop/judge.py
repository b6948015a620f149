"""One cycle of the product, judged by Iceberg's Java code, by Spark's reader and by the independent count."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.interop.product import Product, Retention, Seen
from tests.peers import aging, independent, oracle
from tests.peers.independent import Expected, Stored
from tests.peers.spark_table import SparkTable

from lakesweep.model.run import Outcome

List = Callable[[], Stored]


def stored(table: SparkTable) -> Stored:
    """What is on disk below the tenant's root; past a day it is old."""
    return independent.stored_locally(table.root, older_than=time.time() - aging.DAY)


def going(table: SparkTable, retention: Retention) -> frozenset[int]:
    """The snapshots that Iceberg itself would expire."""
    return oracle.snapshots_to_expire(table, older_than_ms=retention.older_than_ms, retain_last=retention.retain_last)


def expected(table: SparkTable, expire: frozenset[int], found: Stored) -> Expected:
    """The exact plan by the independent count, if these snapshots go."""
    loaded = table.catalog.python().load_table(table.identifier)
    return independent.by_pyiceberg(loaded).expected(found, expire=expire, hidden=independent.hidden_by(loaded))


def assert_same(planned: Expected, wanted: Expected) -> None:
    """Set by set, so that a failure names the files."""
    assert planned.expired == wanted.expired
    assert planned.unreferenced == wanted.unreferenced


async def check_plan(
    table: SparkTable, product: Product, retention: Retention, *, commits: bool = True, listing: List | None = None
) -> Seen:
    """A plan names exactly the snapshots and files it should, and changes nothing."""
    look = listing or (lambda: stored(table))
    expire = going(table, retention) if commits else frozenset()
    before = look()

    seen = await product.plan(table.name, retention)

    assert seen.run.outcome is Outcome.DRY_RUN, seen.run.reason
    assert seen.run.expiry is not None
    assert bool(seen.run.expiry.skipped) is not commits
    assert seen.going == expire
    assert_same(seen.files, expected(table, expire, before))
    assert look().files == before.files
    return seen


async def check_run(
    table: SparkTable, product: Product, retention: Retention, *, commits: bool = True, listing: List | None = None
) -> Seen:
    """An executed run deletes exactly the plan; every retained snapshot, tag and branch reads as before."""
    look = listing or (lambda: stored(table))
    expire = going(table, retention) if commits else frozenset()
    staying, refs = oracle.snapshots(table) - expire, oracle.refs(table)
    rows = oracle.rows(table, [*staying, *refs])
    before = look()
    files = expected(table, expire, before)

    seen = await product.execute(table.name, retention)

    assert seen.run.outcome is Outcome.DONE, seen.run.reason
    assert frozenset(map(int, seen.run.expired_snapshots)) == expire
    assert_same(seen.files, files)
    after = look()
    assert before.files - after.files == files.expired | files.unreferenced
    assert oracle.snapshots(table) == staying
    assert oracle.refs(table) == refs
    assert oracle.rows(table, rows) == rows
    lost = independent.by_spark(table).files() - after.files
    assert {path for path in lost if not path.endswith("version-hint.text")} == set()
    return seen
